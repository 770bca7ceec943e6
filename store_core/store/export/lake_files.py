# SPDX-License-Identifier: Apache-2.0
"""Parquet files of messages, partitioned by topic and day, staged under names of their own."""

from __future__ import annotations

import io
import re
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store_core.errors import UnsafeSizeError
from store_core.files.file_system import write_all
from store_core.format.columns import DEFAULT_COLUMNS, arrow_schema
from store_core.format.utc_day import iso_day, utc_days

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from store_core.files.file_system import FileSystem, OpenFile

__all__ = ["LAKE_SCHEMA", "LakeFile", "PartitionWriters", "partition_directory"]

LAKE_SCHEMA: Final = arrow_schema([name for name in DEFAULT_COLUMNS if name != "topic"])
"""Columns of a file; the topic is in the name of its directory, as is the day."""

_MOST_OPEN: Final = 64
"""Partitions that are written at once; the one that was written to longest ago is closed for another one."""

_GROUP_BYTES: Final = 64 << 20
_MOST_BYTES: Final = 256 << 20
"""Of rows that wait for a row group, in one partition and in all of them."""

_NOT_PLAIN: Final = re.compile(rb"[^A-Za-z0-9_.-]")
_LONGEST_NAME: Final = 255
"""Bytes of a file name on usual file systems."""


class LakeFile(NamedTuple):
    """A file that was staged.

    Attributes
    ----------
    path : str
        Where it belongs, below the target.
    staged : str
        Its name among the staged files.
    messages, size : int
        Rows, and bytes of the file.
    """

    path: str
    staged: str
    messages: int
    size: int


def partition_directory(topic: str, day: int) -> str:
    """Return the directory of a partition, as Hive, Spark and Arrow name it.

    Parameters
    ----------
    topic : str
    day : int
        Since 1970, in UTC.

    Raises
    ------
    UnsafeSizeError
        If the topic can't be the name of a directory: retry topics of RocketMQ 5 can be that long.

    Examples
    --------
    >>> partition_directory("%RETRY%billing", 19675)
    'topic=%25RETRY%25billing/day=2023-11-14'
    """
    name = f"topic={_escaped(topic)}"
    if len(name) > _LONGEST_NAME:
        raise UnsafeSizeError(
            "a topic's name is too long for a directory", name, 0, f"at most {_LONGEST_NAME} bytes", str(len(name)),
            b"", "Export the other topics by name.",
        )  # fmt: skip
    return f"{name}/day={_escaped(iso_day(day))}"


def _escaped(text: str) -> str:
    """Return text as it is in the name of a partition: other bytes than those of plain names as ``%XX``."""
    return _NOT_PLAIN.sub(lambda found: f"%{found[0][0]:02X}".encode(), text.encode()).decode()


class PartitionWriters:
    """Writes the messages of a part of the log, a file or more for each topic and day.

    Parameters
    ----------
    directory : Path
        Where files are staged; it exists.
    stem : str
        How the names of the files begin, below their partitions.
    file_system : FileSystem
    """

    def __init__(self, directory: Path, stem: str, file_system: FileSystem) -> None:
        self._directory = directory
        self._stem = stem
        self._file_system = file_system
        self._open: dict[str, _Partition] = {}
        self._files: list[LakeFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Write messages, which have the default columns."""
        for directory, rows in _by_partition(batch):
            partition = self._open.pop(directory, None) or self._opened(directory)
            self._open[directory] = partition  # the one written to last is the last one
            partition.add(rows)
        if sum(each.waiting for each in self._open.values()) > _MOST_BYTES:
            for each in self._open.values():
                each.flush()

    def finish(self) -> tuple[LakeFile, ...]:
        """Sync all files; return them.

        Raises
        ------
        OSError
            If a system call fails.
        """
        for directory in list(self._open):
            self._close(directory)
        return tuple(self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Give up the files that are not finished."""
        for each in self._open.values():
            each.give_up()

    def _opened(self, directory: str) -> _Partition:
        if len(self._open) >= _MOST_OPEN:
            self._close(next(iter(self._open)))
        staged = f"{uuid.uuid4().hex}.parquet"
        number = len(self._files) + len(self._open)
        path = f"{directory}/{self._stem}-{number:06d}.parquet"
        return _Partition(path, staged, self._file_system.open(self._directory / staged, create=True))

    def _close(self, directory: str) -> None:
        self._files.append(self._open[directory].close())
        del self._open[directory]


def _by_partition(batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    """Return the rows of each topic and day, in log order, as copies that keep nothing else in memory."""
    topics = batch.column("topic").dictionary_encode()
    days = utc_days(batch.column("store_timestamp"))
    known, day = np.unique(days, return_inverse=True)
    codes = topics.indices.to_numpy().astype(np.int64) * known.size + day
    found, code = np.unique(codes, return_inverse=True)
    rows = batch.select(LAKE_SCHEMA.names).cast(LAKE_SCHEMA)
    names = topics.dictionary.to_pylist()
    parts = []
    for number, each in enumerate(found.tolist()):
        directory = partition_directory(names[each // known.size], int(known[each % known.size]))
        parts.append((directory, rows.take(pa.array(np.flatnonzero(code == number)))))
    return parts


class _Partition:
    """A file that is being written."""

    def __init__(self, path: str, staged: str, file: OpenFile) -> None:
        self._path = path
        self._staged = staged
        self._file = file
        self._sink = _Sink(file)
        self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, "w"), LAKE_SCHEMA, compression="zstd")
        self._batches: list[pa.RecordBatch] = []
        self._messages = 0
        self.waiting = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)
        self._messages += rows.num_rows
        self.waiting += rows.nbytes
        if self.waiting >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches, LAKE_SCHEMA)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._batches, self.waiting = [], 0

    def give_up(self) -> None:
        """Close the file, without the rest of what would be in it."""
        self._sink.is_given_up = True
        self._writer.close()
        self._file.close()

    def close(self) -> LakeFile:
        self.flush()
        self._writer.close()
        self._file.sync()
        self._file.close()
        return LakeFile(self._path, self._staged, self._messages, self._sink.position)


class _Sink(io.RawIOBase):
    """A file as Arrow writes to it: one write after the other."""

    def __init__(self, file: OpenFile) -> None:
        super().__init__()
        self._file = file
        self.position = 0
        self.is_given_up = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # whatever Arrow passes is a buffer
        if not self.is_given_up:
            write_all(self._file, view, self.position)
        self.position += len(view)
        return len(view)
