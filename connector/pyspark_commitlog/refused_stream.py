# SPDX-License-Identifier: Apache-2.0
"""Refuses ``spark.readStream`` with a readable error."""

from __future__ import annotations

import sys
from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from store_core.errors import UnsupportedStoreError

__all__ = ["RefusedStream"]

_REFUSAL = (
    "format 'commitlog' does not support spark.readStream yet. Read in batches, with "
    "spark.read.format('commitlog').option('startingOffsets', N).load(path): N is the highest physical_offset + "
    "store_size of the batch before"
)


class RefusedStream(DataSourceStreamReader):
    """Refuses a streaming query when it asks for an offset, which is the first thing that it does.

    It can't be refused earlier: ``load()`` asks a Python source only for its schema, just as a batch query does. If
    ``streamReader`` raised the error, PySpark 4.1 to 4.3 would add a second one, about a reader that it can't stop.
    """

    def initialOffset(self) -> NoReturn:  # noqa: N802 -- Spark's name
        """Refuse a query that starts. Called beside the driver, in a process that belongs to this query."""
        _refuse()

    def latestOffset(self, start: object = None, limit: object = None) -> NoReturn:  # noqa: ARG002, N802 -- Spark's
        """Refuse a query that has a checkpoint, as `initialOffset` does."""
        _refuse()

    def read(self, partition: InputPartition) -> NoReturn:
        """Refuse as well; no query gets this far."""
        del partition
        _refuse()


def _refuse() -> NoReturn:
    sys.tracebacklimit = 0  # the process ends with this error, and Spark quotes all of it, with PySpark's own frames
    raise UnsupportedStoreError(_REFUSAL)
