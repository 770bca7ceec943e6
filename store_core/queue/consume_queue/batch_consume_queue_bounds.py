# SPDX-License-Identifier: Apache-2.0
"""Where a batch consume queue ends: found from its units after a restart, or after the log was truncated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

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

__all__ = ["BatchQueueEnd", "recover", "truncate"]

_FILES_LOOKED_AT: Final = 3


class BatchQueueEnd(NamedTuple):
    """The end of a queue as found from its units.

    Attributes
    ----------
    max_physical_offset : int or None
        Where the last unit's record starts; None without a unit.
    notes : tuple of str
        What was dropped.
    """

    max_physical_offset: int | None
    notes: tuple[str, ...] = ()


def recover(queue: MappedFileQueue, *, clear_tail: bool) -> BatchQueueEnd | None:
    """End a queue before the first invalid unit in its last three files, and delete the files after it.

    (RocketMQ: ``BatchConsumeQueue.recover``.)

    Returns
    -------
    BatchQueueEnd or None
        None without files.

    Raises
    ------
    OSError
        As raised by the system.
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

    Raises
    ------
    OSError
        As raised by the system.
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
