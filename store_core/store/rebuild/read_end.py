# SPDX-License-Identifier: Apache-2.0
"""How far a rebuild has read a log, beside where the log ends; and what it has checked on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from store_core.files.segment_source import open_segment
from store_core.format.scan import check_record
from store_core.store.coverage import Check, Coverage
from store_core.store.found_end import find_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.files.segment_source import Segment
    from store_core.store.found_end import FoundEnd
    from store_core.store.rebuild.rules import RebuildRules
    from store_core.store.rebuild.segment_part import SegmentOutcome

__all__ = ["find_rebuilt_end", "read_end", "rebuild_coverage", "settle"]


def read_end(outcomes: Sequence[SegmentOutcome]) -> int:
    """Return the physical offset one past the last record that was read; where the log starts if there is none."""
    first = outcomes[0].start_offset if outcomes else 0
    return next((found.end_offset for found in reversed(outcomes) if found.records), first)


def find_rebuilt_end(segments: Sequence[Segment], outcomes: Sequence[SegmentOutcome], *, is_live: bool) -> FoundEnd:
    """Find where a log ends that was read already.

    Of a live log the end is as far as was read, unless there is damage before it: what is there by now has been written
    since, or is being written.

    Raises
    ------
    SegmentVanishedError
        If a segment is gone.
    """
    found = find_end(segments)
    if not is_live:
        return found
    end = found.end_offset if any(outcome.is_damaged for outcome in outcomes) else read_end(outcomes)
    return replace(found, end_offset=end, tails=())


def settle(segments: Sequence[Segment], outcomes: Sequence[SegmentOutcome]) -> list[SegmentOutcome]:
    """Look again at what seemed to be damage in a live log: it may have been a record that was being written.

    Damage is only what a sound record follows, and what still is no record then.
    """
    by_path = {segment.path: segment for segment in segments}
    end_offset = find_end(segments).end_offset if any(found.is_damaged for found in outcomes) else 0
    return [
        replace(found, is_unwritten=True)
        if found.is_damaged and (end_offset <= found.end_offset or _is_written(by_path[found.path], found.end_offset))
        else found
        for found in outcomes
    ]


def _is_written(segment: Segment, offset: int) -> bool:
    with open_segment(segment) as opened:
        return check_record(opened.raw.data, offset - segment.start_offset, None).reason is None


def rebuild_coverage(rules: RebuildRules, *, is_comparison: bool) -> Coverage:
    """Say what a rebuild or a comparison by these rules checks."""
    has_property_crc = rules.check_crc and rules.queue_rules.release == "5.3" and rules.queue_rules.verify_property_crc
    earlier = {Check.LENGTHS_OF_EARLIER_SEGMENTS: False} if rules.first_offset else {}
    return Coverage.of(
        {
            Check.SEGMENT_SIZES: True,
            Check.LENGTHS: True,
            **earlier,
            Check.LAST_BODY_CHECKSUMS: True,
            Check.BODY_CHECKSUMS: rules.check_crc,
            Check.PROPERTY_CHECKSUMS: has_property_crc,
            Check.PLACES: False,
            Check.QUEUES: is_comparison and rules.has_queues,
            Check.INDEX: is_comparison and rules.has_index,
        }
    )
