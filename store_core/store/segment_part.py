# SPDX-License-Identifier: Apache-2.0
"""Parts of segments, so that few large segments keep many tasks busy; and how the reading of each ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from store_core.files.segment_source import Segment
    from store_core.queue.consume_queue_store import RefusedUnit

__all__ = ["SegmentOutcome", "SegmentPart", "merge_outcomes", "split_segments"]

_SMALLEST_PART: Final = 64 << 20
"""Bytes: below, a task costs more than it saves."""

_REFUSED_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """The records of a segment that start in a range of its bytes.

    Attributes
    ----------
    segment : Segment
    begin, end : int
        Positions in the file.
    """

    segment: Segment
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class SegmentOutcome:
    """How the reading of a segment, or of a part of one, ended.

    Attributes
    ----------
    path : str
    start_offset, end_offset : int
        Physical offsets of its first record, or where one should be, and behind its last record.
    records : int
    is_continued : bool
        Whether a blank record leads to the next file.
    is_unwritten : bool
        Whether zeros follow the last record, as in the file that is being written. Otherwise, and unless it goes on,
        it is damaged there.
    last_store_timestamp : int
        Of its last record, ms; 0 without any.
    is_at_limit : bool
        Whether a part ended where the next one begins.
    refused_count : int
        Units that can't be, see `ConsumeQueueStore.put`.
    refused : tuple of RefusedUnit
        The first of them.
    missing_entries, extra_entries : int
        Of a comparison: index entries of these records that the index does not have, and the other way round.
    """

    path: str
    start_offset: int
    end_offset: int
    records: int
    is_continued: bool
    is_unwritten: bool
    last_store_timestamp: int
    is_at_limit: bool = False
    refused_count: int = 0
    refused: tuple[RefusedUnit, ...] = ()
    missing_entries: int = 0
    extra_entries: int = 0

    @property
    def is_damaged(self) -> bool:
        """Whether bytes follow the last record that are no record, no blank and no zeros."""
        return not self.is_continued and not self.is_unwritten and not self.is_at_limit


def split_segments(segments: Iterable[Segment], tasks: int) -> tuple[SegmentPart, ...]:
    """Cut segments so that about `tasks` parts come of them; never smaller ones than pay."""
    listed = list(segments)
    size = max(sum(segment.size for segment in listed) // max(tasks, 1), _SMALLEST_PART)
    return tuple(part for segment in listed for part in _split(segment, -(-segment.size // size)))


def _split(segment: Segment, count: int) -> list[SegmentPart]:
    count = max(count, 1)
    cuts = [segment.size * number // count for number in range(count + 1)]
    return [SegmentPart(segment, begin, end) for begin, end in pairwise(cuts)]


def merge_outcomes(parts: Sequence[SegmentPart], outcomes: Sequence[SegmentOutcome]) -> list[SegmentOutcome] | None:
    """Make one outcome a segment of those of its parts.

    Returns
    -------
    list of SegmentOutcome, or None
        None if parts do not fit together: a part found its first record by lengths alone, and the one before it, which
        looked closer, does not lead there. Then segments must be read whole.
    """
    merged: list[SegmentOutcome] = []
    for part, outcome in zip(parts, outcomes, strict=True):
        if not part.begin:
            merged.append(outcome)
        elif merged[-1].is_at_limit:
            if outcome.start_offset != merged[-1].end_offset:
                return None
            merged[-1] = _joined(merged[-1], outcome)
        elif outcome.records:
            return None
    return merged


def _joined(first: SegmentOutcome, second: SegmentOutcome) -> SegmentOutcome:
    return replace(
        second,
        start_offset=first.start_offset,
        records=first.records + second.records,
        last_store_timestamp=second.last_store_timestamp if second.records else first.last_store_timestamp,
        refused_count=first.refused_count + second.refused_count,
        refused=(first.refused + second.refused)[:_REFUSED_KEPT],
        missing_entries=first.missing_entries + second.missing_entries,
        extra_entries=first.extra_entries + second.extra_entries,
    )
