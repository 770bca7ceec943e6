# SPDX-License-Identifier: Apache-2.0
"""Rows to append, read in this process: those that Spark's own readers would return.

Stores and files of Parquet, whose columns have types. What a text means is what Spark's readers say, so JSON and CSV
are left to them, as are a pattern of paths, a directory of directories, an option of a reader, and a column of another
type than messages have.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_commitlog.jobs.asked_for import LocalMessages, check_asked_for
from pyspark_commitlog.jobs.copied_columns import copied_columns, input_names
from pyspark_commitlog.options import CommitLogOptions, GivenOptions
from store_core.answers.life.replay_rows import copied_batch, undelivered
from store_core.errors import StoreError
from store_core.files.remote.storage import parse_url
from store_core.files.remote.storage_settings import NO_SETTINGS
from store_core.snapshot.log import Log
from store_core.store.read.read_messages import read_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from pyspark_commitlog.jobs.append_source import AppendSource

__all__ = ["LocalRows", "is_small"]

_SMALL: Final = {"store": 1 << 30, "parquet": 256 << 20}
"""Most bytes that are read without Spark by default: in a process, these take no longer than Spark takes to start."""

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
_HIDDEN: Final = (".", "_")
"""What names of files begin with that Spark does not read."""


def is_small(source: AppendSource) -> bool:
    """Return whether the rows of a source are appended sooner than Spark is started."""
    if source.format not in _SMALL:
        return False
    if source.format == "parquet":
        return sum(file.stat().st_size for file in _files(Path(source.path))) <= _SMALL["parquet"]
    read = CommitLogOptions.from_spark({**source.read_options, "path": source.path})
    if read.times is not None or any(parse_url(path, NO_SETTINGS) for path in read.paths):
        return False  # only a session has a time zone
    listing = Log.of(read.read.configured(read.paths), reads_entries=True, storage=NO_SETTINGS)
    return sum(segment.size for segment in listing.segments) <= _SMALL["store"]


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows to append.

    Attributes
    ----------
    schema : pyarrow.Schema
    batches : iterator of pyarrow.RecordBatch
        Read as they are taken. In log order from a store, else in the order of the files' names.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    @classmethod
    def of(cls, source: AppendSource) -> Self | None:
        """Return the rows of a source; None if only Spark can say what they are.

        Raises
        ------
        StoreError
            If the other store can't be read, or has no such topic, queue or key.
        """
        if source.format == "store":
            return cls._of_store(source)
        if source.read_options or source.format != "parquet":
            return None
        return cls._of_parquet(source.path)

    @classmethod
    def _of_store(cls, source: AppendSource) -> Self:
        columns = copied_columns(source.to_topic, keeps_store_timestamp=source.keeps_store_timestamp)
        given = GivenOptions.of({**source.read_options, "path": source.path})
        check_asked_for(LocalMessages(source.path), source.path, source.read_options)
        options: dict[str, Any] = {**given.texts, "columns": columns}
        reader = read_messages(given.paths, **options)
        names = input_names(columns)
        batches = (batch.rename_columns(names) for batch in reader)
        schema = reader.schema.empty_table().rename_columns(names).schema
        if source.to_topic is not None:
            return cls(schema, map(undelivered, batches))
        return cls(schema, batches if source.keeps_store_timestamp else map(copied_batch, batches))

    @classmethod
    def _of_parquet(cls, given: str) -> Self | None:
        files = _files(Path(given))
        if not files:
            return None
        try:
            schemas = [_schema(file) for file in files]
        except (pa.ArrowException, OSError):
            return None  # Spark says what is wrong with it
        if any(schema != schemas[0] for schema in schemas) or not all(map(_is_of_messages, schemas[0].types)):
            return None
        return cls(schemas[0], _parquet_batches(files))


def _files(path: Path) -> Sequence[Path]:
    """Return the files of rows; none if Spark would look for partitions or a pattern."""
    if path.is_file():
        return (path,)
    if not path.is_dir():
        return ()
    entries = [entry for entry in path.iterdir() if not entry.name.startswith(_HIDDEN)]
    return sorted(entries) if all(entry.is_file() for entry in entries) else ()


def _opened(file: Path) -> pq.ParquetFile:
    """Open a file whose times may have 96 bits, as Spark writes them: microseconds are what it reads of them."""
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us")


def _schema(file: Path) -> pa.Schema:
    with _opened(file) as rows:
        return rows.schema_arrow


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
