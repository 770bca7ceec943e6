# SPDX-License-Identifier: Apache-2.0
"""The reading half of a consume queue: bounds, units, and search by time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.segment_paths import SegmentPaths
from store_core.queue.consume_queue.time_search import BoundaryType, TimeSearch
from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE, CqUnit, units_of, units_per_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.queue.queue_rules import QueueRules
    from store_core.queue.units.consume_queue_unit import UnitArray

__all__ = ["QueueReader"]


class QueueReader:
    """The reading half of `ConsumeQueue`, which documents the parameters and attributes."""

    unit_size: Final = CQ_STORE_UNIT_SIZE

    def __init__(
        self, directory: Path, rules: QueueRules, file_system: FileSystem, clock: Clock, *, writable: bool
    ) -> None:
        self.rules = rules
        self.min_logic_offset = 0
        self._units_per_file = units_per_file(rules.consume_queue_file_size)
        self.mapped_file_queue = MappedFileQueue(
            SegmentPaths((directory,)), self._units_per_file * CQ_STORE_UNIT_SIZE, file_system, clock, writable=writable
        )
        self._time_search = TimeSearch(rules.features)

    @property
    def min_offset_in_queue(self) -> int:
        """Index of the first unit that points to an existing record."""
        return self.min_logic_offset // CQ_STORE_UNIT_SIZE

    @property
    def max_offset_in_queue(self) -> int:
        """Index after the last unit; 0 without files."""
        return self.mapped_file_queue.max_offset // CQ_STORE_UNIT_SIZE

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the index of the first unit of the file after the one that holds `queue_offset`."""
        return queue_offset + self._units_per_file - queue_offset % self._units_per_file

    def get_index_buffer(self, queue_offset: int) -> UnitArray | None:
        """Return the units from an index to the end of its file, without copying.

        Returns
        -------
        array of unit, or None
            Of dtype `store_core.queue.units.consume_queue_unit.UNIT_DTYPE`, read-only. None below the minimum, beyond
            the end, and in a hole between files. It stays valid when the file is deleted.
        """
        wanted = queue_offset * CQ_STORE_UNIT_SIZE
        if queue_offset < 0 or wanted < self.min_logic_offset:
            return None
        file = self.mapped_file_queue.find_mapped_file_by_offset(wanted)
        view = file.select(wanted % file.file_size) if file is not None else None
        return units_of(view) if view is not None else None

    def buffers_from(self, queue_offset: int) -> Iterator[tuple[int, UnitArray]]:
        """Yield the units from an index to the end of the queue, file by file, each with its first unit's index.

        Holes between files are skipped. (In RocketMQ 5.x an iteration ends with its first file.)
        """
        end = self.max_offset_in_queue
        while queue_offset < end:
            units = self.get_index_buffer(queue_offset)
            if units is not None:
                yield queue_offset, units[: end - queue_offset]
            queue_offset = self.roll_next_file(queue_offset)

    def iterate_from(self, queue_offset: int) -> Iterator[CqUnit]:
        """Yield the units from an index to the end of the queue one by one."""
        for first, units in self.buffers_from(queue_offset):
            for index in range(len(units)):
                yield CqUnit.of(units, index, first + index)

    @property
    def last_unit(self) -> CqUnit | None:
        """The newest unit; None if there is none above the minimum (RocketMQ 5.x: ``getLatestUnit``)."""
        queue_offset = self.max_offset_in_queue - 1
        units = self.get_index_buffer(queue_offset)
        return CqUnit.of(units, 0, queue_offset) if units is not None else None

    def get_offset_in_queue_by_time(
        self,
        timestamp: int,
        boundary: BoundaryType,
        store_time: Callable[[int, int], int],
        min_physical_offset: int,
    ) -> int:
        """Return the index of the message stored at a time; for the rules see `time_search`.

        Parameters
        ----------
        timestamp : int
            Ms since 1970.
        boundary : BoundaryType
            For release 5.3; the others have a rule of their own, and ignore it.
        store_time : callable
            ``store_time(physical_offset, size)`` returns a record's store timestamp, -1 if it can't be read (RocketMQ:
            ``CommitLog.pickupStoreTimestamp``).
        min_physical_offset : int
            Where the log starts.
        """
        found = self._time_search.find(
            self.mapped_file_queue, self.min_logic_offset, timestamp, boundary, store_time, min_physical_offset
        )
        if not self.rules.features.keeps_found_offset_in_queue:
            return found
        return min(max(found, self.min_offset_in_queue), self.max_offset_in_queue)
