# SPDX-License-Identifier: Apache-2.0
"""Data sources that cost Spark the least: one row, ready Arrow batches, a stream without rows.

What Spark takes for them, it takes for any source in Python with as many rows and batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from pyspark_commitlog.reader import dataframe_schema
from store_core.format.columns import DEFAULT_COLUMNS, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

# ---- one row


class OneRow(DataSource):
    """One row of one number."""

    @classmethod
    def name(cls) -> str:
        return "one_row"

    def schema(self) -> str | StructType:
        return "number bigint"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 -- Spark's signature
        return _Reader()


class OneWideRow(OneRow):
    """One row with the columns of a message, which Spark plans and compiles for, and reads from Arrow."""

    @classmethod
    def name(cls) -> str:
        return "one_wide_row"

    def schema(self) -> StructType:
        return dataframe_schema(DEFAULT_COLUMNS, nullable=True)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 -- Spark's signature
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


# ---- ready batches


def register_ready_batches(spark: SparkSession, name: str, options: Mapping[str, str], folder: Path) -> None:
    """Register a source of that name which has the batches of a read with these options, as files in a folder.

    A file is mapped by its task and not decoded, so its rows cost Python little more than writing them to the JVM.
    """
    from pyspark_commitlog.source import CommitLogDataSource  # noqa: PLC0415 -- not for the Python of one row

    source = CommitLogDataSource(dict(options))
    schema = spark.read.format("commitlog").options(**options).load().schema
    reader = source.reader(schema)
    files: list[str] = []
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(reader.partitions()):
        batches = iter(reader.read(part))
        first = next(batches)
        path = folder / f"{name}-{number}.arrow"
        with pa.ipc.new_file(path, first.schema) as file:
            file.write_batch(first)
            for batch in batches:
                file.write_batch(batch)
        files.append(str(path))
    spark.dataSource.register(_source_of_files(name, schema, files))


def _source_of_files(name: str, schema: StructType, files: list[str]) -> type[DataSource]:
    """Make the classes in functions, so that they are pickled as they are: Spark's Python can't import this module."""
    reader = _reader_of_files(files)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 -- Spark's signature
            return reader()

    return Source


def _reader_of_files(files: list[str]) -> type[DataSourceReader]:
    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(path) for path in files]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa  # noqa: PLC0415 -- pickled without this module

            with pa.memory_map(partition.value) as mapped:
                file = pa.ipc.open_file(mapped)
                for number in range(file.num_record_batches):
                    yield file.get_batch(number)

    return Reader


# ---- a stream without rows


def source_without_rows(partitions: int) -> type[DataSource]:
    """Return a source of streams whose offsets are numbers of batches; its classes are made in functions, as above."""
    reader = _reader_without_rows(partitions)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "norows"

        def schema(self) -> str:
            return "number INT"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 -- Spark's name
            return reader(int(self.options["batches"]))

    return Source


def _reader_without_rows(partitions: int) -> Callable[[int], DataSourceStreamReader]:
    from pyspark_commitlog.stream import ReadMaxRows, SupportsTriggerAvailableNow  # noqa: PLC0415 -- as above

    class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, batches: int) -> None:
            self.batches = batches

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
            return {"batch": 0}

        def getDefaultReadLimit(self) -> ReadMaxRows:  # noqa: N802 -- Spark's name
            return ReadMaxRows(1)

        def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: ARG002, N802 -- Spark's
            return {"batch": min(start["batch"] + 1, self.batches)}

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
            pass

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
            return [InputPartition(number) for number in range(partitions)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
            return iter(())

    return Reader
