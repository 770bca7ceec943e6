# SPDX-License-Identifier: Apache-2.0
"""The objects of a Python worker, which Spark's garbage collection walks after every task."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["with_old_objects_kept"]

P = ParamSpec("P")
T = TypeVar("T")


def with_old_objects_kept(task: Callable[P, T]) -> Callable[P, T]:
    """Wrap what a task does, so that its worker spends no time on objects that stay anyway.

    Called on the driver; the wrapper runs in workers. A worker that is used again collects garbage after each task
    (``pyspark.daemon``, 4.x). With NumPy, Arrow and PySpark imported that takes 29 ms, more than some tasks do. So the
    first task in a worker sets aside what is there, once, and later collections look at what is younger.
    """

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
        return task(*args, **kwargs)

    return run
