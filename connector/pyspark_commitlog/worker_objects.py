# SPDX-License-Identifier: Apache-2.0
"""Keeps long-lived objects of a Python worker out of the garbage collection after every task and plan."""

from __future__ import annotations

import gc
from functools import cache
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["keep_old_objects", "with_old_objects_kept"]

P = ParamSpec("P")
T = TypeVar("T")


@cache
def keep_old_objects() -> None:
    """Exempt the objects that a worker has now from later collections, so that these do not take longer than a task.

    Called at the start of tasks, and of what is done beside the driver to plan; only the first call in a process does
    anything. A worker that is reused collects garbage after each task and each plan (``pyspark.daemon``, 4.x), which
    takes 16 to 29 ms with NumPy, Arrow and PySpark imported, while the next worker of the query wants the processor.
    Nothing is collected first: what imports leave is little.
    """
    gc.freeze()


def with_old_objects_kept(task: Callable[P, T]) -> Callable[P, T]:
    """Wrap a task's function, so that it calls `keep_old_objects` first. Called on the driver."""

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        keep_old_objects()
        return task(*args, **kwargs)

    return run
