# SPDX-License-Identifier: Apache-2.0
"""Errors without tracebacks, for users, as Spark quotes a Python traceback above the message; and a PySpark too old."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pyspark_commitlog import MINIMUM_PYSPARK

if TYPE_CHECKING:
    from collections.abc import Callable


P = ParamSpec("P")
T = TypeVar("T")


def without_traceback(method: Callable[P, T], *, ends_process: bool = False) -> Callable[P, T]:
    """Drop the traceback of a method's `StoreError`, so that users see the message first, and not our frames.

    These say themselves which place they are about, and so does an error of the system about a file, as of a full disk.
    All others are bugs and keep their tracebacks.
    """

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            from store_core.command.exit_code import told_error  # noqa: PLC0415 -- see pyspark_commitlog.source

            told = told_error(error)
            if told is None:
                raise
            if ends_process:
                sys.tracebacklimit = 0
            raise told.with_traceback(None) from None

    return called


def without_traceback_at_the_end(method: Callable[P, T]) -> Callable[P, T]:
    """Drop the traceback of a `StoreError` with which a process ends, in which Spark runs one streaming query.

    Spark quotes all of it, with PySpark's own frames, so the exception's alone would not be enough.
    """
    return without_traceback(method, ends_process=True)


def require_pyspark() -> None:
    """Refuse a PySpark that lacks what a Python data source needs."""
    import pyspark  # noqa: PLC0415 -- rows are appended without it, too

    found = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if found < tuple(int(part) for part in MINIMUM_PYSPARK.split(".")):
        from store_core.errors import StoreError  # noqa: PLC0415 -- see pyspark_commitlog.source

        raise StoreError(
            f"format 'commitlog' needs PySpark {MINIMUM_PYSPARK} or later, found {pyspark.__version__}; "
            f"pip install 'pyspark>={MINIMUM_PYSPARK}', on the workers as well"
        )
