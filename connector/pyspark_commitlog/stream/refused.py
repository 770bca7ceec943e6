# SPDX-License-Identifier: Apache-2.0
"""A reader that refuses a streaming query with the reason why none could be made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from pyspark_commitlog.errors import without_traceback_at_the_end

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

    from store_core.errors import StoreError

__all__ = ["RefusedStream"]


class RefusedStream(DataSourceStreamReader):
    """Refuses a query when it asks for an offset, which is the first thing that it does.

    If ``streamReader`` raised the error, PySpark 4.1 to 4.3 would add another one, about a reader that it can't stop.
    """

    def __init__(self, reason: StoreError) -> None:
        self._reason = reason

    @without_traceback_at_the_end
    def initialOffset(self) -> NoReturn:  # noqa: N802 -- Spark's name
        """Refuse a query that starts."""
        raise self._reason

    @without_traceback_at_the_end
    def latestOffset(self, start: object = None, limit: object = None) -> NoReturn:  # noqa: ARG002, N802 -- Spark's
        """Refuse a query that has a checkpoint."""
        raise self._reason

    @without_traceback_at_the_end
    def partitions(self, start: object, end: object) -> NoReturn:  # noqa: ARG002 -- Spark's names
        """Refuse a query whose last batch is repeated."""
        raise self._reason

    def read(self, partition: InputPartition) -> NoReturn:
        """Refuse as well; no query gets this far."""
        del partition
        raise self._reason
