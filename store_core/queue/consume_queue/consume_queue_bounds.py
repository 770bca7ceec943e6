# SPDX-License-Identifier: Apache-2.0
"""Where a consume queue begins and ends: found from its units after a restart, or after the log was truncated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.queue.consume_queue.consume_queue_ext import LAST_EXT_ADDRESS
from store_core.queue.consume_queue_unit import CQ_STORE_UNIT_SIZE, count_valid, coverages, units_of, whole_file

if TYPE_CHECKING:
    from store_core.files.file_system import FileSystem
    from store_core.files.mapped_file import MappedFile
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.format.release_rules import ReleaseRules
    from store_core.queue.consume_queue_unit import UnitArray

__all__ = ["FirstLive", "QueueEnd", "first_live", "recover", "truncate"]

_NO_EXT_ADDRESS: Final = 1
_FILES_LOOKED_AT: Final = 3


class QueueEnd(NamedTuple):
    """The end of a queue as found from its units."""

    max_physical_offset: int | None
    """How far the last unit covers the log: to its record's end, in release 4.3 the start; None without a unit."""
    ext_address: int  # the last tags code that is an address in the extension; 1 if there is none
    notes: tuple[str, ...]  # what was dropped


class FirstLive(NamedTuple):
    """The first unit that points to an existing record: its place in bytes, and its tags code."""

    logic_offset: int
    tags_code: int


def recover(queue: MappedFileQueue, features: ReleaseRules, *, clear_tail: bool) -> QueueEnd | None:
    """End a queue before the first invalid unit in its last three files, and delete the files after it.

    Damage in older files goes unnoticed, and so does a missing file (RocketMQ: ``ConsumeQueue.recover``).

    Returns: None without files.

    Raises `OSError`: As raised by the system.
    """
    files = queue.mapped_files[-_FILES_LOOKED_AT:]
    if not files:
        return None
    end, covered, address = files[0].file_from_offset, None, _NO_EXT_ADDRESS
    notes: tuple[str, ...] = ()
    for file in files:
        units = _units(file)
        count = count_valid(units)
        end = file.file_from_offset + count * CQ_STORE_UNIT_SIZE
        covered, address = _last(units[:count], features, covered, address)
        if count < len(units):
            notes = _notes(units, count, file, queue)
            break
    queue.flushed_where = queue.committed_where = end
    queue.truncate_dirty_files(end, clear_tail=clear_tail)
    return QueueEnd(covered, address, notes)


def _units(file: MappedFile) -> UnitArray:
    view = file.select(0)
    return units_of(view if view is not None else memoryview(b""))


def _last(units: UnitArray, features: ReleaseRules, covered: int | None, address: int) -> tuple[int | None, int]:
    """Return how far the last of some units covers the log, and the last address among their tags codes."""
    if not len(units):
        return covered, address
    tags_codes = units["tags_code"]
    addresses = np.flatnonzero(tags_codes <= LAST_EXT_ADDRESS)
    return int(coverages(units[-1:], features)[0]), int(tags_codes[addresses[-1]]) if len(addresses) else address


def _notes(units: UnitArray, count: int, file: MappedFile, queue: MappedFileQueue) -> tuple[str, ...]:
    physical_offset, size, tags_code = units[count].item()
    behind = sum(1 for other in queue.mapped_files if other.file_from_offset > file.file_from_offset)
    if not (behind or physical_offset or size or tags_code):
        return ()
    place = f"{file.path}: the queue ends at byte {count * CQ_STORE_UNIT_SIZE}"
    return (f"{place}, where a unit has position {physical_offset} and size {size}; {behind} later files dropped",)


def truncate(
    queue: MappedFileQueue, physical_offset: int, file_system: FileSystem, features: ReleaseRules, *, clear_tail: bool
) -> QueueEnd:
    """End a queue before the first unit that points at or after `physical_offset` (``truncateDirtyLogicFiles``).

    Works backwards from the last file: a file whose first unit does so is deleted; the first file that stays ends at
    the first other unit that does, or that is invalid. Its own first unit is not checked for validity, so a file of
    zeros keeps one bogus unit. Units after the wrote position count. (With files of one unit RocketMQ never returns.)

    Returns: `max_physical_offset` is None if no file is left.
    """
    notes: list[str] = []
    while (file := queue.last_mapped_file) is not None:
        units = whole_file(file, file_system)
        if int(units["physical_offset"][0]) < physical_offset:
            position = file.wrote_position
            kept = 1 + count_valid(units[1:])
            beyond = np.flatnonzero(units["physical_offset"][1:kept] >= physical_offset)
            kept = int(beyond[0]) + 1 if len(beyond) else kept
            end = kept * CQ_STORE_UNIT_SIZE
            file.set_position(end, clear_tail=clear_tail)
            if end < position:
                notes.append(
                    f"{file.path}: cut from {position} to {end} bytes, where the log ends at {physical_offset}"
                )
            return QueueEnd(*_last(units[:kept], features, None, _NO_EXT_ADDRESS), tuple(notes))
        queue.delete_last_mapped_file()
        notes.append(f"{file.path}: dropped, all its units point at or after {physical_offset}, where the log ends")
    return QueueEnd(None, _NO_EXT_ADDRESS, tuple(notes))


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
        return _first_hit(_units(file), file.file_from_offset, min_physical_offset)
    if min_logic_offset >= queue.max_offset:
        return None
    newest = last.select(last.read_position - CQ_STORE_UNIT_SIZE, CQ_STORE_UNIT_SIZE)
    if newest is not None and int(units_of(newest)["physical_offset"][0]) < min_physical_offset:
        return FirstLive(queue.max_offset, _NO_EXT_ADDRESS)
    return _search_live(file, min_logic_offset, min_physical_offset)


def _search_live(file: MappedFile, min_logic_offset: int, min_physical_offset: int) -> FirstLive | None:
    """Perform steps 3 and 4 of `first_live`."""
    start = max(min_logic_offset - file.file_from_offset, 0)
    view = file.select(start)
    if view is None:
        return None
    units = units_of(view)
    is_intact = min_logic_offset >= file.file_from_offset
    if is_intact and int(units["physical_offset"][0]) >= min_physical_offset:
        return None
    low, high = _halve(units, min_physical_offset)
    first = file.file_from_offset + start + low * CQ_STORE_UNIT_SIZE
    return _first_hit(units[low : high + 1], first, min_physical_offset)


def _first_hit(units: UnitArray, logic_offset: int, min_physical_offset: int) -> FirstLive | None:
    hits = units["physical_offset"] >= min_physical_offset
    if not hits.any():
        return None
    index = int(hits.argmax())
    return FirstLive(logic_offset + index * CQ_STORE_UNIT_SIZE, int(units["tags_code"][index]))


def _halve(units: UnitArray, min_physical_offset: int) -> tuple[int, int]:
    """Narrow the boundary down to two units, or one that points exactly to the log's start."""
    low, high = 0, len(units) - 1
    while high - low > 1:
        middle = (low + high) // 2
        found = int(units["physical_offset"][middle])
        if found == min_physical_offset:
            return middle, middle
        if found > min_physical_offset:
            high = middle
        else:
            low = middle
    return low, high
