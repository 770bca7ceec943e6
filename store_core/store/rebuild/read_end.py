# SPDX-License-Identifier: Apache-2.0
"""How far a rebuild has read a log, where that log ends, and what was checked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from store_core.format.columnar.chain import Place
from store_core.snapshot.log_end import FoundEnd, find_end, segment_end
from store_core.store.read.coverage import Check, Coverage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.files.segment_source import Segment
    from store_core.snapshot.log_end import TornTail
    from store_core.store.rebuild.rules import RebuildRules
    from store_core.store.rebuild.segment_part import SegmentOutcome

__all__ = ["find_rebuilt_end", "read_end", "rebuild_coverage", "without_tails"]


def read_end(outcomes: Sequence[SegmentOutcome]) -> int:
    """Return the physical offset one past the last record read; the log's start if there is none."""
    first = outcomes[0].start_offset if outcomes else 0
    return next((found.end_offset for found in reversed(outcomes) if found.records), first)


def find_rebuilt_end(
    segments: Sequence[Segment], outcomes: Sequence[SegmentOutcome], *, live_end: int | None, is_checked: bool
) -> FoundEnd:
    """Find the end of a log that has already been read.

    Parameters
    ----------
    segments : sequence of Segment
    outcomes : sequence of SegmentOutcome
        Of the segments that were read.
    live_end : int or None
        Physical offset up to which a log was read that a broker is writing: later bytes have been written since.
    is_checked : bool
        Whether the records that were read match their checksums.

    Raises
    ------
    SegmentVanishedError
        If a segment is gone.
    """
    if live_end is not None:
        return FoundEnd(live_end, segments[-1].path)
    found = _after_all_read(segments, outcomes) if is_checked else None
    return found or find_end(segments)


def _after_all_read(segments: Sequence[Segment], outcomes: Sequence[SegmentOutcome]) -> FoundEnd | None:
    """Find the end from where the last segment's records ended in zeros; None if they did not, or if it has none."""
    last = outcomes[-1] if outcomes else None
    if last is None or last.path != segments[-1].path or not last.records or not last.is_unwritten or last.lost_count:
        return None
    after = Place(last.end_offset - segments[-1].start_offset)
    return FoundEnd.of([segment_end(segments[-1], is_first=False, verify_crc=True, after=after)])


def without_tails(outcomes: Sequence[SegmentOutcome], tails: Sequence[TornTail]) -> list[SegmentOutcome]:
    """Remove what follows the log's end from the lost ranges: it is reported separately from damage inside the log."""
    begins = {tail.begin for tail in tails}
    return [_without_lost(found, begins) for found in outcomes]


def _without_lost(outcome: SegmentOutcome, begins: set[int]) -> SegmentOutcome:
    """Return an outcome without the lost ranges that begin at given offsets."""
    dropped = [lost for lost in outcome.lost if lost.begin in begins]
    kept = tuple(lost for lost in outcome.lost if lost.begin not in begins)
    size = sum(lost.end - lost.begin for lost in dropped)
    count = outcome.lost_count - len(dropped)
    return replace(outcome, lost=kept, lost_count=count, lost_bytes=outcome.lost_bytes - size)


def rebuild_coverage(rules: RebuildRules, *, is_comparison: bool) -> Coverage:
    """Return what a rebuild or a comparison by these rules checks."""
    queue_rules = rules.queue_rules
    verifies = queue_rules.verify_property_crc or rules.is_proven
    has_property_crc = rules.check_crc and queue_rules.features.has_property_crc and verifies
    earlier = {Check.LENGTHS_OF_EARLIER_SEGMENTS: False} if rules.first_offset else {}
    return Coverage.of(
        {
            Check.SEGMENT_SIZES: True,
            Check.LENGTHS: True,
            **earlier,
            Check.LAST_BODY_CHECKSUMS: True,
            Check.BODY_CHECKSUMS: rules.check_crc,
            Check.PROPERTY_CHECKSUMS: has_property_crc,
            Check.PLACES: rules.is_salvaged or rules.is_proven,
            Check.QUEUES: is_comparison and rules.has_queues,
            Check.INDEX: is_comparison and rules.has_index,
        }
    )
