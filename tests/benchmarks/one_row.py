# SPDX-License-Identifier: Apache-2.0
"""Python sources of one row: what Spark takes for any read by such a source, of which none can take less."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pyspark_commitlog.schema import dataframe_schema
from store_core.format.columns import DEFAULT_COLUMNS, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType


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


class OneWideRow(DataSource):
    """The source with the columns of a message, which Spark plans and compiles for, and reads from Arrow."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "one_wide_row"

    def schema(self) -> StructType:
        """Return the columns."""
        return dataframe_schema(DEFAULT_COLUMNS, nullable=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader."""
        del schema
        return _WideReader()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        yield pa.RecordBatch.from_pydict({"number": [1]})


class _WideReader(_Reader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        schema = arrow_schema(DEFAULT_COLUMNS, nullable=True)
        yield pa.RecordBatch.from_pylist([{}], schema=schema)
