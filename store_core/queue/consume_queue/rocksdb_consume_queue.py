# SPDX-License-Identifier: Apache-2.0
"""A consume queue in a RocksDB, continued in memory by the units of records that the database does not have yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.queue.consume_queue.consume_queue import ConsumeQueue, QueueServices
from store_core.queue.consume_queue.queue_search import BoundaryType, LogTimes, SearchedRange, UnitTimes, bounded
from store_core.queue.consume_queue_unit import CQ_STORE_UNIT_SIZE, UNIT_DTYPE, FileUnits, UnitArray, coverage

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.mapped_file import MappedFile
    from store_core.queue.rocksdb_queues import RocksdbQueues, StoredUnits


_READ_AT_ONCE: Final = 1024
"""Units of one buffer: more than a get looks at (``maxFilterMessageSize``, 800 units)."""


class RocksdbConsumeQueue(ConsumeQueue):
    """The units of one queue in a RocksDB (RocketMQ: ``RocksDBConsumeQueue``), opened to read.

    What the database has is read from it when it is asked for. Recovery puts the units of later records, which go into
    files of an overlay, and so stay in memory: that of the services has to be one. The directory does not exist.
    """

    def __init__(
        self, topic: str, queue_id: int, directory: Path, services: QueueServices, stored: RocksdbQueues
    ) -> None:
        in_memory = QueueServices(services.rules, services.file_system, services.clock)
        super().__init__(topic, queue_id, directory, in_memory)
        self._stored = stored
        self._stored_end = stored.end_of(topic, queue_id)

    # ---- opening

    def load(self) -> tuple[str, ...]:
        """Do nothing: the database is open."""
        return ()

    def recover(self) -> tuple[str, ...]:
        """Find how far the queue covers the log."""
        self._is_recovering = True
        self.max_physical_offset = self._stored_cover()
        return ()

    def _stored_cover(self) -> int:
        last = self._stored.unit_from(self.topic, self.queue_id, self._stored_end - 1) if self._stored_end else None
        if last is None:
            return -1
        unit = last.units[0]
        return coverage(int(unit["physical_offset"]), int(unit["store_size"]), self.rules.features)

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Find the first unit that points at or after the log's start."""
        if not self._stored_end:
            super().correct_min_offset(min_physical_offset)
            return
        begin = self._stored.start_of(self.topic, self.queue_id, min_physical_offset)
        self.min_logic_offset = min(begin, self._stored_end) * CQ_STORE_UNIT_SIZE

    # ---- bounds and units

    @property
    def max_offset_in_queue(self) -> int:
        """Index after the last unit; 0 without any."""
        return max(self._stored_end, super().max_offset_in_queue)

    def get_index_buffer(self, queue_offset: int) -> UnitArray | FileUnits | None:
        """Return some units from an index on; None below the minimum, beyond the end, and where units are missing."""
        if queue_offset >= self._stored_end:
            return super().get_index_buffer(queue_offset)
        if queue_offset < 0 or queue_offset < self.min_offset_in_queue:
            return None
        found = self._units_from(queue_offset, _READ_AT_ONCE)
        if found is None:
            return None
        follows = found.offsets == queue_offset + np.arange(len(found.offsets))
        count = len(follows) if follows.all() else int(follows.argmin())
        if not count:
            return None
        units = _plain(found.units[:count])
        more = super().get_index_buffer(self._stored_end) if queue_offset + count == self._stored_end else None
        return units if more is None else np.concatenate([units, more[:]])

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the index from which to go on where there is no unit at an index."""
        if queue_offset >= self._stored_end:
            return super().roll_next_file(queue_offset)
        found = self._units_from(queue_offset + 1, 1)
        return self._stored_end if found is None else int(found.offsets[0])

    def _units_from(self, queue_offset: int, limit: int) -> StoredUnits | None:
        units = self._stored.units(self.topic, self.queue_id, queue_offset, self._stored_end, limit=limit)
        return next(units, None)

    def get_offset_in_queue_by_time(self, timestamp: int, boundary: BoundaryType, log: LogTimes) -> int:
        """Return the index of the message stored at a time, by the rules of 5.3 (``binarySearchInCQByTime``).

        Times are those in the database; of units that it does not have, those of their records.
        """
        units = _AllUnits(self, log)
        begin, end = self.min_offset_in_queue, self.max_offset_in_queue
        found = bounded(SearchedRange(0, begin, end - 1), units, timestamp, boundary)
        return min(max(found, begin), end)

    # ---- putting and truncating, in memory

    def _file_for(self, queue_offset: int) -> MappedFile | None:
        begin = self.min_logic_offset
        file = super()._file_for(queue_offset)
        if self._stored_end:
            self.min_logic_offset = begin
        return file

    def truncate_dirty_logic_files(self, physical_offset: int) -> tuple[str, ...]:
        """Leave out the units that point at or after the log's new end; see `ConsumeQueue`."""
        end, last = self._stored_end, self._stored_cover()
        if end and last > physical_offset:
            self._stored_end = self._stored.first_at(self.topic, self.queue_id, physical_offset)
            if self._stored_end < end:
                self.mapped_file_queue.destroy()
                self.max_physical_offset = self._stored_cover()
                return (f"{self!r}: left out {end - self._stored_end} units at and after {physical_offset}",)
        if self.mapped_file_queue.last_mapped_file is not None:
            return super().truncate_dirty_logic_files(physical_offset)
        self.max_physical_offset = last
        return ()

    def destroy(self) -> None:
        """Forget all units."""
        super().destroy()
        self._stored_end = 0


def _plain(units: UnitArray) -> UnitArray:
    """Return units without their store times, as files have them."""
    raw = units.view(np.uint8).reshape(len(units), -1)
    return np.ascontiguousarray(raw[:, :CQ_STORE_UNIT_SIZE]).view(UNIT_DTYPE)[:, 0]


class _AllUnits(UnitTimes):
    """What a search by time asks of the units."""

    def __init__(self, queue: RocksdbConsumeQueue, log: LogTimes) -> None:
        self._queue = queue
        self._log = log

    def of(self, index: int) -> int:
        """Return the store time of a unit; -1 if there is none."""
        queue = self._queue
        found = queue._units_from(index, 1)  # noqa: SLF001 -- of this module
        if found is not None:
            return int(found.units["store_timestamp"][0]) if found.offsets[0] == index else -1
        units = queue.get_index_buffer(index)
        return -1 if units is None else self._log.store_time(*units[0].item()[:2])

    def is_gone(self, index: int) -> bool:
        """Return whether a unit points below the log's start, or is missing."""
        units = self._queue.get_index_buffer(index)
        return units is None or int(units[0]["physical_offset"]) < self._log.min_offset
