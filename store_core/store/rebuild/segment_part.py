# SPDX-License-Identifier: Apache-2.0
"""A segment's part of a rebuild."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.segment_source import Segment, open_segment
from store_core.format.layout import MessageSysFlag
from store_core.format.properties import INNER_BASE, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, INNER_NUM
from store_core.format.salvage import CandidateFinder
from store_core.queue.queue_assignment import RefusedUnit, UnfitListsError, lmq_units
from store_core.queue.queue_path import has_lists
from store_core.snapshot.log_end import FoundEnd, TornTail, find_end
from store_core.store.read.ranges import CheckKind, Coverage
from store_core.store.rebuild.index_files import NO_DIFFERENCES, IndexDifferences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.format.segment_view import SegmentView
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest
    from store_core.store.rebuild.findings import LostRange
    from store_core.store.rebuild.plan import RebuildRules


_INNER_BATCH: Final = int(MessageSysFlag.INNER_BATCH_FLAG)


class LightRecords(NamedTuple):
    """How many records name light queues, and how many of them can be in none."""

    named: int = 0  # records with property INNER_MULTI_DISPATCH
    unindexed: int = 0  # those without INNER_MULTI_QUEUE_OFFSET: nothing says which index they would have
    unfit: int = 0  # those whose indexes do not match the names, or are not numbers
    kept_out: int = 0  # those of a topic of which the release reads no such properties, such as a retry topic

    def plus(self, other: LightRecords) -> LightRecords:
        """Return the sums."""
        return LightRecords(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NO_LIGHT_RECORDS: Final = LightRecords()


class ToldKinds:
    """Finds records that only a store with light queues, or with batch topics, can have written.

    * `light_record`: Physical offset of the first record that is in light queues; -1 if there is none.
    * `batch_topics`: Topics with an inner batch that are not batch topics by the rules.

    RocketMQ 4.9.7 and 5.3.3 write indexes into INNER_MULTI_QUEUE_OFFSET with ``enableLmq`` only. 5.3.3 refuses a
    message with the flag of an inner batch unless its topic has ``queue.type=BatchCQ`` (``HookUtils.checkInnerBatch``).
    A batch topic of which the log has only single messages can't be recognised. Records do not show whether there was a
    queue extension.
    """

    def __init__(self, rules: RebuildRules) -> None:
        self.light_record = -1
        self.light = NO_LIGHT_RECORDS
        self.batch_topics: set[str] = set()
        self._rules = rules
        self._with_light = replace(rules.queue_rules, is_multi_dispatch_enabled=True, is_lmq_enabled=True)

    def look_at(self, batch: DispatchBatch) -> None:
        """Examine the next records."""
        for row in batch.multi_dispatch_rows.tolist():
            self._look_at_light(batch.request(row))
        if self._rules.queue_rules.features.has_inner_batches:
            self._look_for_inner_batches(batch)

    def _look_at_light(self, request: DispatchRequest) -> None:
        names, indexes = map(request.properties.get, (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET))
        if not (names or "").strip():
            return
        is_kept_out = not has_lists(request.topic, self._rules.queue_rules.features)
        is_unindexed = not is_kept_out and not (indexes or "").strip()
        is_unfit = False
        try:
            units = lmq_units(request, self._with_light)
        except UnfitListsError:
            units, is_unfit = [], True
        self.light = self.light.plus(LightRecords(1, is_unindexed, is_unfit, is_kept_out))
        if self.light_record < 0 and any(self._rules.wants(unit.topic, unit.queue_id) for unit in units):
            self.light_record = request.physical_offset

    def _look_for_inner_batches(self, batch: DispatchBatch) -> None:
        rows = np.flatnonzero(batch.sys_flag & _INNER_BATCH)
        codes, first = np.unique(batch.queue_codes[rows], return_index=True)
        for code, row in zip(codes.tolist(), rows[first].tolist(), strict=True):
            queue = batch.queues[code]
            is_known = queue[0] in self.batch_topics or queue[0] in self._rules.queue_rules.batch_topics
            if is_known or not self._rules.wants(*queue):
                continue
            if {INNER_NUM, INNER_BASE} <= batch.request(row).properties.keys():
                self.batch_topics.add(queue[0])


_SMALLEST_PART: Final = 64 << 20
"""Bytes; for a smaller part a task costs more than it saves."""

_PROBES: Final = (64 << 10, 1 << 20)
"""Bytes searched for a record at a cut; the first size nearly always suffices."""

REFUSED_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """The records of a segment that start in a range of its bytes.

    * `begin`, `end`: Positions in the file; its first record starts at `begin`.
    """

    segment: Segment
    begin: int
    end: int
    is_last: bool = False  # whether the log ends in this segment, as far as known beforehand


@dataclass(frozen=True, slots=True)
class SegmentOutcome:
    """How the reading of a segment, or of a part of one, ended.

    * `start_offset`, `end_offset`: Physical offsets of its first record, or where one should be, and one past its last
      record.
    * `lost_count`, `lost_bytes`: Number of ranges without a record, and bytes in them.
    """

    path: str
    start_offset: int
    end_offset: int
    records: int = 0
    is_continued: bool = False  # whether a blank record leads to the next file
    is_unwritten: bool = False
    """Whether zeros follow the last record, as in the file that is being written. If not, and unless it is continued,
    it is damaged there."""
    last_store_timestamp: int = 0  # store time of its last record, ms; 0 if there is none
    is_at_limit: bool = False  # whether a part ended where the next one begins
    is_sound: bool = False  # whether its records are those that a reader's chain leads to
    refused_count: int = 0  # number of impossible units, see `ConsumeQueueStore.put`
    refused: tuple[RefusedUnit, ...] = ()  # the first of these
    light_record: int = -1
    batch_topics: tuple[str, ...] = ()
    """Kinds of queues shown by its records, see `store_core.store.rebuild.segment_part.ToldKinds`."""
    passed_over: tuple[tuple[str, int], ...] = ()  # topic and id of the first queues that were not requested
    lost_count: int = 0
    lost_bytes: int = 0
    lost: tuple[LostRange, ...] = ()  # the first of these
    left_out: int = 0
    """Number of sound records after damage that were left out because, by the rules, the log ends at damage."""
    unproven: int = 0
    """With `RebuildRules.is_proven`: how many records, and blank ones, a broker takes although they are damaged."""
    light: LightRecords = NO_LIGHT_RECORDS
    unexpandable: int = 0
    """With `RebuildRules.is_proven`: how many records have a compressed body that no consumer can expand."""
    unexpandable_first: tuple[LostRange, ...] = ()  # the first of these, and why
    index: IndexDifferences = NO_DIFFERENCES  # for a comparison: of the entries of these records

    @property
    def is_damaged(self) -> bool:
        """Whether there are bytes that are not a record, a blank or zeros, between records or after the last."""
        return self.lost_count > 0 or self.ends_in_damage

    @property
    def ends_in_damage(self) -> bool:
        """Whether the last record is followed by bytes that are not a record, a blank or zeros."""
        return not (self.is_continued or self.is_unwritten or self.is_at_limit)


def split_segments(segments: Iterable[Segment], tasks: int) -> tuple[SegmentPart, ...]:
    """Split segments into about `tasks` parts, none too small to be worth a task.

    A cut is made where a record seems to start; reading the preceding part then proves whether one really does, see
    `merge_outcomes`. If none is near, as in an unwritten region, there is no cut.
    """
    listed = list(segments)
    size = max(sum(segment.size for segment in listed) // max(tasks, 1), _SMALLEST_PART)
    return tuple(
        replace(part, is_last=segment is listed[-1])
        for segment in listed
        for part in _split(segment, -(-segment.size // size))
    )


def _split(segment: Segment, count: int) -> list[SegmentPart]:
    if count <= 1:
        return [SegmentPart(segment, 0, segment.size)]
    wanted = [segment.size * number // count for number in range(1, count)]
    with open_segment(segment) as opened:
        view = segment.view(opened)
        near = [_seeming_start(view, cut) for cut in wanted]
    cuts = [0, *sorted({cut for cut in near if cut is not None}), segment.size]
    return [SegmentPart(segment, begin, end) for begin, end in pairwise(cuts)]


def _seeming_start(segment: SegmentView, cut: int) -> int | None:
    """Find what looks like a record with its own physical offset, near a position; None if there is none."""
    for probe in _PROBES:
        found = CandidateFinder(segment.up_to(cut + probe)).next(cut)
        if found is not None:
            return found
    return None


def merge_outcomes(parts: Sequence[SegmentPart], outcomes: Sequence[SegmentOutcome]) -> list[SegmentOutcome] | None:
    """Merge the outcomes of parts into one outcome per segment.

    Returns: None if parts do not fit together: a part began at what only looked like a record, as the previous part
    does not lead there. Segments must then be read whole.

    The first part of a segment begins at its first byte. If it ends exactly where the second begins, the second began
    where a single reader would have continued; and so on. So the merged result is that of a single reader.
    """
    merged: list[SegmentOutcome] = []
    for part, outcome in zip(parts, _settled_tags(outcomes), strict=True):
        if not part.begin:
            merged.append(outcome)
        elif merged[-1].is_at_limit:
            if outcome.start_offset != merged[-1].end_offset:
                return None
            merged[-1] = _joined(merged[-1], outcome)
        elif outcome.records:
            return None
    return merged


def _settled_tags(outcomes: Iterable[SegmentOutcome]) -> Iterator[SegmentOutcome]:
    """Count tags without an entry as missing after the first part of the log that has some."""
    has_tags = False
    for outcome in outcomes:
        yield replace(outcome, index=outcome.index.after_tags()) if has_tags else outcome
        has_tags |= outcome.index.has_tags


_SUMMED: Final = (
    "records", "refused_count", "lost_count", "lost_bytes", "lost", "left_out", "unproven", "unexpandable",
    "unexpandable_first",
)  # fmt: skip
"""Fields of an outcome that are added up, or put together, for a whole segment."""


def _joined(first: SegmentOutcome, second: SegmentOutcome) -> SegmentOutcome:
    summed = {name: getattr(first, name) + getattr(second, name) for name in _SUMMED}
    return replace(
        second,
        **summed,
        start_offset=first.start_offset,
        is_sound=first.is_sound and second.is_sound,
        last_store_timestamp=second.last_store_timestamp if second.records else first.last_store_timestamp,
        refused=(first.refused + second.refused)[:REFUSED_KEPT],
        light_record=second.light_record if first.light_record < 0 else first.light_record,
        batch_topics=tuple(sorted({*first.batch_topics, *second.batch_topics})),
        passed_over=tuple(sorted({*first.passed_over, *second.passed_over})),
        light=first.light.plus(second.light),
        index=first.index.plus(second.index),
    )


def arrives_at(outcomes: Sequence[SegmentOutcome], end: int) -> bool:
    """Return whether the chain of sound records that was read leads to a physical offset, and no further."""
    last = next((found for found in reversed(outcomes) if found.records), None)
    return last is not None and last.is_sound and not last.lost_count and last.end_offset == end


def find_rebuilt_end(
    segments: Sequence[Segment], outcomes: Sequence[SegmentOutcome], *, live_end: int | None
) -> FoundEnd:
    """Find the end of a log that has already been read: by its last part, if reading arrived there.

    * `live_end`: Physical offset up to which a log was read that a broker is writing: later bytes have been written
      since.
    """
    if live_end is not None:
        return FoundEnd(live_end, segments[-1].path)
    end = find_end(segments, by_tail=True)
    return end if arrives_at(outcomes, end.end_offset) else find_end(segments)


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
    earlier = {CheckKind.LENGTHS_OF_EARLIER_SEGMENTS: False} if rules.first_offset else {}
    return Coverage.of(
        {
            CheckKind.SEGMENT_SIZES: True,
            CheckKind.LENGTHS: True,
            **earlier,
            CheckKind.LAST_BODY_CHECKSUMS: True,
            CheckKind.BODY_CHECKSUMS: rules.check_crc,
            CheckKind.PROPERTY_CHECKSUMS: has_property_crc,
            CheckKind.PLACES: rules.is_salvaged or rules.is_proven,
            CheckKind.QUEUES: is_comparison and rules.has_queues,
            CheckKind.INDEX: is_comparison and rules.has_index,
        }
    )
