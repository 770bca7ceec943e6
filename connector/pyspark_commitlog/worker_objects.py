# SPDX-License-Identifier: Apache-2.0
"""Keeps long-lived objects of a Python worker out of the garbage collection after every task."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["with_old_objects_kept"]

P = ParamSpec("P")
T = TypeVar("T")


def with_old_objects_kept(task: Callable[P, T]) -> Callable[P, T]:
    """Wrap a task's function, so that the worker spends no time on collecting objects that stay anyway.

    Called on the driver; the wrapper runs in workers. A worker that is reused collects garbage after each task
    (``pyspark.daemon``, 4.x). With NumPy, Arrow and PySpark imported that takes 29 ms, longer than some tasks. So the
    first task in a worker freezes the existing objects, once, and later collections look only at newer ones.
    """

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
        return task(*args, **kwargs)

    return run
