# SPDX-License-Identifier: Apache-2.0
"""A data source that hands over ready Arrow batches: what PySpark's transport costs for the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pyspark_commitlog.source import CommitLogDataSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def register_ready_batches(spark: SparkSession, name: str, options: Mapping[str, str], folder: Path) -> None:
    """Register a source of that name which has the batches of a read with these options, as files in a folder.

    A file is mapped by its task and not decoded, so its rows cost Python little more than writing them to the JVM.
    """
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
