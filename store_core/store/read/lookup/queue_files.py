# SPDX-License-Identifier: Apache-2.0
"""The units in a store's queue files as arrays, read without opening the store and without trusting them."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.file_system import OsFileSystem, names_in
from store_core.format.layout import BATCH_CONSUME_QUEUE_UNIT, MIN_RECORD_SIZE, unit_dtype
from store_core.queue.dispatch.lmq_units import LMQ_PREFIX
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, parse_queue_id, refusal_of
from store_core.queue.units.consume_queue_unit import UNIT_DTYPE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["QueueDirectory", "UnitBlock", "queue_directories", "unit_blocks"]

_BATCH_DTYPE: Final = unit_dtype(BATCH_CONSUME_QUEUE_UNIT)
_DTYPES: Final = {CONSUME_QUEUE: UNIT_DTYPE, BATCH_CONSUME_QUEUE: _BATCH_DTYPE}
_BLOCK: Final = 1 << 14
"""Units converted at once: few enough to stay in the processor's cache."""

_NAME_LENGTH: Final = 20
_LAST_START: Final = 2**63 - 2**32
"""Positions above it, which no log reaches, could overflow when a size is added."""

_FILLER_SIZE: Final = 2**31 - 1
_DISK_BLOCK: Final = 512


@dataclass(frozen=True, slots=True)
class QueueDirectory:
    """The files of one queue.

    Attributes
    ----------
    topic : str
    queue_id : int
    kind : str
        ``consumequeue`` or ``batchconsumequeue``.
    files : tuple of (str, int)
        Path, and byte offset of the first unit in the queue, in order.
    size : int
        Bytes on disk, without holes.
    """

    topic: str
    queue_id: int
    kind: str
    files: tuple[tuple[str, int], ...]
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class UnitBlock:
    """Units that follow one another in a queue and in the log: ascending, without overlaps.

    Attributes
    ----------
    starts, ends : numpy.ndarray
        int64, shape (n,), n >= 1: physical offsets at which the records start, and one past their ends.
    first_index, last_index : int
        The lowest and the highest queue offset that the units stand for.
    batch_indexes : numpy.ndarray or None
        In batch queues, int64, shape (n,): the queue offset of the first message of each record. In the others queue
        offsets ascend by one.
    """

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    first_index: int
    last_index: int
    batch_indexes: npt.NDArray[np.int64] | None = None

    @property
    def indexes(self) -> npt.NDArray[np.int64]:
        """The queue offset of each record, or of the first message in it; int64, shape (n,)."""
        if self.batch_indexes is not None:
            return self.batch_indexes
        return np.arange(self.first_index, self.first_index + self.starts.size)

    def index_at(self, row: int) -> int:
        """Return one of `indexes`."""
        return self.first_index + row if self.batch_indexes is None else int(self.batch_indexes[row])

    def between(self, begin: int, end: int) -> UnitBlock | None:
        """Return the units of records that start in a range of the log; None if there are none."""
        if begin <= self.starts[0] and self.starts[-1] < end:
            return self
        first, stop = np.searchsorted(self.starts, (begin, end)).tolist()
        return self._rows(first, stop)

    def within(self, first: int, end: int) -> UnitBlock | None:
        """Return the units that begin in a range of queue offsets; None if there are none."""
        begin, stop = np.searchsorted(self.indexes, (first, end)).tolist()
        return self._rows(begin, stop)

    def _rows(self, first: int, stop: int) -> UnitBlock | None:
        if first >= stop:
            return None
        last = self.last_index if stop == self.starts.size else self.index_at(stop) - 1
        batches = None if self.batch_indexes is None else self.batch_indexes[first:stop]
        return UnitBlock(self.starts[first:stop], self.ends[first:stop], self.index_at(first), last, batches)


def queue_directories(root: Path) -> list[QueueDirectory]:
    """Return the queues of a store that take part in look-ups, by name.

    Light message queues are left out: their units stand for records that other queues have, too.
    """
    files = OsFileSystem()
    found = []
    for kind in _DTYPES:
        for topic in names_in(root / kind, files):
            if topic.startswith(LMQ_PREFIX):
                continue
            directory = root / kind / topic
            for name in names_in(directory, files):
                queue_id = parse_queue_id(name)
                if queue_id is not None and str(queue_id) == name and refusal_of(topic, queue_id) is None:
                    found.append(_directory(f"{directory}/{name}", topic, queue_id, kind))
    return [queue for queue in found if queue.files]


def _directory(path: str, topic: str, queue_id: int, kind: str) -> QueueDirectory:
    files, size = [], 0
    with os.scandir(path) as entries:
        for entry in entries:
            if len(entry.name) == _NAME_LENGTH and entry.name.isascii() and entry.name.isdigit():
                status = entry.stat()
                if entry.is_file() and status.st_size:
                    files.append((entry.path, int(entry.name)))
                    size += min(status.st_blocks * _DISK_BLOCK, status.st_size)
    return QueueDirectory(topic, queue_id, kind, tuple(sorted(files, key=lambda file: file[1])), size)


def unit_blocks(queue: QueueDirectory, begin: int, end: int) -> Iterator[UnitBlock]:
    """Yield a queue's units of records that start in a range of the log.

    They end, as for RocketMQ, at the first that is not a unit: one with a negative position or too small a size. They
    also end where positions do not ascend, or records overlap: what follows is not trusted.

    Raises
    ------
    OSError
        As raised by the system.
    """
    dtype = _DTYPES[queue.kind]
    place = (0, 0)
    for number, (path, offset) in enumerate(queue.files):
        units, first = _mapped(path, dtype), offset // dtype.itemsize
        if _is_before(queue.files[number + 1 :], dtype, begin):
            continue
        for at in range(_first_at(units, begin) if begin else _count_fillers(units), len(units), _BLOCK):
            part = units[at : at + _BLOCK]
            block = _trusted(part, first + at, place)
            mine = None if block is None else block.between(begin, end)
            if mine is not None:
                yield mine
            if block is None or block.starts.size < len(part) or offset % dtype.itemsize:
                return
            place = int(block.ends[-1]), block.last_index + 1
            if place[0] >= end:
                return


def _is_before(following: tuple[tuple[str, int], ...], dtype: np.dtype[np.void], begin: int) -> bool:
    """Return whether the next file begins at or before `begin`, so that a file has nothing after it."""
    if not following or not begin:
        return False
    first = _mapped(following[0][0], dtype)[:1]
    return bool(first.size and first["store_size"][0] != _FILLER_SIZE and 0 < first["physical_offset"][0] <= begin)


def _mapped(path: str, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    with open(path, "rb") as file:  # noqa: PTH123 -- one of many
        size = os.fstat(file.fileno()).st_size
        if size < dtype.itemsize:
            return np.empty(0, dtype)
        return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), dtype, size // dtype.itemsize)


def _first_at(units: npt.NDArray[np.void], begin: int) -> int:
    """Return the number of the first unit of a record at or after `begin`, in a file whose units ascend."""
    starts, sizes = units["physical_offset"], units["store_size"]
    return bisect_left(range(len(units)), begin, key=lambda at: int(starts[at]) if sizes[at] > 0 else begin)


def _count_fillers(units: npt.NDArray[np.void]) -> int:
    """Count the units before a queue's first one; they point nowhere (RocketMQ: ``ConsumeQueue.fillPreBlank``)."""
    at, count = 0, 1
    while at < len(units):
        part = units[at : at + count]
        is_filler = (part["store_size"] == _FILLER_SIZE) & (part["physical_offset"] == 0)
        if not is_filler.all():
            return at + int(is_filler.argmin())
        at, count = at + count, _BLOCK
    return len(units)


def _trusted(units: npt.NDArray[np.void], first_index: int, place: tuple[int, int]) -> UnitBlock | None:
    """Return the units up to the first that can't follow the one before it; None if that is the first.

    Parameters
    ----------
    units : numpy.ndarray
    first_index : int
        Queue offset of the first one, which the units of batch queues hold themselves.
    place : tuple of int
        Where the record before ends in the log, and the queue offset after it.
    """
    starts, sizes = units["physical_offset"].astype(np.int64), units["store_size"].astype(np.int64)
    ends = starts + sizes
    if units.dtype == UNIT_DTYPE and _follow_one_another(starts, sizes, ends, place[0]):
        return UnitBlock(starts, ends, first_index, first_index + len(units) - 1)
    is_sound = (sizes >= MIN_RECORD_SIZE) & (starts <= _LAST_START)
    is_sound[1:] &= starts[1:] >= ends[:-1]
    is_sound[0] &= starts[0] >= place[0]
    batches, counts = None, None
    if units.dtype == _BATCH_DTYPE:
        batches, counts = units["msg_base_offset"].astype(np.int64), units["batch_size"].astype(np.int64)
        is_sound &= (counts > 0) & (batches <= _LAST_START)
        is_sound[1:] &= batches[1:] >= batches[:-1] + counts[:-1]
        is_sound[0] &= batches[0] >= place[1]
    count = len(units) if is_sound.all() else int(is_sound.argmin())
    if not count:
        return None
    if batches is None or counts is None:
        return UnitBlock(starts[:count], ends[:count], first_index, first_index + count - 1)
    last = int(batches[count - 1] + counts[count - 1]) - 1
    return UnitBlock(starts[:count], ends[:count], int(batches[0]), last, batches[:count])


def _follow_one_another(
    starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], begin: int
) -> bool:
    """Return whether all units can follow one another, in fewer passes than it takes to find the first that can't."""
    return bool(
        starts[0] >= begin
        and sizes.min() >= MIN_RECORD_SIZE
        and starts.max() <= _LAST_START
        and (starts[1:] >= ends[:-1]).all()
    )
