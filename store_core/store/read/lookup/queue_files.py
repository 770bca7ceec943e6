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
from store_core.format.layout import BATCH_CONSUME_QUEUE_UNIT, unit_dtype
from store_core.queue.dispatch.lmq_units import LMQ_PREFIX
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, parse_queue_id, refusal_of
from store_core.queue.units.consume_queue_unit import UNIT_DTYPE
from store_core.store.read.lookup.unit_block import UNITS_AT_ONCE, trusted_block

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from store_core.store.read.lookup.unit_block import UnitBlock

__all__ = ["QueueDirectory", "queue_directories"]

_BATCH_DTYPE: Final = unit_dtype(BATCH_CONSUME_QUEUE_UNIT)
_DTYPES: Final = {CONSUME_QUEUE: UNIT_DTYPE, BATCH_CONSUME_QUEUE: _BATCH_DTYPE}
_NAME_LENGTH: Final = 20
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

    def blocks(self, begin: int, end: int) -> Iterator[UnitBlock]:
        """Yield the units of records that start in a range of the log; see `QueueUnits`."""
        dtype = _DTYPES[self.kind]
        place = (0, 0)
        for number, (path, offset) in enumerate(self.files):
            units, first = _mapped(path, dtype), offset // dtype.itemsize
            if _is_before(self.files[number + 1 :], dtype, begin):
                continue
            for at in range(_first_at(units, begin) if begin else _count_fillers(units), len(units), UNITS_AT_ONCE):
                part = units[at : at + UNITS_AT_ONCE]
                block = trusted_block(part, first + at, place, _own_indexes(part))
                mine = None if block is None else block.between(begin, end)
                if mine is not None:
                    yield mine
                if block is None or block.starts.size < len(part) or offset % dtype.itemsize:
                    return
                place = int(block.ends[-1]), block.last_index + 1
                if place[0] >= end:
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


def _own_indexes(units: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Return what units of batch queues hold: their queue offsets, and for how many each stands."""
    if units.dtype != _BATCH_DTYPE:
        return None
    return units["msg_base_offset"].astype(np.int64), units["batch_size"].astype(np.int64)


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
        at, count = at + count, UNITS_AT_ONCE
    return len(units)
