# SPDX-License-Identifier: Apache-2.0
"""Consume queues with ten units per file, and helpers to inspect them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, overload

import numpy as np

from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue, QueueServices
from store_core.queue.consume_queue_unit import CQ_STORE_UNIT_SIZE, UNIT_DTYPE, BatchCqUnit, CqUnit
from store_core.queue.queue_path import QueueRules
from tests.store_core.fakes import FakeClock, FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from store_core.format.release import Release
    from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt


RELEASES: Final[tuple[Release, ...]] = ("4.3", "4.9", "5.3")
UNITS: Final = 10
FILE_SIZE: Final = UNITS * CQ_STORE_UNIT_SIZE


class Unit(NamedTuple):
    """What a queue stores about a record."""

    physical_offset: int
    size: int
    tags_code: int
    queue_offset: int


class QueueMaker:
    """Makes queues in one directory, with a disk and a clock that tests control."""

    def __init__(self, directory: Path, release: Release = "5.3") -> None:
        self.directory = directory
        self.disk = FaultyFileSystem()
        self.clock = FakeClock()
        self.errors = 0
        self.is_writable = True
        self.rules = QueueRules(release=release, consume_queue_file_size=FILE_SIZE)

    def new(self, *, ext: ConsumeQueueExt | None = None) -> ConsumeQueue:
        """Make a queue that has not read anything yet."""
        return ConsumeQueue(
            "T",
            0,
            self.directory,
            QueueServices(self.rules, self.disk, self.clock, lambda: self.is_writable, self._note_error),
            ext,
        )

    def _note_error(self) -> None:
        self.errors += 1
        self.is_writable = False

    def opened(self) -> ConsumeQueue:
        """Open a queue from the files in the directory."""
        queue = self.new()
        queue.load()
        queue.recover()
        return queue

    def file_bytes(self) -> dict[int, bytes]:
        """Return the files by their offset."""
        return {int(path.name): path.read_bytes() for path in sorted(self.directory.glob("*"))}


def records(count: int, first: int = 0, size: int = 100) -> list[Unit]:
    """Make the units of consecutive records; `first` is the index of the first one."""
    return [Unit(1000 + (first + i) * size, size, 7 * (first + i), first + i) for i in range(count)]


def put_all(queue: ConsumeQueue, units: Iterable[Unit]) -> list[bool]:
    return [queue.put_message_position_info(*unit) for unit in units]


def state_of(queue: ConsumeQueue) -> dict[str, object]:
    """Return the whole state of a queue."""
    files = queue.mapped_file_queue
    return {
        "max_physical_offset": queue.max_physical_offset,
        "min_logic_offset": queue.min_logic_offset,
        "max_offset": queue.max_offset_in_queue,
        "misplaced": queue.misplaced,
        "flushed_where": files.flushed_where,
        "committed_where": files.committed_where,
        "files": [(file.file_from_offset, file.wrote_position, file.flushed_position) for file in files.mapped_files],
    }


@overload
def units_in(queue: ConsumeQueue, first: int = 0) -> Iterator[CqUnit]: ...


@overload
def units_in(queue: BatchConsumeQueue, first: int = 0) -> Iterator[BatchCqUnit]: ...


def units_in(queue: ConsumeQueue | BatchConsumeQueue, first: int = 0) -> Iterator[CqUnit] | Iterator[BatchCqUnit]:
    """Yield the units from an index to the end of a queue, over holes between its files."""
    return _batches_in(queue, first) if isinstance(queue, BatchConsumeQueue) else _plain_units_in(queue, first)


def _plain_units_in(queue: ConsumeQueue, first: int) -> Iterator[CqUnit]:
    end = queue.max_offset_in_queue
    while first < end:
        units = queue.get_index_buffer(first)
        if units is None:
            first = queue.roll_next_file(first)
            continue
        for index in range(min(len(units), end - first)):
            yield CqUnit.of(units, index, first + index)
        first += len(units)


def _batches_in(queue: BatchConsumeQueue, first: int) -> Iterator[BatchCqUnit]:
    while (units := queue.get_index_buffer(first)) is not None:
        found = [BatchCqUnit.of(units, index) for index in range(len(units))]
        yield from found
        if found[-1].queue_offset + found[-1].batch_size <= first:
            return  # damage: going on from here would never end
        first = found[-1].queue_offset + found[-1].batch_size


def write_files(directory: Path, units: Sequence[tuple[int, int, int]], *, start: int = 0) -> None:
    """Write units as files, the last one padded with zeros."""
    directory.mkdir(parents=True, exist_ok=True)
    array = np.zeros(-(-len(units) // UNITS) * UNITS, UNIT_DTYPE)
    array[: len(units)] = np.array([tuple(unit) for unit in units], UNIT_DTYPE)
    for index in range(0, len(array), UNITS):
        offset = start + index * CQ_STORE_UNIT_SIZE
        (directory / f"{offset:020d}").write_bytes(array[index : index + UNITS].tobytes())
