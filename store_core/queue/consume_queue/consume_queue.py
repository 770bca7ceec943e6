# SPDX-License-Identifier: Apache-2.0
"""A consume queue in files."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Self

import numpy as np

from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.segment_listing import SegmentPaths
from store_core.queue.consume_queue import queue_search as bounds
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt, is_ext_address
from store_core.queue.consume_queue.queue_search import BoundaryType, LogTimes, TimeSearch
from store_core.queue.consume_queue_unit import (
    CQ_STORE_UNIT_SIZE,
    UNIT_DTYPE,
    UNIT_SEAL,
    CqUnit,
    FileUnits,
    coverage,
    coverages,
    pre_blank,
    stored_units,
    units_per_file,
)
from store_core.queue.queue_assignment import index_limit, index_refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.file_system import FileSystem
    from store_core.files.machine import Clock
    from store_core.files.mapped_file import MappedFile
    from store_core.format.release_rules import ReleaseRules
    from store_core.queue.consume_queue_unit import UnitArray
    from store_core.queue.dispatch.dispatch_batch import DispatchRequest
    from store_core.queue.queue_path import QueueRules


class PutUnits:
    """Units to be put, in the order of their queues, and there in log order.

    A *run* of them ascends in both index and coverage of the log, so that what a queue skips of it is at its beginning.
    Runs are found for all queues at once, which leaves little to do for each: a store of many has few units of each.
    """

    def __init__(self, units: UnitArray, queue_offset: npt.NDArray[np.int64], features: ReleaseRules) -> None:
        self.units = units
        self.bytes = units.view(np.uint8).data
        self.queue_offset = queue_offset
        self.covers = coverages(units, features)
        self.largest_index = int(queue_offset.max(initial=0))
        breaks = (queue_offset[1:] <= queue_offset[:-1]) | (self.covers[1:] <= self.covers[:-1])
        self._starts: list[int] = (np.flatnonzero(breaks) + 1).tolist()

    @classmethod
    def of(
        cls,
        physical_offset: npt.NDArray[np.int64],
        size: npt.NDArray[np.int64],
        tags_code: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
        features: ReleaseRules,
    ) -> Self:
        """Return the units of columns of one length."""
        return cls(stored_units(physical_offset, size, tags_code), queue_offset, features)

    def run_end(self, start: int, stop: int) -> int:
        """Return where the run that holds a unit ends, at `stop` at the latest."""
        place = bisect_right(self._starts, start)
        return min(self._starts[place], stop) if place < len(self._starts) else stop

    def are_consecutive(self, start: int, stop: int) -> bool:
        """Return whether each of some units has the index after that of the one before it."""
        last, first = int(self.queue_offset[stop - 1]), int(self.queue_offset[start])
        return last - first == stop - 1 - start and self.run_end(start, stop) == stop

    def count_covered(self, start: int, stop: int, covered: int) -> int:
        """Count the leading units of a run whose records a queue covers."""
        if self.covers[start] > covered:
            return 0
        return int(np.searchsorted(self.covers[start:stop], covered, "right"))

    def count_behind(self, start: int, stop: int, end: int) -> int:
        """Count the leading units of a run whose index lies before the end of a queue, bytes; index 0 never does."""
        if not 0 < int(self.queue_offset[start]) * CQ_STORE_UNIT_SIZE < end:
            return 0
        return int(np.searchsorted(self.queue_offset[start:stop], -(-end // CQ_STORE_UNIT_SIZE)))

    def count_misplaced(self, start: int, stop: int, index: int) -> int:
        """Count the units of a run whose index lies after the place that they get, from `index` on."""
        last = int(self.queue_offset[stop - 1])
        if last - index == stop - 1 - start:  # in a run each index is at least one more than the one before it
            return 0
        return int(np.count_nonzero(self.queue_offset[start:stop] > index + np.arange(stop - start)))


@dataclass(frozen=True, slots=True)
class QueueServices:
    """What the queues of a store stand on.

    * `can_write`: Whether the store's flags allow writing to queues (RocketMQ: ``RunningFlags.isCQWriteable``).
    * `on_error`: Called when a unit can't be put: the store becomes read-only (RocketMQ: ``makeLogicsQueueError``).
    * `reads_rocksdb`: Whether queues may be in a RocksDB: they are read, and the units of records that it lacks are put
      in memory, so the file system has to be an overlay.
    """

    rules: QueueRules
    file_system: FileSystem
    clock: Clock
    can_write: Callable[[], bool] = lambda: True
    on_error: Callable[[], None] = lambda: None
    reads_rocksdb: bool = False


_LOG: Final = logging.getLogger("store_core")
_MAX_RETRIES: Final = 30
_SECONDS_BETWEEN: Final = 1.0
_NO_EXT_ADDRESS: Final = 1
_LONG: Final = 8


class QueueFiles(ABC):
    """A queue of units in files of equal size, whatever a unit holds.

    One thread puts units and corrects bounds; others may read at the same time.

    **Ghosts.** When RocketMQ truncates a queue it only moves the end, and the units after it stay on disk. As units
    always align, a later restart reads on into them, and serves what no longer exists. Here the bytes after the end are
    overwritten with zeros whenever the end moves back (`recover`, `truncate_dirty_logic_files`), and when the queue
    grows into a file that already existed. RocketMQ reads those bytes only to revive them, so nothing else differs.
    """

    unit_dtype: ClassVar[np.dtype[np.void]]

    def __init__(self, topic: str, queue_id: int, directory: Path, services: QueueServices, file_size: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.rules = services.rules
        self.mapped_file_queue = MappedFileQueue(SegmentPaths((directory,)), file_size, services.file_system)
        self.max_physical_offset = -1
        self.min_logic_offset = 0
        self._services = services
        # Until `clear_tail`, the units that RocketMQ counts again are kept, also in files that 4.3 did not load.
        self._is_recovering = False

    def load(self) -> tuple[str, ...]:
        """Load the existing files, each as if full; `recover` finds the end.

        Returns: What an operator should know.
        """
        return self.mapped_file_queue.load(self.rules.release)

    def recover(self) -> tuple[str, ...]:
        """Find the queue's end, at the first invalid unit of the last three files; files after it are deleted.

        Filler units count, and set `max_physical_offset` until a real unit follows (RocketMQ:
        ``ConsumeQueue.recover``). A queue without files is unchanged. Units after the end stay in the file, since
        `truncate_dirty_logic_files` counts them again; `clear_tail` removes what is left of them.

        Returns: What was dropped.
        """
        self._is_recovering = True
        found = bounds.recover(self.mapped_file_queue, self.unit_dtype, self.rules.features)
        if found is None:
            return ()
        if found.max_physical_offset is not None:
            self.max_physical_offset = found.max_physical_offset
        self._follow_end(found)
        return found.notes

    @abstractmethod
    def _follow_end(self, end: bounds.QueueEnd) -> None:
        """Bring what else a queue holds to the end that `recover` found."""

    @abstractmethod
    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Move where the queue begins past the units that point below the log's start."""

    def _retried(self, put: Callable[[], int], lost: str) -> int:
        """Return what a put returns, after up to 30 tries, a second apart, while it is 0; then the queues are broken.

        Where no file can be, because a directory's place is taken or forbidden, one try is enough; RocketMQ waits.

        * `lost`: What the queue lacks if all fail, for the log.
        """
        for _ in range(_MAX_RETRIES if self._services.can_write() else 0):
            done = put()
            if done:
                return done
            if self.mapped_file_queue.is_barred:
                break
            self._services.clock.sleep(_SECONDS_BETWEEN)
        _LOG.error("queue %s-%d can't be written: %s", self.topic, self.queue_id, lost)
        self._services.on_error()
        return 0

    def clear_tail(self) -> None:
        """Zero the bytes after the end in the last file, so that the next restart does not read them as units.

        RocketMQ leaves them: units that a recovery dropped are back after the next one.
        """
        self._is_recovering = False
        last = self.mapped_file_queue.last_mapped_file
        if last is not None:
            last.clear_tail()

    def delete_expired_file(self, min_physical_offset: int) -> int:
        """Delete leading files whose last unit points below the log's start, never the last file; correct the minimum.

        Deletion stops at a file that has to stay, such as one that was never filled (RocketMQ:
        ``MappedFileQueue.deleteExpiredFileByOffset``).

        Returns: How many files were deleted.
        """
        count = 0
        for file in self.mapped_file_queue.mapped_files[:-1]:
            last_unit = file.select(file.file_size - self.unit_dtype.itemsize)
            if last_unit is None:
                is_expired = not file.is_available  # its deletion failed: try again
            else:
                is_expired = int.from_bytes(last_unit[:_LONG], "big", signed=True) < min_physical_offset
            if not is_expired:
                break
            file.destroy()
            self.mapped_file_queue.forget([file])
            count += 1
        self.correct_min_offset(min_physical_offset)
        return count

    def flush(self, least_pages: int) -> bool:
        """Flush units to disk, see `MappedFileQueue.flush`; True if **nothing changed**, as in Java."""
        return self.mapped_file_queue.flush(least_pages)

    def destroy(self) -> None:
        """Delete all files, and start again as a new queue."""
        self.max_physical_offset = -1
        self.mapped_file_queue.destroy()

    def close(self) -> None:
        """Release all files without flushing; they stay on disk."""
        self.mapped_file_queue.close()


class ConsumeQueue(QueueFiles):
    """The units of one queue of one topic, in files of equal size (RocketMQ: ``ConsumeQueue``).

    Unit `k` is at byte ``20 * k`` of the files' byte space. Offsets named `queue_offset` count units, physical offsets
    are bytes of the commit log, logic offsets are bytes of the queue's own files.

    System errors are raised as `OSError`, except when a unit can't be put.

    **After a crash** the queue ends before the first unit that did not reach the disk, if it is in the last three
    files; what came after is still in the log.

    * `directory`: The queue's own: ``consumequeue/TOPIC/QUEUE``.
    * `ext`: Where tags codes, store times and filter bit maps are put if the extension is enabled.

    * `max_physical_offset`: How far the last unit covers the log: to its record's end, in release 4.3 its start; -1
      before the first.
    * `min_logic_offset`: Units below it point to deleted records; bytes. Not stored.
    * `misplaced`: How many units were put after their index, because units before them were missing.
    """

    unit_dtype = UNIT_DTYPE

    def __init__(
        self, topic: str, queue_id: int, directory: Path, services: QueueServices, ext: ConsumeQueueExt | None = None
    ) -> None:
        self._units_per_file = units_per_file(services.rules.consume_queue_file_size)
        super().__init__(topic, queue_id, directory, services, self._units_per_file * CQ_STORE_UNIT_SIZE)
        self._time_search = TimeSearch(self.rules.features)
        self.ext = ext
        self.misplaced = 0
        self._index_limit = index_limit(services.rules)

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id}, {self.min_offset_in_queue}:{self.max_offset_in_queue})"

    # ---- opening

    def load(self) -> tuple[str, ...]:
        """Load the existing files, and those of the extension."""
        notes = super().load()
        return notes if self.ext is None else (*notes, *self.ext.load())

    def _follow_end(self, end: bounds.QueueEnd) -> None:
        if self.ext is not None:
            self.ext.recover()
            self.ext.truncate_by_max_address(end.ext_address)

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Move `min_logic_offset` to the first unit that points at or after the log's start.

        See `store_core.queue.consume_queue.queue_search.first_live` for the rules of the releases.
        """
        queue, features = self.mapped_file_queue, self.rules.features
        if features.resets_queue_without_files and queue.first_mapped_file is None:
            self.min_logic_offset, self.max_physical_offset = 0, -1
            return
        found = bounds.first_live(queue, self.min_logic_offset, min_physical_offset, features)
        if found is None:
            return
        self.min_logic_offset = found.logic_offset
        if self.ext is not None and is_ext_address(found.tags_code):
            self.ext.truncate_by_min_address(found.tags_code)

    # ---- putting

    def refusal_of(self, queue_offset: int) -> str | None:
        """Return why no unit can be put at an index (an invalid index, or a full queue); None if one can."""
        return index_refusal(queue_offset, self.rules) or self.full_refusal()

    def full_refusal(self) -> str | None:
        """Return the refusal of a queue that has reached the end of its last possible file; None if it has not.

        RocketMQ would continue in a file whose end overflows. Only a queue that begins near `index_limit` gets there.
        """
        if self.max_offset_in_queue < self._index_limit:
            return None
        return f"the queue is full: it ends at queue offset {self.max_offset_in_queue}, the largest there can be"

    def surely_has_room(self, largest_index: int, count: int) -> bool:
        """Return whether so many units, with indexes up to one, can't fill the queue."""
        return max(self.max_offset_in_queue, largest_index + 1) + count <= self._index_limit

    def put_message_position_info(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> bool:
        """Append a unit, once (RocketMQ: ``ConsumeQueue.putMessagePositionInfo``).

        1. A record that `max_physical_offset` covers is in the queue already: nothing happens. By release 4.9 and 5.3
           it is covered if its end is, by 4.3 if its start is.
        2. The first unit of a queue without files creates the file that holds its index. If that index isn't 0, the
           queue begins there: `min_logic_offset` is set to it, and the file is filled up to it with filler units.
        3. A unit whose index lies before the end is in the queue already: nothing happens. One whose index lies after
           the end is appended all the same, at the wrong index. Index 0 is never compared.

        In step 3, RocketMQ makes the next file first if the last is full, and leaves it empty; 5.3.3 can't load a queue
        that ends with such a file. Here there is none.

        RocketMQ moves ``maxPhysicOffset`` before it writes, so after a failed write the retry considers the record
        covered, and its unit is lost. Here it moves after the write.

        Returns: True if the unit is in the queue, or was considered to be. False if `refusal_of` has a reason, or the
        system refused to write; a retry then starts from the same state.
        """
        if self.refusal_of(queue_offset) is not None:
            return False
        covers = coverage(physical_offset, size, self.rules.features)
        if covers <= self.max_physical_offset:
            return True
        unit = np.array((physical_offset, size, tags_code), UNIT_DTYPE)
        try:
            if self._is_behind(queue_offset):
                return True
            file = self._file_for(queue_offset)
            is_put = file is not None and file.append(unit.tobytes(), seal=UNIT_SEAL)
        except OSError as error:
            _LOG.warning("queue %s-%d: record %d not indexed: %s", self.topic, self.queue_id, physical_offset, error)
            return False
        if is_put:
            self.max_physical_offset = covers
            self._note_misplaced(queue_offset > self.max_offset_in_queue - 1)
        return is_put

    def _file_for(self, queue_offset: int) -> MappedFile | None:
        """Return the file to append to, created and filled up to `queue_offset` if the queue begins there."""
        wanted = queue_offset * CQ_STORE_UNIT_SIZE
        queue = self.mapped_file_queue
        file = queue.get_last_mapped_file(wanted)
        if file is None or file.wrote_position:
            return file
        if not file.segment.is_new and not self._is_recovering:
            file.set_position(0, clear_tail=True)
        if file.first_create_in_queue and queue_offset:
            self.min_logic_offset = queue.flushed_where = queue.committed_where = wanted
            blanks = wanted % queue.file_size // CQ_STORE_UNIT_SIZE
            file.append(pre_blank(blanks).tobytes())
        return file

    def _is_behind(self, queue_offset: int) -> bool:
        """Return whether an index lies before the end of the queue."""
        return 0 < queue_offset * CQ_STORE_UNIT_SIZE < self.mapped_file_queue.max_wrote_position

    def _note_misplaced(self, count: int) -> None:
        if count and not self.misplaced:
            index = self.max_offset_in_queue
            _LOG.warning("queue %s-%d: the units before index %d are missing", self.topic, self.queue_id, index)
        self.misplaced += count

    def put_message_position_info_wrapper(self, request: DispatchRequest) -> bool:
        """Append the unit of a record: up to 30 tries, a second apart, then the queues count as broken.

        With an extension, the record's tags code, store time and bit map are put there first, and the unit gets their
        address, or the tags code itself if that fails. RocketMQ puts them again for each try
        (``putMessagePositionInfoWrapper``). Units in light queues are put by the store, not here.

        Returns: False if the unit was refused, see `refusal_of`, or could not be written: then `on_error` was called.
        """
        if self.refusal_of(request.consume_queue_offset) is not None:
            return False
        tags_code = request.tags_code
        if self.ext is not None and self._services.can_write():
            address = self.ext.put(tags_code, request.store_timestamp, request.bit_map)
            if address is not None and is_ext_address(address):
                tags_code = address
        size, queue_offset = request.message_size, request.consume_queue_offset
        return bool(self._put_with_retries(request.physical_offset, size, tags_code, queue_offset))

    def _put_with_retries(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> int:
        return self._retried(
            partial(self.put_message_position_info, physical_offset, size, tags_code, queue_offset),
            f"the record at offset {physical_offset} is not in it, and the store takes no more messages. Remove the "
            f"cause, which was logged before this, and open the store again",
        )

    def put(self, units: PutUnits, start: int, stop: int) -> bool:
        """Append a range of units whose indexes are sound, as putting each by itself, with retries; False on failure.

        The caller fills the extension. If one can't be written, `on_error` is called and the rest is skipped.
        """
        while start < stop:
            done = self._put_some(units, start, units.run_end(start, stop))
            if not done:
                return False
            start += done
        return True

    def _put_some(self, units: PutUnits, start: int, stop: int) -> int:
        """Put or skip leading units of a run: one at a file's start or after an error; return how many, 0 on failure.

        As indexes ascend, units that are appended at their place or behind it go on being so.
        """
        covered = units.count_covered(start, stop, self.max_physical_offset)
        if covered:
            return covered
        if self.max_offset_in_queue >= self._index_limit:
            return 0
        file = self.mapped_file_queue.last_mapped_file
        if file is None or file.is_full or not file.wrote_position or not self._services.can_write():
            return self._put_one(units, start)
        end = file.file_from_offset + file.wrote_position
        behind = units.count_behind(start, stop, end)
        if behind:
            return behind
        room = (file.file_size - file.wrote_position) // CQ_STORE_UNIT_SIZE
        count = (
            min(stop - start, room) if units.queue_offset[start] else 1
        )  # index 0 is never compared, so it may lie before the end
        stop = start + count
        try:
            file.append(units.bytes[start * CQ_STORE_UNIT_SIZE : stop * CQ_STORE_UNIT_SIZE], seal=UNIT_SEAL)
        except OSError as error:
            _LOG.warning("queue %s-%d: %d records not indexed: %s", self.topic, self.queue_id, count, error)
            return self._put_one(units, start)
        self.max_physical_offset = int(units.covers[stop - 1])
        self._note_misplaced(units.count_misplaced(start, stop, end // CQ_STORE_UNIT_SIZE))
        return count

    def _put_one(self, units: PutUnits, place: int) -> int:
        physical_offset, size, tags_code = units.units[place].item()
        return self._put_with_retries(physical_offset, size, tags_code, int(units.queue_offset[place]))

    # ---- reading

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

    def get_index_buffer(self, queue_offset: int) -> UnitArray | FileUnits | None:
        """Return the units from an index to the end of its file, which are read when they are asked for.

        None below the minimum, beyond the end, and in a hole between files. They outlive the file.
        """
        wanted = queue_offset * CQ_STORE_UNIT_SIZE
        if queue_offset < 0 or wanted < self.min_logic_offset:
            return None
        file = self.mapped_file_queue.find_mapped_file_by_offset(wanted)
        return FileUnits(file, begin=wanted % self.mapped_file_queue.file_size) or None

    @property
    def last_unit(self) -> CqUnit | None:
        """The newest unit; None if there is none above the minimum (RocketMQ 5.x: ``getLatestUnit``)."""
        queue_offset = self.max_offset_in_queue - 1
        units = self.get_index_buffer(queue_offset)
        return CqUnit.of(units, 0, queue_offset) if units is not None else None

    def get_offset_in_queue_by_time(self, timestamp: int, boundary: BoundaryType, log: LogTimes) -> int:
        """Return the index of the message stored at a time; for the rules see `queue_search`.

        * `timestamp`: Ms since 1970.
        * `boundary`: For release 5.3; the others have a rule of their own, and ignore it.
        """
        found = self._time_search.find(self.mapped_file_queue, self.min_logic_offset, timestamp, boundary, log)
        if not self.rules.features.keeps_found_offset_in_queue:
            return found
        return min(max(found, self.min_offset_in_queue), self.max_offset_in_queue)

    # ---- truncating and closing

    def truncate_dirty_logic_files(self, physical_offset: int) -> tuple[str, ...]:
        """Drop the units that point at or after the log's new end.

        See `store_core.queue.consume_queue.queue_search.truncate`. `max_physical_offset` becomes that of the
        last unit; for an empty queue `physical_offset`, in release 4.3 one less.

        Returns: What was dropped.
        """
        queue, features = self.mapped_file_queue, self.rules.features
        self.max_physical_offset = physical_offset if features.covers_log_to_record_end else physical_offset - 1
        found = bounds.truncate(queue, UNIT_DTYPE, physical_offset, features)
        if found.max_physical_offset is not None:
            self.max_physical_offset = found.max_physical_offset
        elif self.ext is not None:
            self.ext.truncate_by_max_address(_NO_EXT_ADDRESS)
        return found.notes

    def flush(self, least_pages: int) -> bool:
        """Flush units and extension to disk."""
        unchanged = super().flush(least_pages)
        return unchanged if self.ext is None else self.ext.flush(least_pages) and unchanged

    def destroy(self) -> None:
        """Delete all files, and start again as a new queue."""
        super().destroy()
        self.min_logic_offset = 0
        if self.ext is not None:
            self.ext.destroy()

    def close(self) -> None:
        """Release all files without flushing; they stay on disk."""
        super().close()
        if self.ext is not None:
            self.ext.close()
