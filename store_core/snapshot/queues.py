# SPDX-License-Identifier: Apache-2.0
"""The consume queues of a store, in files or in a RocksDB, of which only the units that are asked for are read."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.remote.url_path import remote_file_of
from store_core.format.layout import BATCH_CONSUME_QUEUE_UNIT, MIN_RECORD_SIZE, unit_dtype
from store_core.queue.dispatch.lmq_units import LMQ_PREFIX
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, parse_queue_id, refusal_of
from store_core.queue.units.consume_queue_unit import UNIT_DTYPE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.file_system import OpenFile
    from store_core.queue.rocksdb.rocksdb_queues import RocksdbQueues, StoredUnits

__all__ = [
    "DatabaseQueue",
    "FileQueue",
    "QueueDoubtError",
    "QueueName",
    "StoredQueue",
    "UnitRange",
    "Units",
    "database_names",
    "file_queues",
]

QueueName: TypeAlias = tuple[str, int]
"""A topic and a queue id."""

_FILES: Final = OsFileSystem()
_BATCH_DTYPE: Final = unit_dtype(BATCH_CONSUME_QUEUE_UNIT)
_DTYPES: Final = {CONSUME_QUEUE: UNIT_DTYPE, BATCH_CONSUME_QUEUE: _BATCH_DTYPE}
_NAME_LENGTH: Final = 20
_FILLER_SIZE: Final = 2**31 - 1
"""Size in the units that only fill a queue's first file (RocketMQ: ``ConsumeQueue.fillPreBlank``)."""

_LAST_START: Final = 2**63 - 2**32
"""Positions above it, which no log reaches, could overflow when a size is added."""

_BLOCK: Final = 64 << 10
"""Bytes of a file on another machine that are read at once, for the units near one that is asked for."""


class QueueDoubtError(Exception):
    """Units of a queue can't be right, so that the queue is not used."""


class UnitRange(NamedTuple):
    """Places of units in a queue: their numbers, from the queue's first unit on; the end is exclusive."""

    begin: int
    end: int


class Units(NamedTuple):
    """Units in the order of the queue and of the log.

    Attributes
    ----------
    starts, sizes : numpy.ndarray
        int64, shape (n,): physical offsets of the records, ascending, and their bytes.
    offsets : numpy.ndarray
        int64, shape (n,): queue offset of each record, or of the first message in it.
    """

    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]


class StoredQueue(Protocol):
    """A queue of which single units can be read; errors are those of the system, and of a damaged RocksDB."""

    @property
    def name(self) -> QueueName:
        """Topic and queue id."""

    @property
    def files(self) -> int:
        """Number of files that it is in."""

    def range(self, position: int, begin: int, end: int) -> UnitRange:
        """Return the units of records at or after a physical offset, and of a range of queue offsets."""

    def units(self, wanted: UnitRange) -> Units:
        """Read units.

        Raises
        ------
        QueueDoubtError
            If one of them is no unit, or does not follow the one before it.
        """

    def last(self) -> Units:
        """Return the last unit; none if there is none."""

    def unit_at(self, queue_offset: int) -> tuple[int, int] | None:
        """Return position and size in the unit of a queue offset; None if the queue has no such unit."""


def file_queues(root: Path) -> Iterator[FileQueue]:
    """Yield the queues that are files, by name.

    Light message queues are left out: their units stand for records that other queues have, too.
    """
    for kind in _DTYPES:
        for topic in names_in(root / kind, _FILES):
            if topic.startswith(LMQ_PREFIX):
                continue
            for text in names_in(root / kind / topic, _FILES):
                queue_id = parse_queue_id(text)
                if queue_id is not None and str(queue_id) == text and refusal_of(topic, queue_id) is None:
                    yield FileQueue(root, topic, queue_id, kind)


def database_names(stored: RocksdbQueues) -> list[QueueName]:
    """Return the names of the queues in a RocksDB, without those of light message queues."""
    return [name for name in stored.names if not name[0].startswith(LMQ_PREFIX) and refusal_of(*name) is None]


class FileQueue:
    """A queue in files, which are opened when a unit of theirs is asked for.

    Parameters
    ----------
    root : Path
        The store's root.
    topic : str
    queue_id : int
    kind : str
        ``consumequeue`` or ``batchconsumequeue``.
    """

    def __init__(self, root: Path, topic: str, queue_id: int, kind: str = CONSUME_QUEUE) -> None:
        self.name: QueueName = topic, queue_id
        self._dtype = _DTYPES[kind]
        self._directory = root / kind / topic / str(queue_id)

    @cached_property
    def _opened(self) -> list[_UnitFile]:
        """The files, in order; they are opened when they are read."""
        names = sorted(name for name in names_in(self._directory, _FILES) if _is_queue_file(name))
        return [_UnitFile(self._directory / name, int(name), self._dtype) for name in names]

    @property
    def files(self) -> int:
        """Number of files that it is in."""
        return len(self._opened)

    def range(self, position: int, begin: int, end: int) -> UnitRange:
        """Return the units of records at or after a physical offset, and of a range of queue offsets."""
        files = self._opened
        if not files:
            return UnitRange(0, 0)
        whole = range(files[0].first, self._end)
        if self._dtype == _BATCH_DTYPE:
            first, stop = (bisect_left(whole, offset, key=self._batch_offset) for offset in (begin, end))
        else:
            first, stop = (min(max(offset - whole.start, 0), len(whole)) for offset in (begin, end))
        if position and first < stop:
            first = bisect_left(whole, position, first, stop, key=lambda number: self._place(number)[0])
        return UnitRange(whole.start + first, whole.start + stop)

    def units(self, wanted: UnitRange) -> Units:
        """Read units; see `StoredQueue`."""
        pieces = [np.empty(0, self._dtype)]
        reached = wanted.begin
        for file in self._opened:
            stop = min(wanted.end, file.first + file.count)
            if file.first <= reached < stop:
                pieces.append(file.read(reached - file.first, stop - file.first))
                reached = stop
        if reached < wanted.end:
            raise QueueDoubtError(f"{self._directory} has no unit {reached}")
        units = np.concatenate(pieces)
        if self._dtype == _BATCH_DTYPE:
            return _checked(units, units["msg_base_offset"].astype(np.int64), units["batch_size"].astype(np.int64))
        offsets = np.arange(wanted.begin, wanted.end, dtype=np.int64)
        is_filler = (units["store_size"] == _FILLER_SIZE) & (units["physical_offset"] == 0)
        count = len(units) if is_filler.all() else int(is_filler.argmin())
        return _checked(units[count:], offsets[count:])

    def last(self) -> Units:
        """Return the last unit; none if there is none."""
        begin = self._opened[0].first if self._opened else 0
        end = self._end
        return self.units(UnitRange(max(begin, end - 1), end))

    def unit_at(self, queue_offset: int) -> tuple[int, int] | None:
        """Return position and size in the unit of a queue offset; None if the queue has no such unit."""
        found = self.range(0, queue_offset, queue_offset + 1)
        if found.begin >= found.end:
            return None
        return self._place(found.begin)

    @cached_property
    def _end(self) -> int:
        """The number after the last unit; the last file was made in its full size, with zeros after the units."""
        for file in reversed(self._opened):
            written = bisect_left(range(file.count), 1, key=lambda number: file.place(number)[1] <= 0)
            if written or file is self._opened[0]:
                return file.first + written
        return 0

    def _place(self, number: int) -> tuple[int, int]:
        file = self._file_of(number)
        return file.place(number - file.first)

    def _batch_offset(self, number: int) -> int:
        file = self._file_of(number)
        return int(file.read(number - file.first, number - file.first + 1)["msg_base_offset"][0])

    def _file_of(self, number: int) -> _UnitFile:
        file = next((each for each in reversed(self._opened) if each.first <= number), None)
        if file is None or number - file.first >= file.count:
            raise QueueDoubtError(f"{self._directory} has no unit {number}")
        return file


class _UnitFile:
    """A file of units; one on another machine is read in blocks."""

    def __init__(self, path: Path, start: int, dtype: np.dtype[np.void]) -> None:
        self._path = path
        self._dtype = dtype
        self._block: tuple[int, bytes] = (0, b"")
        self.first, rest = divmod(start, dtype.itemsize)
        if rest:
            raise QueueDoubtError(f"{path}: no unit of a queue begins at byte {start}")

    @cached_property
    def _file(self) -> OpenFile:
        return _FILES.open(self._path, writable=False)

    @cached_property
    def count(self) -> int:
        """Number of units that it has room for."""
        return self._file.size() // self._dtype.itemsize

    def read(self, begin: int, end: int) -> npt.NDArray[np.void]:
        """Return units by their places in the file."""
        size = self._dtype.itemsize
        return np.frombuffer(self._bytes(begin * size, (end - begin) * size), self._dtype)

    def place(self, number: int) -> tuple[int, int]:
        """Return physical offset and size in a unit."""
        data = self._bytes(number * self._dtype.itemsize, 12)
        return int.from_bytes(data[:8], "big", signed=True), int.from_bytes(data[8:], "big", signed=True)

    def _bytes(self, begin: int, size: int) -> bytes:
        if remote_file_of(self._path) is None or size > _BLOCK:
            return self._exactly(begin, size)
        if not self._block[0] <= begin or begin + size > self._block[0] + len(self._block[1]):
            first = max(begin - _BLOCK // 2, 0)
            self._block = first, self._file.read(max(_BLOCK, begin + size - first), first)
        at = begin - self._block[0]
        found = self._block[1][at : at + size]
        return found if len(found) == size else self._exactly(begin, size)

    def _exactly(self, begin: int, size: int) -> bytes:
        found = self._file.read(size, begin)
        if len(found) < size:
            raise QueueDoubtError(f"{self._path} ends at byte {begin + len(found)}, before its unit there")
        return found


class DatabaseQueue:
    """A queue in a RocksDB.

    Parameters
    ----------
    stored : RocksdbQueues
        Open.
    name : tuple of (str, int)
    """

    files = 1

    def __init__(self, stored: RocksdbQueues, name: QueueName) -> None:
        self._stored = stored
        self.name = name

    def range(self, position: int, begin: int, end: int) -> UnitRange:
        """Return queue offsets, which are the numbers of units here; see `StoredQueue`."""
        first = max(self._stored.start_of(*self.name, position), begin)
        return UnitRange(first, max(first, min(self._stored.end_of(*self.name), end)))

    def units(self, wanted: UnitRange) -> Units:
        """Read units; see `StoredQueue`. A unit of a batch stands for several queue offsets."""
        return self._joined(self._stored.units(*self.name, *wanted))

    def last(self) -> Units:
        """Return the last unit; none if there is none."""
        end = self._stored.end_of(*self.name)
        return self._joined(self._stored.units(*self.name, max(end - 1, 0), end))

    def unit_at(self, queue_offset: int) -> tuple[int, int] | None:
        """Return position and size in the unit of a queue offset; None if the queue has no such unit."""
        found = self._stored.unit_from(*self.name, queue_offset)
        if found is None or found.offsets[0] != queue_offset:
            return None
        return int(found.units["physical_offset"][0]), int(found.units["store_size"][0])

    @staticmethod
    def _joined(pieces: Iterator[StoredUnits]) -> Units:
        found = list(pieces)
        if not found:
            return Units(*(np.empty(0, np.int64) for _ in range(3)))
        units, offsets = [each.units for each in found], [each.offsets for each in found]
        return _checked(np.concatenate(units), np.concatenate(offsets))


def _checked(
    units: npt.NDArray[np.void], offsets: npt.NDArray[np.int64], counts: npt.NDArray[np.int64] | int = 1
) -> Units:
    """Return units if each can be one, and can follow the one before it."""
    starts, sizes = units["physical_offset"].astype(np.int64), units["store_size"].astype(np.int64)
    are_units = (sizes >= MIN_RECORD_SIZE) & (starts >= 0) & (starts <= _LAST_START) & (offsets <= _LAST_START)
    follow = (starts[1:] >= starts[:-1] + sizes[:-1]) & (offsets[1:] >= (offsets + counts)[:-1])
    if not are_units.all() or not follow.all():
        is_right = are_units & np.append(True, follow)[: len(units)]
        at = int(is_right.argmin())
        raise QueueDoubtError(f"the unit of queue offset {offsets[at]} leads to {starts[at]}, which can't be")
    return Units(starts, sizes, offsets)


def _is_queue_file(name: str) -> bool:
    return len(name) == _NAME_LENGTH and name.isascii() and name.isdigit()
