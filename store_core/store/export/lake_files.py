# SPDX-License-Identifier: Apache-2.0
"""Parquet files of messages, by topic and day, staged under names of their own; and the totals that prove them."""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store_core.files.file_system import FileStream, FileSystem, OpenFile
from store_core.format.columns import DEFAULT_COLUMNS, TIMESTAMP_TYPE, arrow_schema, iso_day, utc_days

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import numpy.typing as npt


LAKE_SCHEMA: Final = arrow_schema([name for name in DEFAULT_COLUMNS if name != "topic"])
"""Columns of a file; the topic is in the name of its directory, as is the day."""

NO_DAY: Final = np.iinfo(np.int64).min
"""The day of messages whose store time is null, because no table holds it."""

NO_DAY_NAME: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark and Arrow call the partition of a null."""

_EPOCH: Final = pa.scalar(0, TIMESTAMP_TYPE)
_MOST_OPEN: Final = 64
"""Partitions that are written at once; the one that was written to longest ago is closed for another one."""

_GROUP_BYTES: Final = 64 << 20
_MOST_BYTES: Final = 256 << 20
"""Of rows that wait for a row group, in one partition and in all of them."""

_NOT_PLAIN: Final = re.compile(rb"[^A-Za-z0-9_.-]")
_ESCAPED: Final = re.compile(rb"%([0-9A-F]{2})")
_LONGEST_NAME: Final = 255
"""Bytes of a file name on usual file systems."""

_DIGITS: Final = 16
"""Of the SHA-256 of a name that is cut."""

_CUT_ESCAPE: Final = re.compile(r"%[0-9A-F]?$")
_TOPIC_KEY: Final = "commitlog.topic"
"""Of the metadata of a file whose directory does not say the topic."""

_WORD: Final = 1 << 64


class LakeFile(NamedTuple):
    """A file that was staged.

    * `messages`, `size`: Rows, and bytes of the file.
    """

    path: str  # where it belongs, below the target
    staged: str  # its name among the staged files
    messages: int
    size: int
    topic: str | None = None  # the topic, if the name of its directory is a shortened one; else the directory says it

    @property
    def partition(self) -> tuple[str, str]:
        """Topic and day.

        >>> LakeFile("topic=%25RETRY%25billing/day=2023-11-14/1-2-3.parquet", "0", 1, 1).partition
        ('%RETRY%billing', '2023-11-14')
        """
        topic, day, _ = self.path.split("/")
        escaped = topic.removeprefix("topic=")
        return _unescaped(escaped) if self.topic is None else self.topic, day.removeprefix("day=")

    def as_json(self) -> dict[str, Any]:
        """Return the file's values; the topic is there only if it has one."""
        return {name: value for name, value in self._asdict().items() if value is not None}


@dataclass(frozen=True, slots=True)
class SegmentTotals:
    """Totals of the messages of a segment, in any order: equal on two sides if both have the same messages.

    * `messages`, `bytes`: Messages, and bytes of their records.
    """

    segment: int  # physical offset at which the segment begins
    messages: int = 0
    bytes: int = 0
    crc_total: int = 0  # sum of the checksums of the bodies
    place_total: int = 0
    """Sum of ``(checksum + 1) * physical offset``, modulo 2**64: another message in the same place changes it, as does
    one that is there twice in the place of another."""

    def __add__(self, other: SegmentTotals) -> SegmentTotals:
        return SegmentTotals(
            self.segment,
            self.messages + other.messages,
            self.bytes + other.bytes,
            (self.crc_total + other.crc_total) % _WORD,
            (self.place_total + other.place_total) % _WORD,
        )

    @classmethod
    def of(
        cls,
        segment: int,
        places: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        crcs: npt.NDArray[np.int64],
    ) -> Self:
        """Return the totals of messages.

        * `places`, `sizes`, `crcs`: int64, shape (n,): physical offset, record size and body checksum of each message.
        """
        checks = crcs.astype(np.uint64)
        mixed = (checks + np.uint64(1)) * places.astype(np.uint64)
        return cls(segment, places.size, int(sizes.sum()), int(checks.sum()), int(mixed.sum(dtype=np.uint64)))

    def as_json(self) -> dict[str, int]:
        """Return the totals by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, int]) -> Self:
        """Return what `as_json` made.

        Raises `TypeError`: If it is something else.
        """
        if not all(isinstance(value, int) for value in found.values()):
            raise TypeError("expected integers")
        return cls(**found)


def totals_by_segment(parts: Iterable[SegmentTotals]) -> dict[int, SegmentTotals]:
    """Add up totals of each segment, in the order of the log."""
    found: dict[int, SegmentTotals] = {}
    for each in parts:
        found[each.segment] = found[each.segment] + each if each.segment in found else each
    return dict(sorted(found.items()))


def partition_directory(topic: str, day: int) -> str:
    """Return the directory of a partition, as Hive, Spark and Arrow name it.

    A topic whose name is too long for a directory, as those of retries can be, is cut there, and followed by ``~`` and
    the first digits of its SHA-256. No other topic has that directory: a ``~`` of a name is ``%7E``. The whole name is
    with each of its files, in the ledger and in the file's metadata.

    * `day`: Since 1970, in UTC; or `NO_DAY`.

    >>> partition_directory("%RETRY%billing", 19675)
    'topic=%25RETRY%25billing/day=2023-11-14'
    """
    name = f"topic={_escaped(topic)}"
    if _is_too_long(topic):
        digest = hashlib.sha256(topic.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
        name = f"{_CUT_ESCAPE.sub('', name[: _LONGEST_NAME - _DIGITS - 1])}~{digest}"
    return f"{name}/day={NO_DAY_NAME if day == NO_DAY else _escaped(iso_day(day))}"


def _is_too_long(topic: str) -> bool:
    return len(f"topic={_escaped(topic)}") > _LONGEST_NAME


def _escaped(text: str) -> str:
    """Return text as it is in the name of a partition: other bytes than those of plain names as ``%XX``."""
    return _NOT_PLAIN.sub(lambda found: f"%{found[0][0]:02X}".encode(), text.encode()).decode()


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), text.encode()).decode()


class PartitionWriters:
    """Writes the messages of a part of the log, a file or more for each topic and day.

    * `directory`: Where files are staged; it exists.
    * `stem`: How the names of the files begin, below their partitions.
    """

    def __init__(self, directory: Path, stem: str, file_system: FileSystem) -> None:
        self._directory = directory
        self._stem = stem
        self._file_system = file_system
        self._open: dict[str, _Partition] = {}
        self._files: list[LakeFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Write messages, which have the default columns."""
        for topic, directory, rows in _by_partition(batch):
            partition = self._open.pop(directory, None) or self._opened(topic, directory)
            self._open[directory] = partition  # the one written to last is the last one
            partition.add(rows)
        if sum(each.waiting for each in self._open.values()) > _MOST_BYTES:
            for each in self._open.values():
                each.flush()

    def finish(self) -> tuple[LakeFile, ...]:
        """Sync all files; return them."""
        for directory in list(self._open):
            self._close(directory)
        return tuple(self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Give up the files that are not finished."""
        for each in self._open.values():
            each.give_up()

    def _opened(self, topic: str, directory: str) -> _Partition:
        if len(self._open) >= _MOST_OPEN:
            self._close(next(iter(self._open)))
        staged = f"{uuid.uuid4().hex}.parquet"
        number = len(self._files) + len(self._open)
        path = f"{directory}/{self._stem}-{number:06d}.parquet"
        file = self._file_system.open(self._directory / staged, create=True)
        return _Partition(path, staged, file, topic if _is_too_long(topic) else None)

    def _close(self, directory: str) -> None:
        self._files.append(self._open[directory].close())
        del self._open[directory]


def _by_partition(batch: pa.RecordBatch) -> list[tuple[str, str, pa.RecordBatch]]:
    """Return topic, directory and rows of each topic and day, in log order, copied: nothing else is kept in memory."""
    topics = batch.column("topic").dictionary_encode()
    times = batch.column("store_timestamp")
    days = np.where(times.is_null().to_numpy(zero_copy_only=False), NO_DAY, utc_days(times.fill_null(_EPOCH)))
    known, day = np.unique(days, return_inverse=True)
    codes = topics.indices.to_numpy().astype(np.int64) * known.size + day
    found, code = np.unique(codes, return_inverse=True)
    rows = batch.select(LAKE_SCHEMA.names).cast(LAKE_SCHEMA)
    names = topics.dictionary.to_pylist()
    parts = []
    for number, each in enumerate(found.tolist()):
        topic = names[each // known.size]
        directory = partition_directory(topic, int(known[each % known.size]))
        parts.append((topic, directory, rows.take(pa.array(np.flatnonzero(code == number)))))
    return parts


class _Partition:
    """A file that is being written."""

    def __init__(self, path: str, staged: str, file: OpenFile, topic: str | None) -> None:
        self._path = path
        self._staged = staged
        self._file = file
        self._topic = topic
        self._sink = FileStream(file)
        self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, "w"), LAKE_SCHEMA, compression="zstd")
        if topic is not None:
            self._writer.add_key_value_metadata({_TOPIC_KEY: topic})
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
        return LakeFile(self._path, self._staged, self._messages, self._sink.position, self._topic)
