# SPDX-License-Identifier: Apache-2.0
"""What a salvage reads: each segment of a log, and how far its records go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import store_roots
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import segment_ends
from store_core.store.diff.log_side import without_overlap
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from store_core.store.salvage.segment_salvage import SALVAGED_COLUMNS, SalvagePart

if TYPE_CHECKING:
    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.snapshot.log_end import SegmentEnd
    from store_core.store.read.ranges import ReadRange

__all__ = ["plan_salvage", "segment_size"]

_READ: Final = ReadOptions(columns=SALVAGED_COLUMNS, mode=ReadMode.PERMISSIVE, fail_on_data_loss=False)
"""As a reader that wants all it can get; its plan decides where the log ends."""


def plan_salvage(paths: StorePaths) -> tuple[tuple[SalvagePart, ...], tuple[str, ...]]:
    """Return a part for each segment file, in log order, and notes.

    Raises
    ------
    StoreError
        As `store_core.snapshot.log.Log.of` raises.
    """
    segments = without_overlap(Log.of(paths, compressed="refused").segments)
    plan = plan_ranges(paths, _READ)
    is_live = any(map(is_lock_held, store_roots(paths)))
    ends = {end.segment.path: end for end in segment_ends(segments, verify_crc=True)}
    ranges = {part.segment.path: part for part in plan.ranges}
    parts = [_part(each, ranges.get(each.path), ends.get(each.path), is_live=is_live) for each in segments]
    return tuple(parts), plan.notes


def segment_size(paths: StorePaths) -> int:
    """Return the size of the log's segments, in bytes."""
    return Log.of(paths).usual_size


def _part(segment: Segment, read: ReadRange | None, end: SegmentEnd | None, *, is_live: bool) -> SalvagePart:
    data_end = segment.start_offset if read is None else min(read.data_end, segment.end_offset)
    if end is None or data_end > end.end_offset:  # no end of the log, or another kind of file, which is read whole
        return SalvagePart(segment, data_end, data_end, is_last=read is not None and read.is_last)
    stale = segment.start_offset + end.found.stale if end.found.stale >= 0 else -1
    return SalvagePart(segment, data_end, segment.start_offset + end.tail_end, stale, is_last=True, is_live=is_live)
