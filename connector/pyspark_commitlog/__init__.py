# SPDX-License-Identifier: Apache-2.0
"""``spark.read.format("commitlog")``: Apache RocketMQ's message store as DataFrames, with no broker.

Spark imports every top-level module called ``pyspark_*`` and takes the data source it exposes as ``DefaultSource``, so
nothing has to be registered. One such module that fails to import disables the discovery of all of them, and all are
imported again for every session: so this one imports nothing until it is asked for the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark_commitlog.source import CommitLogDataSource
    from pyspark_commitlog.source import CommitLogDataSource as DefaultSource

__all__ = ["MINIMUM_PYSPARK", "CommitLogDataSource", "DefaultSource"]

MINIMUM_PYSPARK: Final = "4.1"
"""The oldest PySpark that the tests are run with."""


def __getattr__(name: str) -> type[CommitLogDataSource]:
    """Import the data source when it is first asked for, under its own name or the one that Spark looks for.

    Raises
    ------
    AttributeError
        If there is no such name, or, for ``DefaultSource`` only, if the source can't be imported: Spark takes that for
        a module without a data source, and goes on.
    ImportError
        If PySpark is missing or too old.
    """
    if name not in ("CommitLogDataSource", "DefaultSource"):
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    try:
        from pyspark_commitlog.source import CommitLogDataSource  # noqa: PLC0415 -- see the module's docstring
    except ImportError as error:
        message = f"pyspark_commitlog needs PySpark {MINIMUM_PYSPARK} or later: {error}"
        raise (AttributeError if name == "DefaultSource" else ImportError)(message) from error
    return CommitLogDataSource
