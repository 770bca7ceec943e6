# SPDX-License-Identifier: Apache-2.0
"""What there is to note of a log that was exported: segments that are missing, and what follows its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.errors import SegmentVanishedError
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import store_roots
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import find_end
from store_core.store.read.follow.log_segments import LogSegments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.store.read.follow.log_position import LogPosition

__all__ = ["export_notes"]


def export_notes(store: StorePaths, begin: int, end: LogPosition) -> tuple[str, ...]:
    """Return notes about segments that are missing since an offset, and about bytes after the end of an export.

    If a segment vanishes meanwhile, those that are known by then are returned: the next export tells.
    """
    notes: tuple[str, ...] = ()
    try:
        segments = LogSegments.of(store, compressed=True).segments
        notes = _on_gaps(segments, begin, end.physical_offset)
        return notes + _on_tails(store, segments, end)
    except SegmentVanishedError:
        return notes


def _on_gaps(segments: Sequence[Segment], begin: int, end: int) -> tuple[str, ...]:
    """Return notes about the segments that are missing between two offsets: their messages can't be exported."""
    between = [each for each in segments if each.end_offset >= begin and each.start_offset <= end]
    return tuple(problem.problem for problem in Log(tuple(between)).problems)


def _on_tails(store: StorePaths, segments: Sequence[Segment], end: LogPosition) -> tuple[str, ...]:
    """Return notes about bytes after an export's end that are not a record.

    There are none while a broker has the store open, since it may be writing a record there, nor if the log ends
    elsewhere by now.
    """
    if any(is_lock_held(root) for root in store_roots(store)):
        return ()
    found = find_end(segments, place_in=end.place_in)
    if found.end_offset != end.physical_offset:
        return ()
    return tuple(f"the log ends at offset {found.end_offset}: {tail}; no newer record follows" for tail in found.tails)
