# SPDX-License-Identifier: Apache-2.0
"""The answer `diff`: whether two logs are the same, byte by byte or record by record, and where they are not."""

from __future__ import annotations

from collections import Counter
from dataclasses import MISSING, asdict, dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa

from store_core.answers.answer import Answer, Kind, flag, function_of, opt
from store_core.answers.plots import Plot, Strip, Tone, lanes_of
from store_core.answers.report import (
    Report,
    ReportColumn,
    ReportSchema,
    Verdict,
    fact,
    moment,
    number,
    shared,
    table,
    text,
    truth,
)
from store_core.format.columns import table_time
from store_core.format.words import agreeing, counted
from store_core.store.parts import EachPart
from store_core.store.segment_diff import (
    CHANGED,
    DIGESTED,
    ONLY,
    Ahead,
    ComparedLog,
    DiffBy,
    DiffPart,
    DiffPartial,
    LogPair,
    PartSide,
    TopicCount,
    Unmatched,
    add_counts,
    count_topics,
    diff_part,
    digested_records,
    record_rows,
    records_of,
    unmatched_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from store_core.files.store_path import StorePaths
    from store_core.format.columnar.records import Records
    from store_core.snapshot.store import Store
    from store_core.store.parts import Engine


_SIDE: Final = text("side", "`a` or `b`: which log has it")


@dataclass(frozen=True, slots=True)
class DiffFacts:
    """The facts of a comparison."""

    by: str = fact("`bytes` if the bytes at each physical offset were compared, `records` if the records, wherever")
    begin: int = fact("physical offset from which on both logs have bytes")
    end: int = fact("physical offset up to which bytes were compared; equal to `begin` if none were")
    first_difference: int | None = fact(
        "physical offset of the first byte that differs or that one log lacks, or null", default=None
    )
    differing_bytes: int = fact("bytes that differ", default=0)
    differing_ranges: int = fact("ranges of them; with fewer than 64 equal bytes between two, they are one", default=0)
    missing_bytes_a: int = fact("bytes within what was compared of which only b has a file", default=0)
    missing_bytes_b: int = fact("the same, the other way round", default=0)
    filler_bytes: int = fact(
        "differing bytes after a blank record that both have, which nobody reads: no difference", default=0
    )
    changed_records: int = fact("records that differ in bytes and are at the same place in both logs", default=0)
    only_a_records: int = fact("records that only a has, within what both logs should have", default=0)
    only_b_records: int = fact("records that only b has, within what both logs should have", default=0)
    earlier_bytes_a: int = fact("bytes of a before b begins", default=0)
    earlier_bytes_b: int = fact("bytes of b before a begins", default=0)
    ahead_records_a: int = fact("records of a after b ends", default=0)
    ahead_records_b: int = fact("records of b after a ends", default=0)
    stale_side: str | None = fact(
        "`a` or `b`: this log goes on after the other's end with older records; or null", default=None
    )
    is_same_extent_required: bool = fact("whether it is a finding that one log begins or ends elsewhere", default=False)
    notes: tuple[str, ...] = fact("what else an operator should know", default=())

    @property
    def has_differences(self) -> bool:
        """Whether anything differs in what both logs should have, or a log goes on with older records."""
        counts = (
            self.differing_bytes, self.missing_bytes_a, self.missing_bytes_b, self.changed_records,
            self.only_a_records, self.only_b_records,
        )  # fmt: skip
        return any(counts) or self.stale_side is not None

    @property
    def has_other_extent(self) -> bool:
        """Whether one log begins or ends elsewhere than the other."""
        return any((self.earlier_bytes_a, self.earlier_bytes_b, self.ahead_records_a, self.ahead_records_b))


_REPORT_TABLES: Final = (
    table(
        "logs",
        "The logs",
        _SIDE,
        text("path", "its store root", in_text=False),
        number("begin", "physical offset of its first byte"),
        number("end", "physical offset one past its last sound record"),
        number("segments", "segment files up to its end"),
        truth("is_live", "whether a broker holds its lock"),
        moment("last_store_timestamp", "store time of its last record"),
        number("torn_end", "end of the bytes of a dead writer after `end`, or null", in_text=False),
        number("stale_begin", "offset of older records after `end`, or null", in_text=False),
    ),
    table(
        "ranges",
        "Where bytes differ",
        *shared("begin", "end"),
        number("differing_bytes", "how many of them differ"),
        text("missing_in", "`a` or `b` if that log has no file there, else null"),
        text("segment", "file name, of a if it has one there"),
    ),
    table(
        "records",
        "Records that differ",
        _SIDE,
        text("kind", "`changed` if the other log has a record there, else `only`"),
        *shared("physical_offset"),
        *shared("store_size", in_text=False),
        *shared("topic", "queue_id", "queue_offset"),
        *shared("msg_id", in_text=False),
        *shared("keys"),
        *shared("unique_key", "store_timestamp", in_text=False),
        truth("is_sound", "whether its body matches its checksum"),
        names_messages=True,
    ),
    table(
        "topics",
        "Topics of the records that differ",
        *shared("topic"),
        _SIDE,
        number("records", "how many"),
        *shared("bytes"),
    ),
    table(
        "ahead",
        "Records after the other log's end",
        _SIDE,
        text("kind", "`ahead`, or `stale` if all are older than the other log's last"),
        number("records", "how many"),
        *shared("bytes"),
        moment("first_store_timestamp", "store time of the first"),
        moment("last_store_timestamp", "store time of the last"),
    ),
    table(
        "digests",
        "What was compared",
        *shared("begin"),
        number("end", "physical offset"),
        truth("is_equal", "whether all bytes that are read are equal"),
        ReportColumn("digest_a", pa.binary(), "BLAKE2b, 16 bytes, of these bytes of a; null without a file"),
        ReportColumn("digest_b", pa.binary(), "the same of b"),
    ),
)


_TONES: Final = {"log a": Tone.PLAIN, "log b": Tone.PLAIN, "differs": Tone.BAD}
"""Lanes of the plot, from top to bottom."""


class DiffReport(Report[DiffFacts]):
    """The result of comparing two logs."""

    SCHEMA: ClassVar = ReportSchema.of("diff", 1, DiffFacts, *_REPORT_TABLES)

    @property
    def verdict(self) -> Verdict:
        """Findings if anything differs within what both logs should have; a different extent only if asked for."""
        found = self.found
        is_finding = found.has_differences or (found.is_same_extent_required and found.has_other_extent)
        return Verdict.FINDINGS if is_finding else Verdict.CLEAN

    @property
    def subject(self) -> str:
        """The roots of both stores."""
        return " and ".join(self.tables["logs"]["path"].to_pylist())

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Where each log is, and where they differ."""
        logs = [(f"log {row['side']}", row["begin"], row["end"]) for row in self.tables["logs"].to_pylist()]
        names = ("begin", "end")
        ranges = zip(*(self.tables["ranges"][name].to_pylist() for name in names), strict=True)
        records = self.tables["records"]["physical_offset"].to_pylist() if self.found.by == DiffBy.RECORDS.value else ()
        rows = [*logs, *(("differs", *each) for each in ranges), *(("differs", each, each + 1) for each in records)]
        begin, end = min(row[1] for row in logs), max(row[2] for row in logs)
        return (Strip("Where the logs are, and where they differ", begin, end, lanes_of(rows, _TONES)),)

    def _lines(self) -> Iterator[str]:
        found = self.found
        if found.has_differences:
            yield "the logs differ"
        else:
            yield "no differences" if not found.has_other_extent else "no differences in what both logs have"
        yield from _difference_lines(found)
        for side, other in (("a", "b"), ("b", "a")):
            values = asdict(found)
            if values[f"earlier_bytes_{side}"]:
                yield f"{side} begins {counted(values[f'earlier_bytes_{side}'], 'byte')} before {other}"
            if values[f"ahead_records_{side}"]:
                ahead = values[f"ahead_records_{side}"]
                is_older = agreeing(ahead, "that is older", "that are older")
                stale = agreeing(ahead, "it is stale", "they are stale")
                why = f" {is_older} than its last one: {stale}" if found.stale_side == side else ""
                yield f"{side} has {counted(ahead, 'record')} after the end of {other}{why}"
        if found.filler_bytes:
            differ = agreeing(found.filler_bytes, "differs", "differ")
            yield f"{counted(found.filler_bytes, 'byte')} that nobody reads {differ}, in the rest of closed files"
        yield from found.notes
        yield from (f"{row['side']}: {row['path']}" for row in self.tables["logs"].to_pylist())


def _difference_lines(found: DiffFacts) -> Iterator[str]:
    if found.first_difference is not None:
        yield f"the first difference is at offset {found.first_difference}"
    if found.differing_bytes:
        differ = agreeing(found.differing_bytes, "differs", "differ")
        yield f"{counted(found.differing_bytes, 'byte')} {differ}, in {counted(found.differing_ranges, 'range')}"
    for side, missing in (("a", found.missing_bytes_a), ("b", found.missing_bytes_b)):
        if missing:
            yield f"{side} lacks files with {counted(missing, 'byte')}"
    counts = (
        (found.changed_records, "changed"),
        (found.only_a_records, "only in a"),
        (found.only_b_records, "only in b"),
    )
    shown = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    if shown:
        yield f"records: {shown}"


@dataclass(frozen=True)
class Diff(Answer["DiffReport"]):
    """Compare the logs of two stores, such as master and slave, or a backup and the live store.

    The exit code is 0 if nothing differs in what both logs should have, and 1 if something does. A record in progress
    at the end of a live log is no difference.
    """

    NAME: ClassVar = "diff"
    TAKES_SEVERAL: ClassVar = False
    STORE: ClassVar = "A"
    EXAMPLES: ClassVar = (
        "commitlog diff /data/master/store /data/slave/store",
        "commitlog diff /data/store /backup/store --same-extent --processes 4",
        "commitlog diff /data/store /backup/store --json",
    )

    b: StorePaths = opt(MISSING, "The other store.", kind=Kind.STORE, flag="", metavar="B")
    by: DiffBy = opt(
        DiffBy.AUTO,
        "bytes: those at each physical offset. records: wherever in the logs they are. auto: bytes, unless the two "
        "have segments of different sizes.",
        choices=DiffBy,
    )
    same_extent: bool = flag("Count it as a difference if one log begins or ends elsewhere.")
    rows: int = opt(1000, "Rows that are listed; all are counted.", metavar="N", least=0)

    def on(self, engine: Engine, store: Store) -> DiffReport:
        """Find where both logs begin and end, then compare them in parts, by bytes or by records.

        What follows the end of a log that a broker holds is not looked at: a record may be in progress there.
        """
        pair = LogPair.of(store.paths, self.b)
        if self.by is DiffBy.RECORDS or (self.by is DiffBy.AUTO and not pair.is_cut_alike):
            return engine.run_grouped(RecordDiffJob(pair, self))
        return _report(pair, self, engine.run(DiffJob(list(pair.parts(self.rows)))))


diff = function_of(Diff)


class DigestKey(NamedTuple):
    """The key of digests: their group, and where in which log their records are."""

    group: int
    side: str
    start_offset: int
    sequence: int


@dataclass(frozen=True)
class DiffJob(EachPart[DiffPart, DiffPartial]):
    """Compares two logs byte by byte, a range of offsets in one file of each at a time."""

    def run(self, part: DiffPart) -> DiffPartial:
        """Compare one part."""
        return diff_part(part)


def _report(pair: LogPair, asked: Diff, found: Sequence[DiffPartial]) -> DiffReport:
    """Make the report of a comparison byte by byte."""
    ahead: dict[str, Ahead] = {}
    topics: dict[tuple[str, str], TopicCount] = {}
    for each in found:
        add_counts(topics, each.topics)
        for side, later in each.ahead.items():
            ahead[side] = ahead[side].plus(later) if side in ahead else later
    counts: Counter[tuple[str, str]] = sum((each.counts for each in found), Counter())
    ranges = sorted((row for each in found for row in _range_rows(each)), key=lambda row: row[0])
    facts = DiffFacts(
        by=DiffBy.BYTES.value,
        begin=pair.begin,
        end=pair.end,
        first_difference=ranges[0][0] if ranges else None,
        differing_bytes=sum(each.differing_bytes for each in found),
        differing_ranges=sum(each.range_count for each in found),
        missing_bytes_a=_missing(found, "a"),
        missing_bytes_b=_missing(found, "b"),
        filler_bytes=sum(each.filler_bytes for each in found),
        changed_records=counts["a", CHANGED],
        only_a_records=counts["a", ONLY],
        only_b_records=counts["b", ONLY],
        **extent_facts(pair, asked, ahead),
    )
    names = ("begin", "end", "differing_bytes", "missing_in", "segment")
    rows = sorted((row for each in found for row in each.rows), key=_row_order)
    kept = [row for side in ("a", "b") for row in [each for each in rows if each["side"] == side][: asked.rows]]
    tables = {
        **_common_tables(pair, topics, ahead, facts.stale_side),
        "ranges": [dict(zip(names, row, strict=True)) for row in ranges[: asked.rows]],
        "records": sorted(kept, key=_row_order),
        "digests": [
            {
                "begin": each.part.begin,
                "end": each.part.end,
                "is_equal": each.is_equal and _missing_side(each) is None,
                "digest_a": each.digest_a,
                "digest_b": each.digest_b,
            }
            for each in found
            if each.part.is_compared
        ],
    }
    return DiffReport.of(facts, tables)


@dataclass(frozen=True)
class RecordDiffJob:
    """Compares two logs record by record, in parts; see `store_core.store.parts.GroupedJob`.

    Pieces are digests, 24 bytes a record, which an engine on one machine holds in memory.
    """

    pair: LogPair
    asked: Diff
    groups: ClassVar = 16

    def plan(self) -> Sequence[PartSide]:
        """Return the parts: the segment files of both logs."""
        a, b = self.pair.a, self.pair.b
        sides = ((a, b), (b, a))
        return [PartSide.of(side, segment, other) for side, other in sides for segment in side.segments]

    def run(self, part: PartSide) -> Iterator[tuple[DigestKey, bytes]]:
        """Digest the records of a segment file."""
        for sequence, records in enumerate(digested_records(part)):
            digests = np.ascontiguousarray(records["digest"])
            groups = digests.view(np.uint8).reshape(digests.size, -1)[:, 0] % self.groups
            for group in np.unique(groups).tolist():
                key = DigestKey(group, part.name, part.segment.start_offset, sequence)
                yield key, records[groups == group].tobytes()

    def gather(self, pieces: Iterable[tuple[DigestKey, bytes]]) -> Iterator[tuple[Unmatched, Unmatched]]:
        """Find which records of a group only one log has."""
        packed: dict[str, list[bytes]] = {"a": [], "b": []}
        for key, piece in pieces:
            packed[key.side].append(piece)
        yield unmatched_records(*(np.frombuffer(b"".join(packed[side]), DIGESTED) for side in ("a", "b")))

    def merge(self, partials: Iterable[tuple[Unmatched, Unmatched]]) -> DiffReport:
        """Make the report.

        What only one log has before the first or after the last record that both have, is what retention deleted in the
        other, or what that does not have yet. Where both have records of their own there, these are differences.
        """
        found = list(partials)
        own = {side: _OwnRecords.of([each[at] for each in found]) for at, side in enumerate(("a", "b"))}
        only = {side: _differing(own[side], own[other]) for side, other in (("a", "b"), ("b", "a"))}
        sides = {"a": self.pair.a, "b": self.pair.b}
        rows = [row for side in sides for row in _rows(sides[side], only[side][: self.asked.rows])]
        places = {side: {_place(row) for row in rows if row["side"] == side} for side in ("a", "b")}
        both = places["a"] & places["b"]
        for row in rows:
            row["kind"] = CHANGED if _place(row) in both else ONLY
        ahead = {side: _records_after(sides[side], own[side].after) for side in sides if _is_alone(own, side, "after")}
        changed = sum(row["kind"] == CHANGED and row["side"] == "a" for row in rows)
        starts = [int(offsets[0]) for offsets in only.values() if offsets.size]
        facts = DiffFacts(
            by=DiffBy.RECORDS.value,
            begin=self.pair.begin,
            end=self.pair.begin,
            first_difference=min(starts, default=None),
            changed_records=changed,
            only_a_records=int(only["a"].size) - changed,
            only_b_records=int(only["b"].size) - changed,
            **_extent(self.pair, self.asked, own, ahead),
        )
        topics = {(side, topic): count for side in sides for topic, count in _topics(sides[side], only[side]).items()}
        tables = {
            **_common_tables(self.pair, topics, ahead, facts.stale_side),
            "records": sorted(rows, key=lambda row: (row["topic"], row["queue_id"], row["queue_offset"], row["side"])),
        }
        return DiffReport.of(facts, tables)


@dataclass(frozen=True, slots=True, eq=False)
class _OwnRecords:
    """Records of one log that the other does not have: before, among and after those that both have."""

    before: npt.NDArray[np.int64]
    inside: npt.NDArray[np.int64]
    after: npt.NDArray[np.int64]

    @classmethod
    def of(cls, groups: Sequence[Unmatched]) -> _OwnRecords:
        ordered = np.sort(np.concatenate([np.empty(0, np.int64), *(each.offsets for each in groups)]))
        matched = [each for each in groups if each.first >= 0]
        if not matched:
            return cls(ordered[:0], ordered, ordered[:0])
        bounds = min(each.first for each in matched), max(each.last for each in matched)
        cuts = np.searchsorted(ordered, bounds).tolist()
        return cls(ordered[: cuts[0]], ordered[cuts[0] : cuts[1]], ordered[cuts[1] :])


def _differing(own: _OwnRecords, others: _OwnRecords) -> npt.NDArray[np.int64]:
    """Return the records that are differences, and not just before or after what the other log has."""
    before = own.before if others.before.size else own.before[:0]
    after = own.after if others.after.size else own.after[:0]
    return np.concatenate([before, own.inside, after])


def _is_alone(own: dict[str, _OwnRecords], side: str, place: str) -> bool:
    """Return whether only this log has records of its own before, or after, those that both have."""
    sizes = {name: getattr(each, place).size for name, each in own.items()}
    return bool(sizes.pop(side)) and not any(sizes.values())


def _extent(pair: LogPair, asked: Diff, own: dict[str, _OwnRecords], ahead: dict[str, Ahead]) -> dict[str, Any]:
    """Return the facts about the extents; offsets of the two logs say nothing about each other here."""
    sides = {"a": pair.a, "b": pair.b}
    earlier = {
        f"earlier_bytes_{side}": sum(
            count.size for count in _topics(sides[side], own[side].before).values()
        ) if _is_alone(own, side, "before") else 0
        for side in sides
    }  # fmt: skip
    notes = ["records were compared wherever in the log they are, not the bytes at each offset"]
    facts = extent_facts(pair, asked, ahead)
    return facts | earlier | {"notes": (*pair.a.notes, *pair.b.notes, *notes)}


# ---- reading the records


def _pieces(side: ComparedLog, offsets: npt.NDArray[np.int64]) -> Iterator[Records]:
    """Yield the records at some ascending offsets, segment by segment."""
    for segment in side.segments:
        mine = offsets[slice(*np.searchsorted(offsets, (segment.start_offset, segment.end_offset)).tolist())]
        if mine.size:
            yield from records_of(segment, mine.tolist())


def _rows(side: ComparedLog, offsets: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    return [{"side": side.name, **row} for records in _pieces(side, offsets) for row in record_rows(records)]


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["queue_id"], row["queue_offset"]


def _topics(side: ComparedLog, offsets: npt.NDArray[np.int64]) -> dict[str, TopicCount]:
    topics: dict[str, TopicCount] = {}
    for records in _pieces(side, offsets):
        add_counts(topics, count_topics(records))
    return topics


def _records_after(side: ComparedLog, offsets: npt.NDArray[np.int64]) -> Ahead:
    found: Ahead | None = None
    for records in _pieces(side, offsets):
        times = records.heads.column("store_timestamp")
        count = TopicCount(len(records), int((records.spans.stops - records.spans.starts).sum()))
        piece = Ahead(count, int(times[0]), int(times[-1]))
        found = piece if found is None else found.plus(piece)
    return found or Ahead(TopicCount(0, 0), 0, 0)


_NOT_COMPARED: Final = "no offset is in both logs, so nothing was compared"


# ---- extents


def extent_facts(pair: LogPair, asked: Diff, ahead: dict[str, Ahead]) -> dict[str, Any]:
    """Return the facts about where the logs begin and end."""
    counts = {side: each.total.records for side, each in ahead.items()}
    notes = [_NOT_COMPARED] if pair.begin >= pair.end else []
    for side in (pair.a, pair.b):
        if side.is_live:
            notes.append(f"{side.name} is open in a broker: compared up to offset {side.end}, where it ended before")
        if side.compared_end > side.end:
            notes.append(f"{side.name} ends in {side.compared_end - side.end:,} bytes that are not a record")
        if side.stale >= 0:
            notes.append(f"{side.name} has older records after its end, from offset {side.stale} on")
    return {
        "earlier_bytes_a": max(min(pair.b.begin, pair.a.end) - pair.a.begin, 0),
        "earlier_bytes_b": max(min(pair.a.begin, pair.b.end) - pair.b.begin, 0),
        "ahead_records_a": counts.get("a", 0),
        "ahead_records_b": counts.get("b", 0),
        "stale_side": _stale_side(pair, ahead),
        "is_same_extent_required": asked.same_extent,
        "notes": (*pair.a.notes, *pair.b.notes, *notes),
    }


def _stale_side(pair: LogPair, ahead: dict[str, Ahead]) -> str | None:
    """Return which log goes on after the end of the other with records older than the other's last one.

    A broker that truncated its log, as a slave does after a switch, leaves whole records after the end (see
    `store_core.format.salvage`); where their chain joins the log's own, only the other log shows their age.
    """
    for side, other in ((pair.a, pair.b), (pair.b, pair.a)):
        if side.name in ahead and ahead[side.name].last_time < other.last_store_timestamp:
            return side.name
        if side.stale >= 0 and other.stale < 0 and side.end == other.end:
            return side.name
    return None


def _common_tables(
    pair: LogPair, topics: Mapping[tuple[str, str], TopicCount], ahead: dict[str, Ahead], stale_side: str | None
) -> dict[str, list[dict[str, Any]]]:
    """Return the tables that logs have whatever they are compared by; topics are in order of their sizes."""
    logs = [
        {
            "side": side.name,
            "path": side.path,
            "begin": side.begin,
            "end": side.end,
            "segments": len(side.segments),
            "is_live": side.is_live,
            "last_store_timestamp": table_time(side.last_store_timestamp) if side.last_start >= 0 else None,
            "torn_end": side.compared_end if side.compared_end > side.end else None,
            "stale_begin": side.stale if side.stale >= 0 else None,
        }
        for side in (pair.a, pair.b)
    ]
    of_topics = [
        {"topic": topic, "side": side, "records": count.records, "bytes": count.size}
        for (side, topic), count in sorted(topics.items(), key=lambda item: (-item[1].size, item[0][1], item[0][0]))
    ]
    later = [
        {
            "side": side,
            "kind": "stale" if side == stale_side else "ahead",
            "records": each.total.records,
            "bytes": each.total.size,
            "first_store_timestamp": table_time(each.first_time),
            "last_store_timestamp": table_time(each.last_time),
        }
        for side, each in sorted(ahead.items())
    ]
    return {"logs": logs, "topics": of_topics, "ahead": later}


# ---- differences


def _missing(found: Sequence[DiffPartial], side: str) -> int:
    return sum(each.part.end - each.part.begin for each in found if _missing_side(each) == side)


def _missing_side(found: DiffPartial) -> str | None:
    """Return which log has no file where the other has one, within what both should have."""
    part = found.part
    if not part.is_compared or len(part.sides) > 1:
        return None
    return "b" if part.a else "a"


def _range_rows(found: DiffPartial) -> list[tuple[int, int, int, str | None, str]]:
    part = found.part
    segment = PurePath(part.sides[0].segment.path).name
    missing = _missing_side(found)
    ranges = [(part.begin, part.end, part.end - part.begin)] if missing else found.ranges
    return [(*each, missing, segment) for each in ranges]


def _row_order(row: Mapping[str, Any]) -> tuple[int, str]:
    return row["physical_offset"], row["side"]
