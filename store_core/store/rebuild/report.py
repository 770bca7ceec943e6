# SPDX-License-Identifier: Apache-2.0
"""The report of a rebuild as text and as JSON, with what was inferred, and what was asked for and is not there."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from store_core.errors import InvalidOptionError
from store_core.format.columns import iso_time
from store_core.format.words import counted
from store_core.queue.queue_path import is_light
from store_core.snapshot.log_end import FoundEnd
from store_core.snapshot.queues import Queues
from store_core.store.read.ranges import CheckKind, Coverage
from store_core.store.read.read_messages import hint_of, stored_topics
from store_core.store.rebuild.index_files import NO_DIFFERENCES, IndexDifferences, IndexReport
from store_core.store.rebuild.segment_scan import NO_LIGHT_RECORDS, LightRecords, SegmentOutcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.queue.queue_assignment import RefusedUnit
    from store_core.store.rebuild.plan import RebuildPlan, RebuildRules
    from store_core.store.rebuild.queue_compare import QueueJudgement
    from store_core.store.rebuild.queue_files import QueueReport


_SHOWN: Final = 10
_STAND_INS: Final = {
    "repeated": "where a consumer gets the record before them again, once for each",
    "skipped": "which a consumer skips",
    "below": "below where the queue begins now",
}


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The report of a rebuild or a comparison.

    Attributes
    ----------
    outcomes : tuple of SegmentOutcome
        Outcomes for the segments up to the log's end, in order.
    queues : tuple of QueueReport
        Sorted by topic and id.
    index : IndexReport or None
    problems : tuple of str
        Damage to the log, other than at a segment's end.
    notes : tuple of str
        What an operator should know.
    unlogged : tuple of (str, int)
        Queues that the store has but the log has no record of.
    inferred_topics : tuple of str
        Topics whose queues are batch queues only because their records show it.
    end : FoundEnd
        Where the log ends, and what follows; the same in all reports, see ADR 0005.
    coverage : Coverage
        What was checked, and what was not.
    left_out_after : int
        Number of records in segments after the log's end.
    judged : tuple of QueueJudgement
        For a comparison: all queues of the log.
    """

    outcomes: tuple[SegmentOutcome, ...]
    queues: tuple[QueueReport, ...]
    index: IndexReport | None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unlogged: tuple[tuple[str, int], ...] = ()
    inferred_topics: tuple[str, ...] = ()
    end: FoundEnd = field(default_factory=FoundEnd)
    coverage: Coverage = field(default_factory=Coverage)
    left_out_after: int = 0
    judged: tuple[QueueJudgement, ...] = ()

    @property
    def records(self) -> int:
        """Number of records in the log."""
        return sum(outcome.records for outcome in self.outcomes)

    @property
    def end_offset(self) -> int:
        """Physical offset one past the last sound record, whatever damage precedes it."""
        return self.end.end_offset

    @property
    def read_end_offset(self) -> int:
        """Physical offset one past the last record included here; the log's start if there is none."""
        first = self.outcomes[0].start_offset if self.outcomes else 0
        return next((found.end_offset for found in reversed(self.outcomes) if found.records), first)

    @property
    def last_store_timestamp(self) -> int:
        """Store time of the last record, ms; 0 if there is none."""
        return next((found.last_store_timestamp for found in reversed(self.outcomes) if found.records), 0)

    @property
    def index_differences(self) -> IndexDifferences:
        """For a comparison: how the entries of the log differ from those of the index."""
        return reduce(IndexDifferences.plus, (outcome.index for outcome in self.outcomes), NO_DIFFERENCES)

    @property
    def light(self) -> LightRecords:
        """How many records name light queues, and how many of them can be in none."""
        return reduce(LightRecords.plus, (outcome.light for outcome in self.outcomes), NO_LIGHT_RECORDS)

    @property
    def light_record(self) -> int:
        """Physical offset of the first record in light queues; -1 if there is none."""
        return next((found.light_record for found in self.outcomes if found.light_record >= 0), -1)

    @property
    def told_topics(self) -> tuple[str, ...]:
        """Topics with records that only a batch topic can have, but that were not rebuilt as such."""
        return tuple(sorted({topic for outcome in self.outcomes for topic in outcome.batch_topics}))

    @property
    def passed_over(self) -> set[tuple[str, int]]:
        """Topic and id of queues not requested: the first that each part of the log named."""
        return {queue for outcome in self.outcomes for queue in outcome.passed_over}

    @property
    def refused_count(self) -> int:
        """Number of impossible units, e.g. of topics whose names can't be directories."""
        in_segments = sum(outcome.refused_count for outcome in self.outcomes)
        return in_segments + sum(queue.refused_count for queue in self.queues)

    @property
    def refused(self) -> list[RefusedUnit]:
        """The first impossible units of each part of the log and of each queue."""
        in_segments = [unit for outcome in self.outcomes for unit in outcome.refused]
        return in_segments + [unit for queue in self.queues for unit in queue.refused]

    @property
    def gap_count(self) -> int:
        """Number of places where queue offsets do not increase by one."""
        return sum(queue.gap_count for queue in self.queues)

    @property
    def left_out(self) -> int:
        """Number of sound records after damage that were left out."""
        return self.left_out_after + sum(outcome.left_out for outcome in self.outcomes)

    @property
    def lost_count(self) -> int:
        """Number of byte ranges without a record, not including what follows the log's end."""
        return sum(outcome.lost_count for outcome in self.outcomes)

    @property
    def missing_count(self) -> int:
        """Number of queue offsets whose records are lost to damage."""
        return sum(queue.missing_count for queue in self.queues)

    @property
    def is_damaged(self) -> bool:
        """Whether the log ends in bytes that are not a record, lacks a segment, or continues after its end."""
        return bool(self.problems or self.lost_count or _damage(self))

    @property
    def is_doubtful(self) -> bool:
        """Whether the log is damaged, or has what a broker takes although it is damaged (`RebuildRules.is_proven`)."""
        return self.is_damaged or any(outcome.unproven for outcome in self.outcomes)


def as_json(report: RebuildReport, **more: object) -> dict[str, Any]:
    """Return the report as values for JSON; times are in ISO 8601, or null if there is none."""
    gaps = [
        {"topic": queue.topic, "queue_id": queue.queue_id, **gap._asdict(), "kind": gap.kind}
        for queue in report.queues
        for gap in queue.gaps
    ]
    return {
        **more,
        "records": report.records,
        "end_offset": report.end_offset,
        "read_end_offset": report.read_end_offset,
        "torn": [asdict(tail) | {"reason": tail.reason.name.lower()} for tail in report.end.tails],
        "is_damaged": report.is_damaged,
        **report.coverage.as_json(),
        "problems": [*report.problems, *_damage(report)],
        "notes": list(report.notes),
        "light_record": report.light_record if report.light_record >= 0 else None,
        "light_records": report.light._asdict(),
        "inferred_batch_topics": list(report.inferred_topics),
        "damaged_ranges": [
            {"path": outcome.path, "begin_offset": lost.begin, "end_offset": lost.end, "reason": lost.reason}
            for outcome in report.outcomes
            for lost in outcome.lost
        ],
        "damaged_range_count": report.lost_count,
        "damaged_bytes": sum(outcome.lost_bytes for outcome in report.outcomes),
        "left_out_records": report.left_out,
        "missing_offset_count": report.missing_count,
        "missing_offsets": [
            {"topic": queue.topic, "queue_id": queue.queue_id, **missing._asdict()}
            for queue in report.queues
            for missing in queue.missing
        ],
        "segments": [_segment(outcome) for outcome in report.outcomes],
        "queues": [asdict(queue) | {"gaps": None, "missing": None, "refused": None} for queue in report.queues],
        "gap_count": report.gap_count,
        "gaps": gaps,
        "refused_count": report.refused_count,
        "refused": [unit._asdict() for unit in report.refused],
        "unlogged_queues": [{"topic": topic, "queue_id": queue_id} for topic, queue_id in report.unlogged],
        "index": None if report.index is None else _with_time(report.index, "full_timestamp"),
    }


def _segment(outcome: SegmentOutcome) -> dict[str, Any]:
    values = _with_time(outcome, "last_store_timestamp") | {"refused": None, "lost": None}  # listed elsewhere
    of_checks = ("passed_over", "light", "index", "unproven", "unexpandable", "unexpandable_first", "is_sound")
    for name in of_checks:  # or of all segments
        del values[name]
    return values


def _with_time(found: SegmentOutcome | IndexReport, name: str) -> dict[str, Any]:
    values = asdict(found)
    return values | {name: iso_time(values[name]) if values[name] else None}


def as_text(report: RebuildReport) -> str:
    """Return the report as a few lines for an operator; long lists are cut."""
    return "\n".join(_lines(report))


def _lines(report: RebuildReport) -> Iterator[str]:
    units = sum(queue.units for queue in report.queues)
    records, segments = counted(report.records, "record"), counted(len(report.outcomes), "segment")
    yield f"{records} up to offset {report.read_end_offset}, in {segments}"
    if report.queues:
        yield f"{counted(units, 'unit')} in {counted(len(report.queues), 'queue')}"
    if report.index is not None:
        entries = "1 index entry" if report.index.entries == 1 else f"{report.index.entries:,} index entries"
        yield f"{entries} in {counted(report.index.files, 'file')}"
    yield from (f"damaged: {text}" for text in [*report.problems, *_damage(report)])
    yield from _cut("damaged range", _lost(report), report.lost_count)
    if report.left_out:
        yield f"damaged: {report.left_out:,} sound records after damage are left out; --accept-damage includes them"
    yield from _cut("queue offsets missing", _missing(report), sum(len(queue.missing) for queue in report.queues))
    yield from _verdict(report)
    yield from (f"note: {text}" for text in report.notes)
    yield from _cut("queue offset that does not increase by one", _gaps(report), report.gap_count)
    yield from _cut("unit refused", _refused(report), report.refused_count)
    unlogged = [f"{queue_id} of {topic}" for topic, queue_id in report.unlogged]
    yield from _cut("queue without a record in the log, so no longer there", unlogged, len(unlogged))


def _damage(report: RebuildReport) -> list[str]:
    """Return the places where the log is damaged: in segments, and after its end."""
    tails = {tail.begin for tail in report.end.tails}
    broken = [
        f"{found.path} has bytes that are not a record at offset {found.end_offset}"
        for found in report.outcomes
        if found.ends_in_damage and found.end_offset not in tails
    ]
    return [*broken, *map(str, report.end.tails)]


def _lost(report: RebuildReport) -> list[str]:
    return [
        f"{outcome.path}, offsets {lost.begin} to {lost.end} ({lost.end - lost.begin:,} bytes): {lost.reason}"
        for outcome in report.outcomes
        for lost in outcome.lost
    ]


def _missing(report: RebuildReport) -> list[str]:
    return [
        f"{missing.first} to {missing.last} in queue {queue.queue_id} of {queue.topic}, {_STAND_INS[missing.stand_in]}"
        for queue in report.queues
        for missing in queue.missing
    ]


def _verdict(report: RebuildReport) -> Iterator[str]:
    """Yield lines that say where the log ends, and what was checked to find that."""
    yield f"the log ends at offset {report.end_offset}{'' if report.is_damaged else '; no damage in what was checked'}"
    yield from report.coverage.lines
    if CheckKind.BODY_CHECKSUMS in report.coverage.not_checked:
        yield "body checksums were checked for the last records only: --check-crc checks all"


def _gaps(report: RebuildReport) -> list[str]:
    return [
        f"{gap.kind} in queue {queue.queue_id} of {queue.topic}: expected {gap.expected}, found {gap.queue_offset} in "
        f"the record at {gap.physical_offset}"
        for queue in report.queues
        for gap in queue.gaps
    ]


def _refused(report: RebuildReport) -> list[str]:
    return [
        f"queue {unit.queue_id} of topic {unit.topic[:100]!r}, record at {unit.physical_offset}: {unit.reason}"
        for unit in report.refused
    ]


def _cut(what: str, found: list[str], count: int) -> Iterator[str]:
    yield from (f"{what}: {text}" for text in found[:_SHOWN])
    if count > _SHOWN:
        yield f"{what}: {count:,} in all; the JSON report has more of them"


def inference_notes(plan: RebuildPlan, report: RebuildReport) -> list[str]:
    """Return notes on what was inferred and why, and on what was assumed without evidence; one line each."""
    of_queues = [*_light(plan, report), *_light_counts(plan, report), *_batch(report), *plan.assumptions]
    of_queues = of_queues if plan.rules.has_queues else []
    is_index_made = plan.rules.has_index and not plan.options.verify
    of_index = [plan.index_assumption] if is_index_made and plan.index_assumption else []
    return [*of_queues, *of_index, *_tags(report)]


def _tags(report: RebuildReport) -> Iterator[str]:
    untagged = report.index_differences.untagged
    if untagged:
        records = counted(untagged, "record")
        yield (
            f"the index has no entries for the tags of {records}, as releases before 5.4 leave it: a search for topic "
            f"and tags finds none of these. That is no difference"
        )


def _light(plan: RebuildPlan, report: RebuildReport) -> Iterator[str]:
    if report.light_record < 0:
        return
    witness = f"the record at offset {report.light_record} has property INNER_MULTI_QUEUE_OFFSET"
    if not plan.rules.queue_rules.is_multi_dispatch_enabled:
        yield (
            f"light queues are left out, as {plan.light_source} says, although {witness}, which a store writes only "
            f"with light queues on. To rebuild them, add --light"
        )
    elif not plan.light_source:
        yield (
            f"light queues are rebuilt, although neither options nor directories name any: {witness}, which a store "
            f"writes only with light queues on. To leave them out, add --no-light"
        )


def _light_counts(plan: RebuildPlan, report: RebuildReport) -> Iterator[str]:
    """Say what of the records that name light queues is in one."""
    light = report.light
    if not light.named:
        return
    built = [queue.units for queue in report.queues if is_light(queue.topic)]
    why = {
        "have no INNER_MULTI_QUEUE_OFFSET: the store had light queues off when they were put": light.unindexed,
        "have one that does not fit the names": light.unfit,
        f"are of topics that have none by the rules of release {plan.rules.queue_rules.release}": light.kept_out,
    }
    left_out = [f"{count:,} of them {reason}" for reason, count in why.items() if count]
    yield "; ".join(
        [f"{light.named:,} records name light queues; {len(built):,} such queues have {sum(built):,} units", *left_out]
    )


def _batch(report: RebuildReport) -> Iterator[str]:
    why = "has inner batches, which a store accepts for batch topics (queue.type=BatchCQ) only"
    for topic in report.inferred_topics:
        yield f"{topic} is rebuilt as a batch topic, although nothing else says so: it {why}"
    for topic in report.told_topics:
        yield f"{topic} is rebuilt without batch queues, although it {why}: --no-batch-inference says so"


_MOST_IDS: Final = 20
"""Maximum queue ids shown in an error."""


def check_wanted(report: RebuildReport, store: Path, rules: RebuildRules, file_system: FileSystem) -> None:
    """Refuse topics and a queue id that are neither in the log nor in the store's queues and configuration."""
    if rules.topics is None and rules.queue_id is None:
        return
    in_log = {(queue.topic, queue.queue_id) for queue in report.queues}
    queues = in_log | report.passed_over | {queue.name for queue in Queues(store, file_system=file_system).in_files()}
    where = f"neither in the log of {store}{_read_part(report, rules)} nor among its queues"
    topics = {topic for topic, _ in queues} | stored_topics([store])
    unknown = sorted((rules.topics or frozenset()) - topics)
    if unknown:
        told = "; ".join(f"{topic!r}: {hint_of(topic, topics)}" for topic in unknown)
        raise InvalidOptionError(f"--topic: {where} nor in config/topics.json: {told}")
    _check_queue_id(queues, where, rules)


def _check_queue_id(queues: Collection[tuple[str, int]], where: str, rules: RebuildRules) -> None:
    """Refuse a queue id that none of the requested topics has, unless these have no queues at all."""
    ids = sorted({number for topic, number in queues if rules.topics is None or topic in rules.topics})
    if rules.queue_id is None or rules.queue_id in ids or not ids:
        return
    topics = f" of {', '.join(map(repr, sorted(rules.topics)))}" if rules.topics is not None else ""
    shown = ", ".join(map(str, ids[:_MOST_IDS])) + (f" and {len(ids) - _MOST_IDS} more" if len(ids) > _MOST_IDS else "")
    raise InvalidOptionError(f"--queue-id: queue {rules.queue_id}{topics} is {where}; the ids are {shown}")


def _read_part(report: RebuildReport, rules: RebuildRules) -> str:
    """Return which part of the log was read, if not all of it."""
    begin = f" from offset {rules.since_offset} on" if rules.since_offset else ""
    return begin + (
        f" up to offset {report.end_offset}, where it is damaged,"
        if report.is_damaged and not rules.is_salvaged
        else ""
    )
