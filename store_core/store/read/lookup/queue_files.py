# SPDX-License-Identifier: Apache-2.0
"""The units in a store's queue files as arrays, read without opening the store and without trusting them."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import zip_longest
from struct import Struct
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.remote.forward_bytes import READ_FIRST, ForwardBytes
from store_core.files.remote.url_path import UrlPath
from store_core.format.layout import BATCH_CONSUME_QUEUE_UNIT, unit_dtype
from store_core.format.segment_view import ALL_THERE
from store_core.queue.dispatch.lmq_units import LMQ_PREFIX
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, parse_queue_id, refusal_of
from store_core.queue.units.consume_queue_unit import UNIT_DTYPE
from store_core.store.read.lookup.file_state import FileState
from store_core.store.read.lookup.remote_costs import OPENING
from store_core.store.read.lookup.unit_block import START, UNITS_AT_ONCE, trusted_block

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.remote.remote_file import RemoteFile
    from store_core.format.segment_view import Pages
    from store_core.store.read.lookup.unit_block import Place, UnitBlock

__all__ = ["FileUnits", "QueueDirectory", "QueueFile", "queue_directories"]

_BATCH_DTYPE: Final = unit_dtype(BATCH_CONSUME_QUEUE_UNIT)
_DTYPES: Final = {CONSUME_QUEUE: UNIT_DTYPE, BATCH_CONSUME_QUEUE: _BATCH_DTYPE}
_NAME_LENGTH: Final = 20
_PLACE: Final = Struct(">qi")
"""How each unit begins: with physical offset and size."""

_FILLER_SIZE: Final = 2**31 - 1
_DISK_BLOCK: Final = 512


@dataclass(frozen=True, slots=True)
class QueueFile:
    """A file of a queue.

    Attributes
    ----------
    path : str
    offset : int
        Byte offset of its first unit in the queue.
    kind : str
        ``consumequeue`` or ``batchconsumequeue``.
    state : FileState or None
        As of when the directory was listed; None for one on another machine, of which nothing is kept.
    is_last : bool
        Whether it is the queue's last one.
    remote : RemoteFile or None
        The file on another machine.
    """

    path: str
    offset: int
    kind: str
    state: FileState | None
    is_last: bool = False
    remote: RemoteFile | None = None

    def open(self, place: Place) -> FileUnits:
        """Map the file, given where the one before ends."""
        return FileUnits(self, place)

    def starts_by(self, begin: int) -> bool:
        """Return whether it begins at or before a place of the log, so that the file before has nothing after it."""
        opened = _opened(self)
        offset, size = opened.place(0) if len(opened) else (0, 0)
        return size != _FILLER_SIZE and 0 < offset <= begin


@dataclass(frozen=True, slots=True)
class QueueDirectory:
    """The files of one queue.

    Attributes
    ----------
    topic : str
    queue_id : int
    files : tuple of QueueFile
        In order.
    size : int
        Bytes on disk, without holes. On another machine, where nothing tells how far a queue's last file is written,
        that counts as what is read first.
    """

    topic: str
    queue_id: int
    files: tuple[QueueFile, ...]
    size: int

    @property
    def requests(self) -> int:
        """How many requests to another machine it takes to read its units, and its first and its last record."""
        return (OPENING + 1) * len(self.files) + 2 if self.files[0].remote is not None else 0

    def parts(self, begin: int) -> Iterator[QueueFile]:
        """Yield its files without those all of whose records start before a place of the log."""
        for file, following in zip_longest(self.files, self.files[1:]):
            if following is None or not begin or not following.starts_by(begin):
                yield file

    def blocks(self, begin: int, end: int) -> Iterator[UnitBlock]:
        """Yield the units of records that start in a range of the log; see `QueueUnits`."""
        place = START
        for file in self.parts(begin):
            units = file.open(place)
            yield from units.blocks(begin, end)
            place = units.place
            if units.is_ended or units.is_past:
                return


class FileUnits:
    """The units of one file; see `UnitReading`.

    Parameters
    ----------
    file : QueueFile
    place : Place
        Where the file before ends.
    """

    def __init__(self, file: QueueFile, place: Place) -> None:
        self._file = file
        self._dtype = _DTYPES[file.kind]
        self.place = place
        self.is_ended = self.is_past = False
        self._units = _opened(file)
        self.state: FileState | None = self._units.state

    def blocks(self, begin: int, end: int) -> Iterator[UnitBlock]:
        """Yield the units of records that start in a range of the log."""
        units, size = self._units, self._dtype.itemsize
        first = self._file.offset // size
        for at in range(_first_at(units, begin) if begin else _count_fillers(units), len(units), UNITS_AT_ONCE):
            part = units.part(at, at + UNITS_AT_ONCE)
            block = trusted_block(part, first + at, self.place, _own_indexes(part))
            if block is not None:
                self.place = int(block.ends[-1]), block.last_index + 1
                mine = block.between(begin, end)
                if mine is not None:
                    yield mine
            is_whole = block is not None and block.starts.size == len(part) and not self._file.offset % size
            self.is_ended = not is_whole
            self.is_past = self.place[0] >= end and at + UNITS_AT_ONCE < len(units)
            if self.is_ended or self.is_past:
                return


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
                    found.append(_directory(directory / name, topic, queue_id, kind))
    return [queue for queue in found if queue.files]


def _directory(path: Path, topic: str, queue_id: int, kind: str) -> QueueDirectory:
    files, size = [], 0
    if isinstance(path, UrlPath):
        for file, listed in path.scan():
            if _is_queue_file(listed.name) and listed.is_file and listed.size:
                remote = file.file
                files.append(QueueFile(str(file), int(listed.name), kind, None, remote=remote))
                size += listed.size
    else:
        with os.scandir(path) as entries:
            for entry in entries:
                status = entry.stat() if _is_queue_file(entry.name) else None
                if status is not None and entry.is_file() and status.st_size:
                    files.append(QueueFile(entry.path, int(entry.name), kind, FileState.of(status)))
                    size += min(status.st_blocks * _DISK_BLOCK, status.st_size)
    files.sort(key=lambda file: file.offset)
    if files and files[-1].remote is not None:
        size -= max(files[-1].remote.size - READ_FIRST, 0)
    files[-1:] = [replace(file, is_last=True) for file in files[-1:]]
    return QueueDirectory(topic, queue_id, tuple(files), size)


def _is_queue_file(name: str) -> bool:
    return len(name) == _NAME_LENGTH and name.isascii() and name.isdigit()


def _own_indexes(units: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Return what units of batch queues hold: their queue offsets, and for how many each stands."""
    if units.dtype != _BATCH_DTYPE:
        return None
    return units["msg_base_offset"].astype(np.int64), units["batch_size"].astype(np.int64)


@dataclass(frozen=True, slots=True)
class _OpenUnits:
    """The units of an open file, which are loaded part by part if it is not on this machine."""

    units: npt.NDArray[np.void]
    pages: Pages
    state: FileState | None

    def __len__(self) -> int:
        return len(self.units)

    def part(self, first: int, stop: int) -> npt.NDArray[np.void]:
        size = self.units.itemsize
        self.pages.load(first * size, min(stop, len(self.units)) * size)
        return self.units[first:stop]

    def place(self, at: int) -> tuple[int, int]:
        """Return physical offset and size of one record, faster than `part`."""
        begin = at * self.units.itemsize
        self.pages.load(begin, begin + _PLACE.size)
        found: tuple[int, int] = _PLACE.unpack_from(self.units.data, begin)
        return found


def _opened(file: QueueFile) -> _OpenUnits:
    dtype = _DTYPES[file.kind]
    if file.remote is not None:
        pages = ForwardBytes(file.remote)
        units = pages.raw[: pages.raw.size // dtype.itemsize * dtype.itemsize].view(dtype)
        return _OpenUnits(units, pages, file.state)
    with open(file.path, "rb") as opened:  # noqa: PTH123 -- one of many
        state = FileState.of(os.fstat(opened.fileno()))
        if state.size < dtype.itemsize:
            return _OpenUnits(np.empty(0, dtype), ALL_THERE, state)
        mapped = mmap.mmap(opened.fileno(), state.size, access=mmap.ACCESS_READ)
        return _OpenUnits(np.frombuffer(mapped, dtype, state.size // dtype.itemsize), ALL_THERE, state)


def _first_at(units: _OpenUnits, begin: int) -> int:
    """Return the number of the first unit of a record at or after `begin`, in a file whose units ascend."""

    def start_of(at: int) -> int:
        offset, size = units.place(at)
        return offset if size > 0 else begin

    return bisect_left(range(len(units)), begin, key=start_of)


def _count_fillers(units: _OpenUnits) -> int:
    """Count the units before a queue's first one; they point nowhere (RocketMQ: ``ConsumeQueue.fillPreBlank``)."""
    at, count = 0, 1
    while at < len(units):
        part = units.part(at, at + count)
        is_filler = (part["store_size"] == _FILLER_SIZE) & (part["physical_offset"] == 0)
        if not is_filler.all():
            return at + int(is_filler.argmin())
        at, count = at + count, UNITS_AT_ONCE
    return len(units)
