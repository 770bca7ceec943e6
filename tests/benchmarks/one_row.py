# SPDX-License-Identifier: Apache-2.0
"""A Python source of one row: what Spark takes for any read by such a source, of which none can take less."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

__all__ = ["OneRow"]


class OneRow(DataSource):
    """The source."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "one_row"

    def schema(self) -> str:
        """Return the columns."""
        return "number bigint"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader."""
        del schema
        return _Reader()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        yield pa.RecordBatch.from_pydict({"number": [1]})
