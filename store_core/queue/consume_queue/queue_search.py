# SPDX-License-Identifier: Apache-2.0
"""Where a queue begins and ends, found from its units after a restart or a truncation, and where a time is in it.

A search by store time reads it from the log for each unit visited.

**Release 5.3** (5.1.1 and later) has two boundaries. `BoundaryType.LOWER` selects the first message stored at the time
or later, `BoundaryType.UPPER` the last one stored at the time or before. With times t1, t1, t1, t3, t3 at indexes 0 to
4, and t2 between them, LOWER selects 3 and UPPER selects 2. The file is chosen by the store times of its first and last
unit; equal times are searched in that file only. The result is limited to the queue's bounds.

**Releases 4.3 and 4.9** (5.1.0 and before) choose the file by its modification time, in ms: a copy of a store that does
not preserve these times has different results. In the file they search for the nearest message; of two equally near
ones they return the earlier, of those stored at exactly that time any, and after the last message the last.

The steps are exactly RocketMQ's (``ConsumeQueue.binarySearchInQueueByTime``,
``MappedFileQueue.getConsumeQueueMappedFileByTime``; before 5.1.1 ``ConsumeQueue.getOffsetInQueueByTime``): where times
do not increase, or records can't be read, the result depends on which units are visited.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from store_core.queue.consume_queue.consume_queue_ext import LAST_EXT_ADDRESS
from store_core.queue.consume_queue_unit import CQ_STORE_UNIT_SIZE, FileUnits, are_valid, count_leading, coverages

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.files.mapped_file import MappedFile
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.format.release_rules import ReleaseRules
    from store_core.queue.consume_queue_unit import UnitArray


_NO_EXT_ADDRESS: Final = 1
_FILES_LOOKED_AT: Final = 3


class QueueEnd(NamedTuple):
    """The end of a queue as found from its units."""

    max_physical_offset: int | None
    """How far the last unit covers the log: to its record's end, in release 4.3 and of a batch the start; None without
    a unit."""
    ext_address: int  # the last tags code that is an address in the extension; 1 if there is none
    notes: tuple[str, ...]  # what was dropped


class FirstLive(NamedTuple):
    """The first unit that points to an existing record: its place in bytes, and its tags code."""

    logic_offset: int
    tags_code: int


def recover(queue: MappedFileQueue, kind: np.dtype[np.void], features: ReleaseRules) -> QueueEnd | None:
    """End a queue before the first invalid unit in its last three files, and delete the files after it.

    Damage in older files goes unnoticed, and so does a missing file (RocketMQ: ``ConsumeQueue.recover``,
    ``BatchConsumeQueue.recover``). `kind` is `UNIT_DTYPE` or `BATCH_UNIT_DTYPE`.

    Returns: None without files.

    Raises `OSError`: As raised by the system.
    """
    files = queue.mapped_files[-_FILES_LOOKED_AT:]
    if not files:
        return None
    end, found = files[0].file_from_offset, QueueEnd(None, _NO_EXT_ADDRESS, ())
    for file in files:
        units = FileUnits(file, kind)[:]
        count = count_leading(units, are_valid)
        end = file.file_from_offset + count * kind.itemsize
        found = _last(units[:count], features, found)
        if count < len(units):
            found = found._replace(notes=_notes(units, count, file, queue))
            break
    queue.flushed_where = queue.committed_where = end
    queue.truncate_dirty_files(end, clear_tail=False)
    return found


def _last(units: UnitArray, features: ReleaseRules, before: QueueEnd) -> QueueEnd:
    """Return the end of a queue that these units continue."""
    if not len(units):
        return before
    tags_codes = units["tags_code"]
    addresses = np.flatnonzero(tags_codes <= LAST_EXT_ADDRESS)
    address = int(tags_codes[addresses[-1]]) if len(addresses) else before.ext_address
    return before._replace(max_physical_offset=int(coverages(units[-1:], features)[0]), ext_address=address)


def _notes(units: UnitArray, count: int, file: MappedFile, queue: MappedFileQueue) -> tuple[str, ...]:
    """Return a note on what a recovery drops; none if only zeros follow."""
    behind = sum(1 for other in queue.mapped_files if other.file_from_offset > file.file_from_offset)
    if not behind and not any(units[count].tobytes()):
        return ()
    physical_offset, size = units[count].item()[:2]
    place = f"{file.path}: the queue ends at byte {count * units.itemsize}"
    return (f"{place}, where a unit has position {physical_offset} and size {size}; {behind} later files dropped",)


def truncate(queue: MappedFileQueue, kind: np.dtype[np.void], physical_offset: int, features: ReleaseRules) -> QueueEnd:
    """End a queue before the first unit that points at or after `physical_offset` (``truncateDirtyLogicFiles``).

    Works backwards from the last file: a file whose first unit does so is deleted; the first file that stays ends at
    the first other unit that does, or that is invalid. Its own first unit is not checked for validity, so a file of
    zeros keeps one bogus unit. Units after the wrote position count. (With files of one unit RocketMQ never returns.)

    Returns: `max_physical_offset` is None if no file is left.
    """
    notes: list[str] = []
    found = QueueEnd(None, _NO_EXT_ADDRESS, ())
    while (file := queue.last_mapped_file) is not None:
        units = np.frombuffer(file.segment.view(0, file.file_size), kind)
        if int(units["physical_offset"][0]) < physical_offset:
            position = file.wrote_position
            kept = 1 + count_leading(units[1:], are_valid)
            beyond = np.flatnonzero(units["physical_offset"][1:kept] >= physical_offset)
            kept = int(beyond[0]) + 1 if len(beyond) else kept
            end = kept * kind.itemsize
            file.set_position(end, clear_tail=True)
            if end < position:
                notes.append(
                    f"{file.path}: cut from {position} to {end} bytes, where the log ends at {physical_offset}"
                )
            found = _last(units[:kept], features, found)
            break
        queue.delete_last_mapped_file()
        notes.append(f"{file.path}: dropped, all its units point at or after {physical_offset}, where the log ends")
    queue.flushed_where = min(queue.flushed_where, queue.max_offset)
    return found._replace(notes=tuple(notes))


def first_live(
    queue: MappedFileQueue, min_logic_offset: int, min_physical_offset: int, features: ReleaseRules
) -> FirstLive | None:
    """Find the first unit that points at or after the log's start, as ``ConsumeQueue.correctMinOffset`` does.

    Only the first file is searched. If it has none, the minimum stays until that file is deleted. Filler units point to
    0, so they are found if the log starts there.

    Releases before 5 check every unit from the file's start on. With `ReleaseRules.halves_queue_for_min_offset` the
    search:

    1. stops if the minimum is the end already;
    2. makes the end the minimum if even the last unit points below the log's start: an empty queue keeps its numbers;
    3. stops if the minimum lies in the first file, and points into the log;
    4. otherwise bisects the units after the minimum. It assumes sorted units, so damage and filler affect the result.

    If the last file is empty, RocketMQ 5.3.3 throws at step 2, and does not start; here the step is skipped.

    Returns: None if the minimum does not change.
    """
    file, last = queue.first_mapped_file, queue.last_mapped_file
    if file is None or last is None:
        return None
    if not features.halves_queue_for_min_offset:
        return _first_hit(FileUnits(file), file.file_from_offset, min_physical_offset)
    if min_logic_offset >= queue.max_offset:
        return None
    newest = FileUnits(last)
    if len(newest) and int(newest[-1]["physical_offset"]) < min_physical_offset:
        return FirstLive(queue.max_offset, _NO_EXT_ADDRESS)
    return _search_live(file, min_logic_offset, min_physical_offset)


def _search_live(file: MappedFile, min_logic_offset: int, min_physical_offset: int) -> FirstLive | None:
    """Perform steps 3 and 4 of `first_live`."""
    start = max(min_logic_offset - file.file_from_offset, 0)
    units = FileUnits(file, begin=start)
    is_intact = min_logic_offset >= file.file_from_offset
    if not len(units) or (is_intact and int(units[0]["physical_offset"]) >= min_physical_offset):
        return None
    low, high = _halve(units, min_physical_offset)
    first = file.file_from_offset + start + low * CQ_STORE_UNIT_SIZE
    return _first_hit(units[low : high + 1], first, min_physical_offset)


def _first_hit(units: UnitArray | FileUnits, logic_offset: int, min_physical_offset: int) -> FirstLive | None:
    index = count_leading(units, lambda some: some["physical_offset"] < min_physical_offset)
    if index == len(units):
        return None
    return FirstLive(logic_offset + index * CQ_STORE_UNIT_SIZE, int(units[index]["tags_code"]))


def _halve(units: FileUnits, min_physical_offset: int) -> tuple[int, int]:
    """Narrow the boundary down to two units, or one that points exactly to the log's start."""
    low, high = 0, len(units) - 1
    while high - low > 1:
        middle = (low + high) // 2
        found = int(units[middle]["physical_offset"])
        if found == min_physical_offset:
            return middle, middle
        if found > min_physical_offset:
            high = middle
        else:
            low = middle
    return low, high


class BoundaryType(Enum):
    """Which of the messages around a time to find (RocketMQ 5.x: ``BoundaryType``)."""

    LOWER = "lower"
    UPPER = "upper"


class LogTimes(NamedTuple):
    """What a search by store time asks of the log."""

    store_time: Callable[[int, int], int]
    """``store_time(physical_offset, size)`` returns a record's store timestamp, -1 if it can't be read (RocketMQ:
    ``CommitLog.pickupStoreTimestamp``)."""
    min_offset: int  # where the log starts; units that point below it count as too early


class SearchedRange(NamedTuple):
    """The range of a file's units to search.

    * `floor`, `ceiling`: Index in the file of the first and the last unit.
    """

    start: int  # offset of the file in the queue; bytes
    floor: int
    ceiling: int

    def queue_offset(self, index: int) -> int:
        """Return the queue index of a unit of the file; Java rounds places before the first file towards 0."""
        return max(self.start + index * CQ_STORE_UNIT_SIZE, 0) // CQ_STORE_UNIT_SIZE

    def queue_offset_or_nowhere(self, index: int) -> int:
        """Return the queue index of a unit; for -1, as RocketMQ does, that of the byte before the file."""
        return self.queue_offset(index) if index >= 0 else max(self.start - 1, 0) // CQ_STORE_UNIT_SIZE


class TimeSearch:
    """Search of one queue; it remembers the first and last time of files, as RocketMQ does."""

    def __init__(self, features: ReleaseRules) -> None:
        self._by_boundary = features.searches_time_by_boundary
        self._first_times: WeakKeyDictionary[MappedFile, int] = WeakKeyDictionary()
        self._last_times: WeakKeyDictionary[MappedFile, int] = WeakKeyDictionary()

    def find(
        self, queue: MappedFileQueue, min_logic_offset: int, timestamp: int, boundary: BoundaryType, log: LogTimes
    ) -> int:
        """Return the index of the message for a time; 0 if there is none. It may be outside the queue's bounds.

        * `min_logic_offset`: Where the queue begins; bytes.
        * `timestamp`: Ms since 1970.
        * `boundary`: Ignored before release 5.3.
        """
        if self._by_boundary:
            file = self._file_by_time(queue, timestamp, boundary, log)
        else:
            file = queue.get_mapped_file_by_time(timestamp)
        units = FileUnits(file)
        if file is None or not len(units):
            return 0
        floor = max(min_logic_offset - file.file_from_offset, 0) // CQ_STORE_UNIT_SIZE
        searched = SearchedRange(file.file_from_offset, floor, len(units) - 1)
        times = UnitTimes(units, log)
        if self._by_boundary:
            return bounded(searched, times, timestamp, boundary)
        return _nearest(searched, times, timestamp)

    def _file_by_time(
        self, queue: MappedFileQueue, timestamp: int, boundary: BoundaryType, log: LogTimes
    ) -> MappedFile | None:
        """Choose the file by the store times of its first and last unit; the last file has no upper limit."""
        files = queue.mapped_files
        for file in files:
            _note_time(self._first_times, file, 0, log)
        for file in files[:-1]:
            _note_time(self._last_times, file, file.file_size - CQ_STORE_UNIT_SIZE, log)
        if boundary is BoundaryType.LOWER:
            late_enough = (file for file in files[:-1] if self._last_times.get(file, -1) >= timestamp)
            return next(late_enough, files[-1] if files else None)
        return next((file for file in reversed(files) if self._first_times.get(file, -1) <= timestamp), None)


def _note_time(times: WeakKeyDictionary[MappedFile, int], file: MappedFile, position: int, log: LogTimes) -> None:
    """Remember the store time of a unit; one that can't be read is tried again next time."""
    if file in times:
        return
    units = FileUnits(file, begin=position)
    if len(units):
        physical_offset, size, _ = units[0].item()
        time = log.store_time(physical_offset, size)
        if time > 0:
            times[file] = time


class UnitTimes:
    """What a search asks of the units of a file; for a queue that is not in files there is a subclass."""

    def __init__(self, units: FileUnits, log: LogTimes) -> None:
        self._place = lru_cache(1)(lambda index: units[index].item()[:2])
        self._log = log

    def of(self, index: int) -> int:
        """Return the store time of a unit; -1 if its record can't be read."""
        return self._log.store_time(*self._place(index))

    def is_gone(self, index: int) -> bool:
        """Return whether a unit points below the log's start."""
        return self._place(index)[0] < self._log.min_offset


class _Around(NamedTuple):
    """Units around a time, as far as a search has visited them; -1 for none.

    * `left`, `right`: Index of the last unit that is earlier, or gone, and of the first one that is later.
    * `left_time`, `right_time`: Ms since 1970; `left_time` is that of the last earlier unit that is not gone.
    """

    equal: int = -1  # index of a unit of exactly that time; if there is one, the others are -1
    left: int = -1
    left_time: int = -1
    right: int = -1
    right_time: int = -1


def _bisect(searched: SearchedRange, times: UnitTimes, timestamp: int) -> _Around | None:
    """Bisect one file until a unit has the time, or the range is empty; None at a record that can't be read."""
    low, high = searched.floor, searched.ceiling
    left = left_time = right = right_time = -1
    while high >= low:
        middle = (low + high) // 2
        if times.is_gone(middle):
            low, left = middle + 1, middle
            continue
        time = times.of(middle)
        if time < 0:
            return None
        if time == timestamp:
            return _Around(equal=middle)
        if time > timestamp:
            high, right, right_time = middle - 1, middle, time
        else:
            low, left, left_time = middle + 1, middle, time
    return _Around(-1, left, left_time, right, right_time)


def _nearest(searched: SearchedRange, times: UnitTimes, timestamp: int) -> int:
    """Search one file by the rules before 5.1.1."""
    around = _bisect(searched, times, timestamp)
    if around is None:
        return 0
    if around.equal >= 0:
        return searched.queue_offset(around.equal)
    is_right_nearer = around.right_time != -1 and timestamp - around.left_time > around.right_time - timestamp
    if around.left_time == -1 or is_right_nearer:
        return searched.queue_offset_or_nowhere(around.right)
    return searched.queue_offset(around.left)


def bounded(searched: SearchedRange, times: UnitTimes, timestamp: int, boundary: BoundaryType) -> int:
    """Search a file, or all of a queue, by the rules of 5.3; times outside the range are handled first."""
    is_lower = boundary is BoundaryType.LOWER
    if searched.floor > searched.ceiling:
        return 0
    if times.of(searched.ceiling) < timestamp:
        return searched.queue_offset(searched.ceiling + is_lower)
    if times.of(searched.floor) > timestamp:
        return searched.queue_offset(0) if is_lower else 0
    around = _bisect(searched, times, timestamp)
    if around is None:
        return 0
    if around.equal >= 0:
        return searched.queue_offset(_last_equal(searched, times, around.equal, timestamp, -1 if is_lower else 1))
    return searched.queue_offset_or_nowhere(around.right if is_lower else around.left)


def _last_equal(searched: SearchedRange, times: UnitTimes, index: int, timestamp: int, step: int) -> int:
    """Move over neighbours with the same time, in direction `step`, within the range."""
    while searched.floor <= index + step <= searched.ceiling and times.of(index + step) == timestamp:
        index += step
    return index
