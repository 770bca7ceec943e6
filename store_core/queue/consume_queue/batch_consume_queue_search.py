# SPDX-License-Identifier: Apache-2.0
"""Search in a batch consume queue: for its ends, and for the unit that holds an index, or that was stored at a time.

The steps are exactly RocketMQ's (``BatchConsumeQueue.getBatchMsgIndexBuffer``, ``getOffsetInQueueByTime``), because
with units out of order the result depends on which of them are visited. RocketMQ 5.3.3 finds files through a cache of
their first units, with the same result as reading the files. The ends are found from the units after a restart, or
after the log was truncated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.queue.consume_queue.time_search import BoundaryType
from store_core.queue.units.batch_consume_queue_unit import (
    BATCH_UNIT_SIZE,
    BatchCqUnit,
    are_valid,
    count_true,
    readable_units,
    whole_file,
)

if TYPE_CHECKING:
    from store_core.files.file_system import FileSystem
    from store_core.files.mapped_file import MappedFile
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.queue.units.batch_consume_queue_unit import BatchUnitArray

__all__ = ["BatchQueueEnd", "recover", "truncate", "units_from", "units_of_time"]


_FILES_LOOKED_AT: Final = 3


class BatchQueueEnd(NamedTuple):
    """The end of a queue as found from its units."""

    max_physical_offset: int | None  # where the last unit's record starts; None without a unit
    notes: tuple[str, ...] = ()  # what was dropped


def recover(queue: MappedFileQueue, *, clear_tail: bool) -> BatchQueueEnd | None:
    """End a queue before the first invalid unit in its last three files, and delete the files after it.

    (RocketMQ: ``BatchConsumeQueue.recover``.)

    Returns: None without files.

    Raises `OSError`: As raised by the system.
    """
    files = queue.mapped_files[-_FILES_LOOKED_AT:]
    if not files:
        return None
    end, start_of_last = files[0].file_from_offset, None
    notes: tuple[str, ...] = ()
    for file in files:
        units = readable_units(file)
        count = count_true(are_valid(units))
        end = file.file_from_offset + count * BATCH_UNIT_SIZE
        if count:
            start_of_last = int(units["physical_offset"][count - 1])
        if count < len(units):
            notes = _dropped(units, count, file, queue)
            break
    queue.flushed_where = queue.committed_where = end
    queue.truncate_dirty_files(end, clear_tail=clear_tail)
    return BatchQueueEnd(start_of_last, notes)


def _dropped(units: BatchUnitArray, count: int, file: MappedFile, queue: MappedFileQueue) -> tuple[str, ...]:
    """Return a note on what a recovery drops; empty if only zeros follow."""
    behind = sum(1 for other in queue.mapped_files if other.file_from_offset > file.file_from_offset)
    if not behind and not any(units[count].tobytes()):
        return ()
    unit = BatchCqUnit.of(units, count)
    found = f"a unit has position {unit.physical_offset} and size {unit.store_size}"
    return (f"{file.path}: the queue ends at {count * BATCH_UNIT_SIZE}, where {found}; {behind} later files dropped",)


def truncate(
    queue: MappedFileQueue, physical_offset: int, file_system: FileSystem, *, clear_tail: bool
) -> BatchQueueEnd:
    """End a queue before the first unit that points at or after `physical_offset`.

    Works backwards from the last file: a file whose first unit does so is deleted; the first file that stays ends at
    the first other unit that does, or that is invalid. Its own first unit is not checked for validity. (RocketMQ:
    ``BatchConsumeQueue.truncateDirtyLogicFiles``, which never returns if files hold a single unit.)
    """
    notes: list[str] = []
    while (file := queue.last_mapped_file) is not None:
        units = whole_file(file, file_system)
        if int(units["physical_offset"][0]) < physical_offset:
            others = units[1:]
            kept = 1 + count_true(are_valid(others) & (others["physical_offset"] < physical_offset))
            position, end = file.wrote_position, kept * BATCH_UNIT_SIZE
            file.set_position(end, clear_tail=clear_tail)
            if end < position:
                notes.append(f"{file.path}: cut from {position} to {end} bytes, the log ends at {physical_offset}")
            return BatchQueueEnd(int(units["physical_offset"][kept - 1]), tuple(notes))
        queue.delete_last_mapped_file()
        notes.append(f"{file.path}: dropped, its units point at or after {physical_offset}, where the log ends")
    return BatchQueueEnd(None, tuple(notes))


def units_from(queue: MappedFileQueue, queue_offset: int) -> BatchUnitArray | None:
    """Return the units from the one that holds an index to the end of its file; None if there is none.

    The file is the last one that begins at or before the index.
    """
    for file in reversed(queue.mapped_files):
        units = readable_units(file)
        if len(units) and int(units["msg_base_offset"][0]) <= queue_offset:
            index = _floor(units, queue_offset)
            return units[index:] if index is not None else None
    return None


def _floor(units: BatchUnitArray, queue_offset: int) -> int | None:
    """Find the last unit that begins at or before an index (RocketMQ: ``BatchConsumeQueue.binarySearch``)."""
    bases = units["msg_base_offset"]
    left, right = 0, len(units) - 1
    while left <= right:
        middle = (left + right) // 2
        base = int(bases[middle])
        if base == queue_offset:
            return middle
        if base > queue_offset:
            right = middle - 1
        elif middle > left:
            left = middle
        else:
            following = middle + 1
            return following if following < len(units) and int(bases[following]) <= queue_offset else middle
    return None


def units_of_time(queue: MappedFileQueue, timestamp: int, boundary: BoundaryType) -> BatchUnitArray | None:
    """Return the units from the one for a time to the end of its file; None where RocketMQ returns -1.

    At or after the time of the file's last unit it is that unit, for both boundaries. Before that,
    `BoundaryType.LOWER` selects the first unit stored at the time or later. `BoundaryType.UPPER` often selects none, or
    not the last one before the time, as in RocketMQ.
    """
    units = _units_for_time(queue, timestamp)
    if not len(units):
        return None
    if timestamp >= int(units["store_timestamp"][-1]):
        return units[-1:]
    index = _at_time(units, timestamp, is_lower=boundary is BoundaryType.LOWER)
    return units[index:] if index is not None else None


def _units_for_time(queue: MappedFileQueue, timestamp: int) -> BatchUnitArray:
    """Choose a file: the last if it begins in time, else the one that begins last of those that do, else the first."""
    last = readable_units(queue.last_mapped_file)
    if len(last) and int(last["store_timestamp"][0]) <= timestamp:
        return last
    filled = [units for file in queue.mapped_files if len(units := readable_units(file))]
    begun = [units for units in filled if int(units["store_timestamp"][0]) <= timestamp]
    # Of files that begin at the same time, the later one: `max` returns the first.
    best = max(reversed(begun), key=lambda units: int(units["store_timestamp"][0]), default=None)
    return best if best is not None else readable_units(queue.first_mapped_file)


def _at_time(units: BatchUnitArray, timestamp: int, *, is_lower: bool) -> int | None:
    """Search the units of a file (RocketMQ: ``BatchConsumeQueue.binarySearchRight``)."""
    times = units["store_timestamp"]
    left, right = 0, len(units) - 1
    while left <= right:
        middle = (left + right) // 2
        time = int(times[middle])
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
