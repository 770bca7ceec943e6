# SPDX-License-Identifier: Apache-2.0
"""Appends rows of files, or messages of another store: by ``df.write`` on Spark, or by the same writer in this process.

In this process are read stores and files of Parquet, whose columns have types. What a text means is what Spark's
readers say, so JSON and CSV are left to them, as are a pattern of paths, a directory of directories, an option of a
reader, and a column of another type than messages have.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_commitlog.java import is_spark_running
from pyspark_commitlog.options import SESSION_ZONE, CommitLogOptions, GivenOptions
from pyspark_commitlog.stored_messages import check_asked_for
from pyspark_commitlog.write.options import WriteOptions
from pyspark_commitlog.write.row_encoder import STORE_TIMESTAMP, check_columns
from pyspark_commitlog.write.writer import CommitLogWriter, check_place, new_job, reported
from store_core.answers.replayed_rows import copied_batch, undelivered
from store_core.errors import InvalidOptionError, StoreError, StoreNotFoundError
from store_core.files.access import WAY_ON
from store_core.files.machine import SystemClock
from store_core.files.store_path import without_scheme
from store_core.snapshot.log import Log
from store_core.store.read.read_messages import read_messages
from store_core.store.sink.staged_batch import owner_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


SourceFormat: TypeAlias = Literal["parquet", "json", "csv", "store"]

_STORED: Final = "_ms"
"""How the names of columns with times as stored end: any number may be one."""

_REPLAYED: Final = ("body", "flag", "sys_flag", "born_timestamp_ms", "born_host", "properties")
"""Columns that a message keeps in another topic: it has not been delivered there, and has no queue yet."""

_COPIED: Final = (*_REPLAYED, "topic", "queue_id", "store_host", "reconsume_times")
"""Columns that it keeps in the same topic."""

_SAME: Final = (
    "topic",
    "queue_id",
    "body",
    "flag",
    "sys_flag",
    "born_timestamp_ms",
    "born_host",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "properties_string",
    f"{STORE_TIMESTAMP}{_STORED}",
)
"""Columns from which the same record can be made again."""

_PLAIN: Final = {
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
}
_NOT_LOCAL: Final = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*:/")
_PATTERN: Final = re.compile(r"[*?\[{,\\]")
"""Characters that make a path a pattern for Hadoop's file systems, or several paths."""


@dataclass(frozen=True, slots=True)
class AppendSource:
    """Rows to append."""

    format: SourceFormat  # ``parquet``, ``json`` (one object per line), ``csv`` (with a header) or ``store``
    path: str
    read_options: Mapping[str, str]  # for the reader of the format
    to_topic: str | None = None  # from a store: append them as new messages of this topic
    keeps_store_timestamp: bool = False
    """From a store: whether messages keep their store times, and so are the same records."""
    is_base64: bool = False  # from JSON and CSV: whether bodies are in base64

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of messages that go to the same topics, as they are or as new ones, or to another."""
        if self.to_topic is not None:
            return _REPLAYED + (f"{STORE_TIMESTAMP}{_STORED}",) * self.keeps_store_timestamp
        return _SAME if self.keeps_store_timestamp else _COPIED

    @property
    def input_names(self) -> list[str]:
        """The names under which these columns are written."""
        return [name.removesuffix(_STORED) for name in self.columns]

    def check(self) -> None:
        """Refuse a source that can't be read, before the seconds that starting Spark takes."""
        if self.format != "store":
            check_source(f"--{self.format}", self.path)
            return
        asked = CommitLogOptions.from_spark({**self.read_options, "path": self.path})
        for store in asked.read.stores_of(asked.paths):
            Log.for_reading(store.paths)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows with the columns and types of messages; those of Parquet files as they are."""
        if self.format == "store":
            return self._of_store(spark)
        from pyspark_commitlog.write.typed_rows import WRONG_LINE, typed_rows  # noqa: PLC0415 -- as in `_with_lists`

        quotes = {"header": "true", "escape": '"'}
        reader = spark.read.options(**(quotes if self.format == "csv" else {})).options(**self.read_options)
        if self.format == "parquet":
            return reader.parquet(self.path)
        if self.format == "json":
            texts = reader.option("primitivesAsString", "true").option("mode", "PERMISSIVE")
            lines = texts.option("columnNameOfCorruptRecord", WRONG_LINE).json(self.path)
            return typed_rows(_with_lists(lines), self.path, is_base64=self.is_base64)
        return typed_rows(reader.option("mode", "FAILFAST").csv(self.path), self.path, is_base64=self.is_base64)

    def _of_store(self, spark: SparkSession) -> DataFrame:
        from pyspark_commitlog.replay import copied, undelivered  # noqa: PLC0415 -- as in `_with_lists`

        given = {**zone_of(spark, self.read_options), **self.read_options}
        check_asked_for(self.path, given)
        frame = spark.read.format("commitlog").options(**given, columns=",".join(self.columns)).load(self.path)
        frame = frame.toDF(*self.input_names)
        if self.to_topic is not None:
            return undelivered(frame)
        return frame if self.keeps_store_timestamp else copied(frame)


def append(given: Mapping[str, str], source: AppendSource, *, on_spark: bool) -> dict[str, Any]:
    """Append the rows of a source with options of ``df.write``, ``path`` among them; return the report."""
    writes = WriteOptions.from_spark(given)
    source.check()
    check_place(writes)  # before rows are opened, and before the seconds that starting Spark takes
    if on_spark:
        return reported(partial(_append_by_spark, source), given)
    return reported(lambda options: append_here(LocalRows.of(source), WriteOptions.from_spark(options)), given)


def _append_by_spark(source: AppendSource, given: Mapping[str, str]) -> None:
    from pyspark_commitlog.answers import job_session  # noqa: PLC0415 -- PySpark need not be installed
    from pyspark_commitlog.progress import spark_progress  # noqa: PLC0415 -- as above

    with job_session(f"append to {given['path']}") as spark, spark_progress(spark):
        source.frame(spark).write.format("commitlog").mode("append").options(**given).save()


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows to append, read in this process: those that Spark's own readers would return."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    """Read as they are taken. In log order from a store, else in the order of the files' names."""

    @classmethod
    def of(cls, source: AppendSource) -> Self:
        """Return the rows of a source."""
        if source.format == "store":
            return cls._of_store(source)
        rows = None if source.read_options or source.format != "parquet" else cls._of_parquet(source.path)
        if rows is None:
            raise InvalidOptionError(
                f"{source.path}: these rows need a reader of Spark: give --spark as well, or the rows as Parquet"
            )
        return rows

    @classmethod
    def _of_store(cls, source: AppendSource) -> Self:
        given = GivenOptions.of({**source.read_options, "path": source.path})
        check_asked_for(source.path, source.read_options)
        options: dict[str, Any] = {**given.texts, "columns": source.columns}
        reader = read_messages(given.paths, **options)
        names = source.input_names
        batches = (batch.rename_columns(names) for batch in reader)
        schema = reader.schema.empty_table().rename_columns(names).schema
        if source.to_topic is not None:
            return cls(schema, map(undelivered, batches))
        return cls(schema, batches if source.keeps_store_timestamp else map(copied_batch, batches))

    @classmethod
    def _of_parquet(cls, given: str) -> Self | None:
        files = () if _NOT_LOCAL.match(given) else _files(Path(without_scheme(given)))
        if not files:
            return None
        try:
            schemas = [_schema(file) for file in files]
        except (pa.ArrowException, OSError):
            return None  # Spark says what is wrong with it
        if any(schema != schemas[0] for schema in schemas) or not all(map(_is_of_messages, schemas[0].types)):
            return None
        return cls(schemas[0], _parquet_batches(files))


def append_here(rows: LocalRows, options: WriteOptions) -> None:
    """Append rows to a place that has been checked, as ``df.write`` does whose DataFrame has one partition."""
    check_columns(rows.schema, options)
    job = new_job(options, owner_text(SystemClock()))
    writer = CommitLogWriter(job)
    try:
        job.claim()
        writer.commit([job.stage(rows.batches)])
    except BaseException:
        writer.abort([])
        raise


def check_source(option: str, path: str) -> None:
    """Refuse a source for Spark's own readers that does not exist, if it appears to be on this machine."""
    if _NOT_LOCAL.match(path) or _PATTERN.search(path) or "HADOOP_CONF_DIR" in os.environ or is_spark_running():
        return
    local = Path(without_scheme(path)).absolute()
    if not local.exists():
        raise StoreNotFoundError(
            f"{option}: no such path: {path!r}. Give the file, or the directory of files, with the rows"
        )
    if not os.access(local, os.R_OK):
        raise StoreError(f"{option}: {local} can't be read: permission denied. {WAY_ON}")


def _with_lists(lines: DataFrame) -> DataFrame:
    """Return lines of JSON in which a key is a list of keys, where it is text in some lines and a list in others.

    Spark's reader then makes text of all, of a list its JSON.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 -- options are read without Spark, too
    from pyspark.sql.types import StringType  # noqa: PLC0415 -- as above

    if "keys" not in lines.columns or not isinstance(lines.schema["keys"].dataType, StringType):
        return lines
    keys = F.col("keys")
    listed = F.when(keys.startswith("["), F.from_json(keys, "array<string>"))
    return lines.withColumn("keys", F.coalesce(listed, F.when(keys.isNotNull(), F.array(keys))))


def zone_of(spark: SparkSession, options: Mapping[str, str]) -> dict[str, str]:
    """Return the session's time zone as an option if options have times: here it is known even if it is not set."""
    zone = spark.conf.get(SESSION_ZONE)
    has_times = any(name.lower() in ("startingtimestamp", "endingtimestamp") for name in options)
    return {"timeZone": zone} if has_times and zone is not None else {}


def _files(path: Path) -> Sequence[Path]:
    """Return the files of rows; none if Spark would look for partitions or a pattern."""
    if path.is_file():
        return (path,)
    if not path.is_dir():
        return ()
    entries = [entry for entry in path.iterdir() if not entry.name.startswith((".", "_"))]  # Spark skips these
    return sorted(entries) if all(entry.is_file() for entry in entries) else ()


def _opened(file: Path) -> pq.ParquetFile:
    """Open a file whose times may have 96 bits, as Spark writes them: microseconds are what it reads of them."""
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us")


def _schema(file: Path) -> pa.Schema:
    """Return the columns of a file; times of 96 bits have no zone there, and are in UTC."""
    with _opened(file) as rows:
        wide = {column.path for column in rows.schema if column.physical_type == "INT96"}
        utc = pa.timestamp("us", "UTC")
        return pa.schema([each.with_type(utc) if each.name in wide else each for each in rows.schema_arrow])


def _is_of_messages(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return bool(pa.types.is_string(kind.value_type))
    if pa.types.is_map(kind):
        return bool(pa.types.is_string(kind.key_type) and pa.types.is_string(kind.item_type))
    is_time = pa.types.is_timestamp(kind) and kind.unit in ("ms", "us")
    return is_time or kind in _PLAIN


def _parquet_batches(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for file in files:
        try:
            with _opened(file) as rows:
                yield from rows.iter_batches()
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{file}: its rows can't be read: {error}. Nothing was appended") from error
