# SPDX-License-Identifier: Apache-2.0
"""What there is to note of a log that was exported: segments that are missing, and what follows its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.errors import SegmentVanishedError
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import layout_problems, store_roots
from store_core.store.read.follow.log_segments import LogSegments
from store_core.store.read.found_end import FoundEnd, segment_end

if TYPE_CHECKING:
    from store_core.files.store_path import StorePaths
    from store_core.store.read.follow.log_position import LogPosition

__all__ = ["notes_after", "notes_on_gaps"]


def notes_after(store: StorePaths, end: LogPosition) -> tuple[str, ...]:
    """Return notes about bytes after the end of an export that are not a record.

    There are none while a broker has the store open, since it may be writing a record there, nor if the log ends
    elsewhere by now: the next export tells.
    """
    if any(is_lock_held(root) for root in store_roots(store)):
        return ()
    try:
        found = _end_after(store, end)
    except SegmentVanishedError:
        return ()
    if found.end_offset != end.physical_offset:
        return ()
    return tuple(f"the log ends at offset {found.end_offset}: {tail}; no newer record follows" for tail in found.tails)


def notes_on_gaps(store: StorePaths, begin: int, end: int) -> tuple[str, ...]:
    """Return notes about the segments that are missing between two offsets: their messages can't be exported.

    There are none if a segment vanishes meanwhile: the next export tells.
    """
    try:
        segments = LogSegments.of(store, compressed=True).segments
    except SegmentVanishedError:
        return ()
    between = [each for each in segments if each.end_offset >= begin and each.start_offset <= end]
    return tuple(problem.problem for problem in layout_problems(between))


def _end_after(store: StorePaths, known: LogPosition) -> FoundEnd:
    """Find where a log ends now, from a position on: what precedes that is not read again."""
    ends = []
    segments = LogSegments.of(store, compressed=True).segments
    for number in reversed(range(len(segments))):
        segment = segments[number]
        ends.append(segment_end(segment, is_first=not number, verify_crc=True, after=known.place_in(segment)))
        if ends[-1].found.position:
            break
    return FoundEnd.of(ends)
