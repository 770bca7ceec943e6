# SPDX-License-Identifier: Apache-2.0
"""The index of one queue of a batch topic: a unit of 46 bytes per record, however many messages it holds."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.queue.consume_queue import queue_search
from store_core.queue.consume_queue.consume_queue import QueueFiles, QueueServices
from store_core.queue.consume_queue.queue_search import BoundaryType, LogTimes
from store_core.queue.consume_queue_unit import (
    BATCH_UNIT_DTYPE,
    BATCH_UNIT_SIZE,
    BatchCqUnit,
    FileUnits,
    batch_units,
    count_leading,
    uncovered_batches,
)
from store_core.queue.queue_assignment import batch_refusal, fitting_batches

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.queue.consume_queue_unit import BatchUnitArray
    from store_core.queue.dispatch.dispatch_batch import DispatchRequest


_LOG: Final = logging.getLogger("store_core")


class BatchConsumeQueue(QueueFiles):
    """The units of one queue of a topic with ``queue.type=BatchCQ`` (RocketMQ 5.0 and later: ``BatchConsumeQueue``).

    A unit states which indexes its record covers, so units are found by searching; file names count bytes, and reveal
    no indexes.

    * `directory`: The queue's own: ``batchconsumequeue/TOPIC/QUEUE``.

    * `max_physical_offset`: Where the last unit's record **starts**; -1 before the first.
    * `min_offset_in_queue`: First existing index; -1 without units.
    * `max_offset_in_queue`: Next index; 0 without units.
    * `min_logic_offset`: Start of the first file, in bytes; -1 if a correction found no files.
    """

    unit_dtype = BATCH_UNIT_DTYPE

    def __init__(self, topic: str, queue_id: int, directory: Path, services: QueueServices) -> None:
        file_size = -(-services.rules.batch_consume_queue_file_size // BATCH_UNIT_SIZE) * BATCH_UNIT_SIZE
        super().__init__(topic, queue_id, directory, services, file_size)
        self.min_offset_in_queue = -1
        self.max_offset_in_queue = 0

    def __repr__(self) -> str:
        return (
            f"BatchConsumeQueue({self.topic!r}, {self.queue_id}, {self.min_offset_in_queue}:{self.max_offset_in_queue})"
        )

    # ---- bounds

    def _follow_end(self, end: queue_search.QueueEnd) -> None:  # noqa: ARG002 -- as of a `ConsumeQueue`
        self._find_min()
        self._find_max()

    def _find_min(self) -> None:
        """Read the first index from the first file (RocketMQ: ``reviseMinOffsetInQueue``)."""
        first = self.mapped_file_queue.first_mapped_file
        if first is None:
            self.max_offset_in_queue = 0
        units = FileUnits(first, BATCH_UNIT_DTYPE)
        self.min_logic_offset = first.file_from_offset if first is not None else -1
        self.min_offset_in_queue = int(units[0]["msg_base_offset"]) if len(units) else -1

    def _find_max(self) -> None:
        """Read the next index from the last file, or the one before (RocketMQ: ``reviseMaxOffsetInQueue``)."""
        last = self.last_unit
        self.max_offset_in_queue = last.queue_offset + last.batch_size if last is not None else 0

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Move `min_offset_in_queue` past the leading units of the first file that point below the log's start."""
        self._find_min()
        units = FileUnits(self.mapped_file_queue.first_mapped_file, BATCH_UNIT_DTYPE)
        gone = count_leading(units, lambda some: some["physical_offset"] < min_physical_offset)
        if gone:
            unit = BatchCqUnit.of(units, gone - 1)
            self.min_offset_in_queue = unit.queue_offset + unit.batch_size

    def roll_next_file(self, queue_offset: int) -> int:  # noqa: ARG002 -- as of a `ConsumeQueue`
        """Return 0, as RocketMQ does: the next file's first index can't be computed."""
        return 0

    # ---- putting

    def put_message_position_info_wrapper(self, request: DispatchRequest) -> bool:
        """Append the unit of a record: up to 30 tries, a second apart, then the queue counts as broken.

        A record that starts at or before `max_physical_offset` is in the queue already, and nothing happens.

        Returns: False if the unit was refused, see `batch_refusal`, or could not be written: then `on_error` was
        called.
        """
        if batch_refusal(request.message_base_offset, request.batch_size) is not None:
            return False
        columns = {
            "physical_offset": request.physical_offset,
            "store_size": request.message_size,
            "tags_code": request.tags_code,
            "store_timestamp": request.store_timestamp,
            "msg_base_offset": request.message_base_offset,
            "batch_size": request.batch_size,
        }
        return self.put_units(batch_units({name: np.array([value], np.int64) for name, value in columns.items()}))

    def put_units(self, units: BatchUnitArray) -> bool:
        """Append the units of many records, in log order, as `put_message_position_info_wrapper` one by one.

        Returns: False if a unit was refused, or could not be written: then `on_error` was called, and the rest is
        skipped.
        """
        is_sound = fitting_batches(units["msg_base_offset"].astype(np.int64), units["batch_size"].astype(np.int16))
        units = uncovered_batches(units if is_sound.all() else units[is_sound], self.max_physical_offset)
        while len(units):
            taken = self._retried(partial(self._append, units), f"{len(units)} records are not in it")
            if not taken:
                return False
            units = units[taken:]
        return bool(is_sound.all())

    def _append(self, units: BatchUnitArray) -> int:
        """Append as many units as fit into the last file; return how many."""
        queue = self.mapped_file_queue
        try:
            file = queue.get_last_mapped_file(queue.max_offset)
            if file is None:
                return 0
            if not file.wrote_position and not file.segment.is_new and not self._is_recovering:
                file.set_position(0, clear_tail=True)
            count = min(len(units), (file.file_size - file.wrote_position) // BATCH_UNIT_SIZE)
            if not file.append(units[:count].view(np.uint8).data):
                return 0
        except OSError as error:
            _LOG.warning("queue %s-%d: records not indexed: %s", self.topic, self.queue_id, error)
            return 0
        last = BatchCqUnit.of(units, count - 1)
        self.max_physical_offset = last.physical_offset
        self.max_offset_in_queue = last.queue_offset + last.batch_size
        if file.first_create_in_queue and self.min_offset_in_queue == -1:
            self._find_min()
        return count

    # ---- reading

    def get_index_buffer(self, queue_offset: int) -> FileUnits | None:
        """Return the units from the one that holds an index to the end of its file, as of a `ConsumeQueue`.

        The first unit may begin before the index. None before the first unit, and from `max_offset_in_queue` on.
        """
        return units_from(self.mapped_file_queue, queue_offset) if queue_offset < self.max_offset_in_queue else None

    @property
    def last_unit(self) -> BatchCqUnit | None:
        """The newest unit, from the last file or the one before; None if there is none."""
        for file in reversed(self.mapped_file_queue.mapped_files[-2:]):
            units = FileUnits(file, BATCH_UNIT_DTYPE)
            if len(units):
                return BatchCqUnit.of(units, len(units) - 1)
        return None

    def get_offset_in_queue_by_time(
        self,
        timestamp: int,
        boundary: BoundaryType,
        log: LogTimes | None = None,  # noqa: ARG002 -- as of a `ConsumeQueue`
    ) -> int:
        """Return the index of the messages stored at a time; see `unit_of_time`.

        Store times are in the units, so the log is not read.

        * `timestamp`: Ms since 1970.

        Returns: First index of the record found, limited to the queue's bounds; the queue's first index if there is
        none.
        """
        unit = unit_of_time(self.mapped_file_queue, timestamp, boundary)
        found = int(unit["msg_base_offset"]) if unit is not None else -1
        return min(max(found, self.min_offset_in_queue), self.max_offset_in_queue)

    # ---- truncating and closing

    def truncate_dirty_logic_files(self, physical_offset: int) -> tuple[str, ...]:
        """Drop the units that point at or after the log's new end; return what was dropped.

        See `queue_search.truncate`. `max_physical_offset` becomes that of the last unit; for an empty queue one less
        than `physical_offset`.
        """
        queue = self.mapped_file_queue
        self.max_physical_offset = physical_offset - 1
        features = self.rules.features
        found = queue_search.truncate(queue, BATCH_UNIT_DTYPE, physical_offset, features)
        if found.max_physical_offset is not None:
            self.max_physical_offset = found.max_physical_offset
        self._find_min()
        self._find_max()
        return found.notes

    def destroy(self) -> None:
        """Delete all files, and start again as a new queue."""
        super().destroy()
        self.min_offset_in_queue, self.max_offset_in_queue = -1, 0


def units_from(queue: MappedFileQueue, queue_offset: int) -> FileUnits | None:
    """Return the units from the one that holds an index to the end of its file; None if there is none.

    The file is the last one that begins at or before the index.
    """
    for file in reversed(queue.mapped_files):
        units = FileUnits(file, BATCH_UNIT_DTYPE)
        if len(units) and int(units[0]["msg_base_offset"]) <= queue_offset:
            index = _floor(units, queue_offset)
            return FileUnits(file, BATCH_UNIT_DTYPE, index * BATCH_UNIT_SIZE) if index is not None else None
    return None


def _floor(units: FileUnits, queue_offset: int) -> int | None:
    """Find the last unit that begins at or before an index (RocketMQ: ``BatchConsumeQueue.binarySearch``)."""
    left, right = 0, len(units) - 1
    while left <= right:
        middle = (left + right) // 2
        base = int(units[middle]["msg_base_offset"])
        if base == queue_offset:
            return middle
        if base > queue_offset:
            right = middle - 1
        elif middle > left:
            left = middle
        else:
            is_following = middle + 1 < len(units) and units[middle + 1]["msg_base_offset"] <= queue_offset
            return middle + is_following
    return None


def unit_of_time(queue: MappedFileQueue, timestamp: int, boundary: BoundaryType) -> np.void | None:
    """Return the unit for a time; None where RocketMQ returns -1.

    At or after the time of the file's last unit it is that unit, for both boundaries. Before that,
    `BoundaryType.LOWER` selects the first unit stored at the time or later. `BoundaryType.UPPER` often selects none, or
    not the last one before the time, as in RocketMQ.
    """
    units = _units_for_time(queue, timestamp)
    if not len(units):
        return None
    if timestamp >= units[-1]["store_timestamp"]:
        return units[-1]
    index = _at_time(units, timestamp, is_lower=boundary is BoundaryType.LOWER)
    return units[index] if index is not None else None


def _units_for_time(queue: MappedFileQueue, timestamp: int) -> FileUnits:
    """Choose a file: the last if it begins in time, else the one that begins last of those that do, else the first."""
    last = FileUnits(queue.last_mapped_file, BATCH_UNIT_DTYPE)
    if len(last) and last[0]["store_timestamp"] <= timestamp:
        return last
    filled = [units for file in queue.mapped_files if (units := FileUnits(file, BATCH_UNIT_DTYPE))]
    begun = [units for units in filled if units[0]["store_timestamp"] <= timestamp]
    # Of files that begin at the same time, the later one: `max` returns the first.
    best = max(reversed(begun), key=lambda units: int(units[0]["store_timestamp"]), default=None)
    return best if best is not None else FileUnits(queue.first_mapped_file, BATCH_UNIT_DTYPE)


def _at_time(units: FileUnits, timestamp: int, *, is_lower: bool) -> int | None:
    """Search the units of a file (RocketMQ: ``BatchConsumeQueue.binarySearchRight``)."""
    left, right = 0, len(units) - 1
    while left <= right:
        middle = (left + right) // 2
        time = int(units[middle]["store_timestamp"])
        if middle == right:
            return middle if time >= timestamp else None
        if middle == left:
            if time >= timestamp:
                return middle
            left = middle + 1
        elif is_lower:
            left, right = (middle + 1, right) if time < timestamp else (left, middle)
        else:
            left, right = (middle, right) if time <= timestamp else (left, middle - 1)
    return None
