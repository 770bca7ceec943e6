# SPDX-License-Identifier: Apache-2.0
"""Faults that are planted into a copy of a store, each with what a check has to find: that, and nothing else."""

from __future__ import annotations

import shutil
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from store_core.answers.checking.finding import FindingKind
from store_core.format.layout import head_dtype
from store_core.format.record.record_head import read_frame
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_header import INDEX_HEADER_SIZE
from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["FAULTS", "Fault", "IndexCopy", "QueueCopy"]

Counts: TypeAlias = dict[FindingKind, int]

_UNIT: Final = struct.Struct(">qiq")
_SLOT: Final = struct.Struct(">i")
_END_AT: Final = 24
"""Where the header of an index file has its end offset."""


class QueueCopy:
    """The largest queue of a store, whose units can be read and overwritten; it has a single file."""

    def __init__(self, store: Path) -> None:
        queues = [path for path in sorted(store.glob("consumequeue/*/*")) if len(list(path.iterdir())) == 1]
        self.directory = max(queues, key=lambda path: len(_units_of(next(path.iterdir()))))
        self.file = next(self.directory.iterdir())
        self.count = len(_units_of(self.file))

    def unit(self, number: int) -> tuple[int, int, int]:
        offset, size, code = _UNIT.unpack_from(self.file.read_bytes(), number * CQ_STORE_UNIT_SIZE)
        return offset, size, code

    def put(self, number: int, unit: tuple[int, int, int]) -> None:
        _patch(self.file, number * CQ_STORE_UNIT_SIZE, _UNIT.pack(*unit))


class IndexCopy:
    """The first index file of a store."""

    def __init__(self, store: Path) -> None:
        self.file = min((store / "index").iterdir())
        data = self.file.read_bytes()
        self.count = struct.unpack_from(">i", data, INDEX_HEADER_SIZE - 4)[0]
        self.slots = self._slots(len(data))

    @staticmethod
    def _slots(size: int) -> int:
        """Return the number of slots of the golden stores, which all have four entries per slot."""
        return (size - INDEX_HEADER_SIZE) // (_SLOT.size + 4 * INDEX_DTYPE.itemsize)

    def entry_at(self, number: int) -> int:
        return INDEX_HEADER_SIZE + _SLOT.size * self.slots + number * INDEX_DTYPE.itemsize

    def linked(self) -> tuple[int, int]:
        """Return the number of an entry that leads to another one, and where that link is in the file."""
        data = self.file.read_bytes()
        entries = np.frombuffer(data, INDEX_DTYPE, self.count, self.entry_at(0))
        number = int(np.flatnonzero(entries["previous_index"][1:] > 0)[0]) + 1
        return number, self.entry_at(number) + 16

    def used_slot(self) -> int:
        """Return where the first slot in use is."""
        slots = np.frombuffer(self.file.read_bytes(), ">i4", self.slots, INDEX_HEADER_SIZE)
        return INDEX_HEADER_SIZE + _SLOT.size * int(np.flatnonzero(slots)[0])


def _units_of(file: Path) -> list[tuple[int, int, int]]:
    units = [unit for unit in _UNIT.iter_unpack(file.read_bytes()) if unit[1] > 0]
    return [(offset, size, code) for offset, size, code in units]


def _patch(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


# ------------------------------------------------------------------------------------------------------------- queues


def last_unit_missing(store: Path) -> Counts:
    queue = QueueCopy(store)
    _patch(queue.file, (queue.count - 1) * CQ_STORE_UNIT_SIZE, bytes(CQ_STORE_UNIT_SIZE))
    return {FindingKind.UNIT_MISSING: 1}


def queue_missing(store: Path) -> Counts:
    queue = QueueCopy(store)
    shutil.rmtree(queue.directory)
    return {FindingKind.UNIT_MISSING: queue.count}


def unit_dropped(store: Path) -> Counts:
    """Take a unit out, and move those after it to the front."""
    queue = QueueCopy(store)
    units = [queue.unit(number) for number in range(queue.count)]
    for number, unit in enumerate(units[6:], 5):
        queue.put(number, unit)
    _patch(queue.file, (queue.count - 1) * CQ_STORE_UNIT_SIZE, bytes(CQ_STORE_UNIT_SIZE))
    return {FindingKind.UNIT_MISSING: 1, FindingKind.UNIT_SHIFTED: queue.count - 6}


def units_swapped(store: Path) -> Counts:
    queue = QueueCopy(store)
    first, second = queue.unit(3), queue.unit(4)
    queue.put(3, second)
    queue.put(4, first)
    return {FindingKind.UNIT_SHIFTED: 2}


def unit_repeated_in_place(store: Path) -> Counts:
    queue = QueueCopy(store)
    queue.put(4, queue.unit(3))
    return {FindingKind.UNIT_DUPLICATE: 1}


def unit_repeated_at_the_end(store: Path) -> Counts:
    queue = QueueCopy(store)
    queue.put(queue.count, queue.unit(queue.count - 1))
    return {FindingKind.UNIT_DUPLICATE: 1}


def wrong_size(store: Path) -> Counts:
    queue = QueueCopy(store)
    offset, size, code = queue.unit(3)
    queue.put(3, (offset, size + 1, code))
    return {FindingKind.UNIT_WRONG_SIZE: 1}


def wrong_tags_code(store: Path) -> Counts:
    queue = QueueCopy(store)
    offset, size, code = queue.unit(3)
    queue.put(3, (offset, size, code + 1))
    return {FindingKind.UNIT_WRONG_TAGS_CODE: 1}


def wrong_place(store: Path) -> Counts:
    queue = QueueCopy(store)
    offset, size, code = queue.unit(3)
    queue.put(3, (offset + 1, size, code))
    return {FindingKind.UNIT_WRONG_PLACE: 1}


def unit_of_another_queue_at_the_end(store: Path) -> Counts:
    queue = QueueCopy(store)
    offset, size, code = queue.unit(queue.count - 1)
    queue.put(queue.count, (offset - 1, size, code))
    return {FindingKind.UNIT_EXTRA: 1}


def unit_after_the_log_s_end(store: Path) -> Counts:
    queue = QueueCopy(store)
    _, size, code = queue.unit(queue.count - 1)
    queue.put(queue.count, (1 << 30, size, code))
    return {FindingKind.UNIT_AFTER_END: 1}


def queue_file_cut(store: Path) -> Counts:
    queue = QueueCopy(store)
    with queue.file.open("r+b") as file:
        file.truncate(queue.count * CQ_STORE_UNIT_SIZE + 7)
    return {FindingKind.QUEUE_UNREADABLE: 1}


def unknown_topic(store: Path) -> Counts:
    shutil.copytree(QueueCopy(store).directory, store / "consumequeue" / "ghost" / "0")
    return {FindingKind.UNKNOWN_TOPIC: 1}


def unknown_queue(store: Path) -> Counts:
    queue = QueueCopy(store)
    shutil.copytree(queue.directory, queue.directory.parent / "99")
    return {FindingKind.UNKNOWN_QUEUE: 1}


# -------------------------------------------------------------------------------------------------------------- index


def entry_points_elsewhere(store: Path) -> Counts:
    index = IndexCopy(store)
    at = index.entry_at(2) + 4
    (offset,) = struct.unpack_from(">q", index.file.read_bytes(), at)
    _patch(index.file, at, struct.pack(">q", offset + 1))
    return {FindingKind.INDEX_MISSING: 1, FindingKind.INDEX_EXTRA: 1}


def link_cut(store: Path) -> Counts:
    index = IndexCopy(store)
    _patch(index.file, index.linked()[1], bytes(4))
    return {FindingKind.INDEX_CHAIN: 1}


def link_to_itself(store: Path) -> Counts:
    index = IndexCopy(store)
    number, at = index.linked()
    _patch(index.file, at, struct.pack(">i", number))
    return {FindingKind.INDEX_CHAIN: 1}


def slot_emptied(store: Path) -> Counts:
    index = IndexCopy(store)
    _patch(index.file, index.used_slot(), bytes(4))
    return {FindingKind.INDEX_CHAIN: 1}


def index_after_the_log_s_end(store: Path) -> Counts:
    _patch(max((store / "index").iterdir()), _END_AT, struct.pack(">q", 1 << 30))
    return {FindingKind.INDEX_AFTER_END: 1}


# ---------------------------------------------------------------------------------------------------- configuration


def broken_config(store: Path) -> Counts:
    config = store / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_bytes(b'{"topicConfigTable": {')
    return {FindingKind.CONFIG_UNREADABLE: 1}


# ---------------------------------------------------------------------------------------------------------------- log


def body_changed(store: Path) -> Counts:
    segment, at, _ = _record(store, 10)
    body_at = at + head_dtype().itemsize
    _patch(segment, body_at, bytes([segment.read_bytes()[body_at] ^ 0xFF]))
    return {FindingKind.LOG_CRC: 1}


def magic_code_overwritten(store: Path) -> Counts:
    segment, at, _ = _record(store, 10)
    _patch(segment, at + 4, b"\0\0\0\0")
    return {FindingKind.LOG_DAMAGE: 1}


def _record(store: Path, number: int) -> tuple[Path, int, int]:
    """Return the file, the position and the size of a record, by its number."""
    segment = min((store / "commitlog").iterdir())
    data, at = memoryview(segment.read_bytes()), 0
    for _ in range(number):
        at += read_frame(data, at)[0]
    return segment, at, read_frame(data, at)[0]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: plants itself into a store, and returns what is to be found, by verdict."""

    plant: Callable[[Path], Counts]

    def __str__(self) -> str:
        return self.plant.__name__


FAULTS: Final = tuple(
    Fault(plant)
    for plant in (
        last_unit_missing,
        queue_missing,
        unit_dropped,
        units_swapped,
        unit_repeated_in_place,
        unit_repeated_at_the_end,
        wrong_size,
        wrong_tags_code,
        wrong_place,
        unit_of_another_queue_at_the_end,
        unit_after_the_log_s_end,
        queue_file_cut,
        unknown_topic,
        unknown_queue,
        entry_points_elsewhere,
        link_cut,
        link_to_itself,
        slot_emptied,
        index_after_the_log_s_end,
        broken_config,
        body_changed,
        magic_code_overwritten,
    )
)
