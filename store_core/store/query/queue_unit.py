# SPDX-License-Identifier: Apache-2.0
"""A unit of a queue, and the record that it leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from store_core.format.layout import BLANK_SIZE, MIN_RECORD_SIZE, MagicCode
from store_core.format.record.record_head import read_frame, store_timestamp
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt, is_ext_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.queue.consume_queue.consume_queue import ConsumeQueue
    from store_core.queue.consume_queue.consume_queue_ext import CqExtUnit
    from store_core.queue.units.batch_consume_queue_unit import BatchUnitArray
    from store_core.queue.units.consume_queue_unit import UnitArray

    AnyQueue: TypeAlias = ConsumeQueue | BatchConsumeQueue

__all__ = ["LogLookup", "QueueUnit", "queue_units"]

_MAGICS: Final = frozenset((MagicCode.MESSAGE_V1.value, MagicCode.MESSAGE_V2.value))


class LogLookup:
    """Reads records of a commit log at given offsets, returning only what really is a record there.

    RocketMQ takes whatever bytes a unit points to for its record. With files missing, or a unit left over from a
    truncation, it serves a consumer foreign bytes as FOUND; offset 0 even means the oldest remaining file. Here an
    offset outside the log, or without a record of exactly the given size, has no record.
    """

    def __init__(self, queue: MappedFileQueue) -> None:
        self._queue = queue

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest byte; -1 if there is no file."""
        return self._queue.min_offset

    @property
    def max_offset(self) -> int:
        """Physical offset one past the last byte visible to readers."""
        return self._queue.max_offset

    def roll_next_file(self, physical_offset: int) -> int:
        """Return the start of the file after the one that holds an offset (``CommitLog.rollNextFile``)."""
        return physical_offset + self._queue.file_size - physical_offset % self._queue.file_size

    def get_message(self, physical_offset: int, size: int) -> memoryview | None:
        """Return a view of a record (``CommitLog.getMessage``); None if there is none of that size."""
        record = self._select(physical_offset, size) if size >= MIN_RECORD_SIZE else None
        return record if record is not None and _is_record(record) else None

    def look_message_by_offset(self, physical_offset: int) -> memoryview | None:
        """Return a view of the record at an offset (``DefaultMessageStore.lookMessageByOffset``), or None."""
        start = self._select(physical_offset, BLANK_SIZE)
        if start is None:
            return None
        size, _ = read_frame(start, 0)
        return self.get_message(physical_offset, size)

    def pickup_store_timestamp(self, physical_offset: int, size: int) -> int:
        """Read the store time of a record, ms; -1 if it is not there (``CommitLog.pickupStoreTimestamp``)."""
        record = self.get_message(physical_offset, size)
        return -1 if record is None else store_timestamp(record, 0)

    def _select(self, physical_offset: int, size: int) -> memoryview | None:
        if physical_offset < 0:
            return None
        file = self._queue.find_mapped_file_by_offset(physical_offset)
        return file.select(physical_offset - file.file_from_offset, size) if file is not None else None


def _is_record(view: memoryview) -> bool:
    size, magic = read_frame(view, 0)
    return size == len(view) and magic in _MAGICS


_BLOCK: Final = 32
"""Units converted to Python numbers at a time; most gets need no more."""


class QueueUnit(NamedTuple):
    """One unit of a queue, with its extension resolved."""

    queue_offset: int
    physical_offset: int
    store_size: int
    tags_code: int | None  # None if the unit points to a lost extension; then no filter can decide
    batch_size: int = 1  # messages in the record
    ext: CqExtUnit | None = None


def queue_units(queue: AnyQueue, queue_offset: int) -> Iterator[QueueUnit] | None:
    """Yield the units from an offset to the end of its file; None if there is no unit at the offset.

    In a batch queue the first unit is the one that contains the offset, so it may begin before it.
    """
    units = queue.get_index_buffer(queue_offset)
    if units is None:
        return None
    if isinstance(queue, BatchConsumeQueue):
        return _batch_units(units)
    return _plain_units(queue, units, queue_offset)


def _plain_units(queue: ConsumeQueue, units: UnitArray, first: int) -> Iterator[QueueUnit]:
    for begin in range(0, len(units), _BLOCK):
        for index, (physical_offset, size, tags_code) in enumerate(
            units[begin : begin + _BLOCK].tolist(), first + begin
        ):
            if is_ext_address(tags_code):
                ext = queue.ext.get(tags_code) if isinstance(queue.ext, ConsumeQueueExt) else None
                yield QueueUnit(index, physical_offset, size, ext.tags_code if ext else None, 1, ext)
            else:
                yield QueueUnit(index, physical_offset, size, tags_code)


def _batch_units(units: BatchUnitArray) -> Iterator[QueueUnit]:
    for begin in range(0, len(units), _BLOCK):
        for physical_offset, size, tags_code, _, base, batch_size, _, _ in units[begin : begin + _BLOCK].tolist():
            yield QueueUnit(base, physical_offset, size, tags_code, batch_size)
