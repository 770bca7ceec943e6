# SPDX-License-Identifier: Apache-2.0
"""``spark.read.format("commitlog")``: Apache RocketMQ's message store as DataFrames, with no broker.

Spark imports every top-level module called ``pyspark_*`` and takes the data source it exposes as ``DefaultSource``, so
nothing has to be registered. One such module that fails to import disables the discovery of all of them, and all are
imported again for every session: so this one imports nothing until a name is looked up.

Examples
--------
>>> from pyspark_commitlog import spark_session
>>> spark = spark_session()  # doctest: +SKIP
>>> spark.read.format("commitlog").load("/data/rocketmq/store").show()  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark_commitlog.session import spark_session
    from pyspark_commitlog.source import CommitLogDataSource
    from pyspark_commitlog.source import CommitLogDataSource as DefaultSource
    from store_core import __version__

__all__ = ["MINIMUM_PYSPARK", "CommitLogDataSource", "DefaultSource", "__version__", "spark_session"]

MINIMUM_PYSPARK: Final = "4.1"
"""The oldest PySpark that the tests are run with."""

_HOMES: Final = {
    "CommitLogDataSource": ("pyspark_commitlog.source", "CommitLogDataSource"),
    "DefaultSource": ("pyspark_commitlog.source", "CommitLogDataSource"),
    "__version__": ("store_core", "__version__"),
    "spark_session": ("pyspark_commitlog.session", "spark_session"),
}
"""Name here -> the module that has it, and its name there."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- whatever the name stands for
    """Import what a name stands for when it is first looked up."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, home = _HOMES[name]
    try:
        return getattr(import_module(module), home)
    except ImportError as error:
        message = (
            f"pyspark_commitlog needs PySpark {MINIMUM_PYSPARK} or later: {error}; "
            f"pip install 'pyspark>={MINIMUM_PYSPARK}'"
        )
        raise (AttributeError if name == "DefaultSource" else ImportError)(message) from error
