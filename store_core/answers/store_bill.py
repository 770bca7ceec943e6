# SPDX-License-Identifier: Apache-2.0
"""The answer `bill`: who uses the disk, and what would be gained without them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.answer import Answer, function_of, opt
from store_core.answers.group_table import COUNT, MAX, MIN, OTHERS_DOC, SUM, TOP, GroupTable, top_rows, uncertain_note
from store_core.answers.message_reads import MessageScan
from store_core.answers.plots import Bar, Bars, Plot, Tone
from store_core.answers.report import (
    Report,
    ReportColumn,
    ReportSchema,
    fact,
    moment,
    number,
    shared,
    table,
    text,
    truth,
)
from store_core.broker.topic_kind import TopicKind, kind_of_topic
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.format.columns import iso_day, utc_days
from store_core.format.words import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.segment_source import Segment
    from store_core.snapshot.store import Store
    from store_core.store.parts import Engine


_SUMMED: Final = ("messages", "bytes")
_TABLES: Final = {
    "topics": "topics",
    "queues": "queues",
    "tags": "pairs of topic and tags",
    "producers": "producers",
    "days": "days",
    "places": "pairs of topic and segment",
}
"""Groups -> what they are, in words."""


@dataclass(frozen=True)
class Bill(Answer["BillReport"]):
    """Say who uses the disk: bytes and messages by topic, queue, tags, producer and day.

    Overhead is what retries, dead letters, traces, the broker's own topics, and topics that topics.json does not have
    take. For each topic it says how many segment files would be gone without it. The exit code is 5 if the log is
    damaged: damaged ranges are in no table.
    """

    NAME: ClassVar = "bill"
    IS_SUMMED: ClassVar = True
    EXAMPLES: ClassVar = (
        "commitlog bill /data/store",
        "commitlog bill /data/store --rows 500 --json > bill.json",
        "commitlog bill /data/store --processes 4 --html bill.html",
    )

    rows: int = opt(TOP, "Rows of each table.", metavar="N", least=1)

    def on(self, engine: Engine, store: Store) -> BillReport:
        """Total a log range by range."""
        scan, log = MessageScan(store, BILL_COLUMNS, _BillSums), store.asked_log
        found, counts = engine.run(scan)
        configured, notes = _configured_topics(store)
        topics = _Topics(found, counts.bytes, log.usual_size, configured)
        tables = {name: top_rows(getattr(found, name), self.rows, _SUMMED) for name in ("queues", "tags", "producers")}
        tables |= {"topics": topics.rows(self.rows), "kinds": topics.kinds(), "days": _days(found.days, self.rows)}
        facts = BillFacts(
            store=scan.store,
            messages=counts.messages,
            bytes=counts.bytes,
            overhead_bytes=sum(row["bytes"] for row in tables["kinds"] if row["is_overhead"]),
            segments=len(log.segments),
            segment_size=log.usual_size,
            file_bytes=sum(each.size for each in log.segments),
            damaged_ranges=counts.damaged_ranges,
            damaged_bytes=counts.damaged_bytes,
            notes=(
                *scan.notes,
                *notes,
                *((note for name, what in _TABLES.items() for note in uncertain_note(getattr(found, name), what))),
            ),
        )
        return BillReport.of(facts, tables).over_stores()


bill = function_of(Bill)


BILL_COLUMNS: Final = ("topic", "queue_id", "tags", "born_host", "store_timestamp")
_TOTALS: Final = {"bytes": SUM, "messages": COUNT}
_TOPIC_KEY: Final = ("topic", pa.string())
_SEGMENT: Final = ("segment", pa.int64())
_MOST_PLACES: Final = 1 << 18
"""Pairs of topic and segment: a store of 1 TiB has a thousand segments."""


def _groups(*keys: tuple[str, pa.DataType], most: int | None = None) -> GroupTable:
    schema = pa.schema([*keys, *((name, pa.int64()) for name in _TOTALS)])
    return GroupTable(schema, _TOTALS) if most is None else GroupTable(schema, _TOTALS, most)


class _BillSums:
    """Bytes and messages in groups, of too many the smallest as one; see `store_core.answers.message_reads.Gathered`.

    * `topics`: By topic, with the first and last store time.
    * `queues`, `tags`, `producers`, `days`: By topic and queue; topic and tags; host; days since 1970 by store time.
    * `places`: By topic and the physical offset at which a segment begins.
    * `segments`: By that offset.
    """

    def __init__(self) -> None:
        times = [("oldest", pa.int64()), ("newest", pa.int64())]  # microseconds: a record may be of the year 146138
        timed = pa.schema([_TOPIC_KEY, *((name, pa.int64()) for name in _TOTALS), *times])
        self.topics = GroupTable(timed, {**_TOTALS, "oldest": MIN, "newest": MAX})
        self.queues = _groups(_TOPIC_KEY, ("queue_id", pa.int32()))
        self.tags = _groups(_TOPIC_KEY, ("tags", pa.string()))
        self.producers = _groups(("host", pa.string()))
        self.days = _groups(("day", pa.int64()))
        self.places = _groups(_TOPIC_KEY, _SEGMENT, most=_MOST_PLACES)
        self.segments = _groups(_SEGMENT, most=_MOST_PLACES)

    def add(self, batch: pa.RecordBatch, segment: Segment) -> None:
        """Add messages of a segment: first by all keys at once, which leaves few rows for the tables."""
        stored = batch.column("store_timestamp").cast(pa.int64())
        columns = {
            "topic": batch.column("topic"),
            "queue_id": batch.column("queue_id"),
            "tags": batch.column("tags"),
            "host": batch.column("born_host"),
            "day": pa.array(utc_days(batch.column("store_timestamp"))),
            "bytes": batch.column("store_size"),
            "oldest": stored,
            "newest": stored,
        }
        rows = pa.table(columns)
        totals = GroupTable(rows.schema, {**_TOTALS, "oldest": MIN, "newest": MAX}).totals_of(rows)
        hosts = pc.replace_substring_regex(totals["host"], r":\d+$", "")
        start = pa.array([segment.start_offset] * totals.num_rows, pa.int64())
        totals = totals.set_column(totals.column_names.index("host"), "host", hosts).append_column("segment", start)
        for groups in vars(self).values():
            groups.add_totals(totals)

    def absorb(self, other: Self) -> None:
        """Add what was gathered of later ranges."""
        for name, groups in vars(self).items():
            groups.absorb(getattr(other, name))


@dataclass(frozen=True, slots=True)
class _Topics:
    """What there is to say of topics: totals, the size of segments, and the topics that the broker knows, if any."""

    sums: _BillSums
    bytes: int
    segment_size: int
    configured: frozenset[str] | None

    def rows(self, top: int) -> list[dict[str, Any]]:
        """Return the rows of the largest topics."""
        rows = top_rows(self.sums.topics, top, _SUMMED)
        some, own = _segments_of(self.sums)
        for row in rows:
            row["segments_saved"] = self._filled(self.bytes) - self._filled(self.bytes - row["bytes"])
            if "topic" in row:
                name = row["topic"]
                row |= {"kind": self._kind(name), "is_overhead": self._is_overhead(name)}
                row |= {"segments": some[name], "own_segments": own[name]}
        return rows

    def kinds(self) -> list[dict[str, Any]]:
        """Return a row for each kind of topic."""
        found: dict[str, dict[str, Any]] = {}
        for row in self.sums.topics.table().select(["topic", *_SUMMED]).to_pylist():
            name = row["topic"]
            meaning = kind_of_topic(name).value if self._is_known(name) else "topics that topics.json does not have"
            empty = {"is_overhead": self._is_overhead(name), "meaning": meaning, "topics": 0, "messages": 0, "bytes": 0}
            total = found.setdefault(self._kind(name), empty)
            total["topics"] += 1
            for each in _SUMMED:
                total[each] += row[each]
        rows = [{"kind": kind, **total} for kind, total in found.items()]
        return sorted(rows, key=lambda row: (-row["bytes"], row["kind"]))

    def _filled(self, size: int) -> int:
        """Return how many segments records of this size fill."""
        return -(-size // max(self.segment_size, 1))

    def _is_known(self, topic: str) -> bool:
        is_application = kind_of_topic(topic) is TopicKind.APPLICATION
        return not is_application or self.configured is None or topic in self.configured

    def _is_overhead(self, topic: str) -> bool:
        return kind_of_topic(topic) is not TopicKind.APPLICATION or not self._is_known(topic)

    def _kind(self, topic: str) -> str:
        return kind_of_topic(topic).name.lower() if self._is_known(topic) else "unconfigured"


def _segments_of(sums: _BillSums) -> tuple[Counter[str], Counter[str]]:
    """Return for each topic in how many segments it is, and in how many it is alone."""
    sizes = dict(zip(*(sums.segments.table()[name].to_pylist() for name in ("segment", "bytes")), strict=True))
    some: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for row in sums.places.table().select(["topic", "segment", "bytes"]).to_pylist():
        some[row["topic"]] += 1
        own[row["topic"]] += row["bytes"] == sizes.get(row["segment"])
    return some, own


def _days(days: GroupTable, top: int) -> list[dict[str, Any]]:
    *rows, last = [*top_rows(days, top, _SUMMED), {}]
    if rows and "others" in rows[-1]:
        last = rows.pop()
    rows.sort(key=lambda row: row["day"])
    named = [row | {"day": iso_day(row["day"])} for row in rows]
    return [*named, last] if last else named


def _configured_topics(store: Store) -> tuple[frozenset[str] | None, tuple[str, ...]]:
    """Return the topics that the broker has configured, and what is to be said of that."""
    from store_core.files.store_path import store_roots
    from store_core.snapshot.config import TOPICS, Config

    root = store_roots(store.paths)[0]
    try:
        config = store.config
    except (InvalidOptionError, UnsupportedStoreError):  # several roots, or an archive
        config = Config(root)
    found, notes = config.known(TOPICS)
    if found is None and not notes:
        return None, (f"{TOPICS.what} is not known: {root} has no config/{TOPICS.name}",)
    return None if found is None else frozenset(found), notes


# ---- the report

_MESSAGES: Final = number("messages", "how many")
_PERCENT: Final = ReportColumn("percent", pa.float64(), "share of the bytes of all records")
_OTHERS: Final = number("others", OTHERS_DOC)
_OVERHEAD_DOC: Final = "whether it is overhead: no application's topic, or one that `topics.json` does not have"


@dataclass(frozen=True, slots=True)
class BillFacts:
    """The facts of a bill."""

    store: str = fact("the store root")
    messages: int = fact("messages in the log")
    bytes: int = fact("bytes of their records")
    overhead_bytes: int = fact(
        "bytes of the topics with `is_overhead`: retries, dead letters, traces, the broker's own, unconfigured ones"
    )
    segments: int = fact("segment files of the log")
    segment_size: int = fact("bytes of each", over="max")
    file_bytes: int = fact("bytes of all of them; what is no record is filler, unwritten or damaged")
    damaged_ranges: int = fact(
        "ranges within the log that are no message, in pieces of 16 MiB at most, or missing", tells="damaged"
    )
    damaged_bytes: int = fact("bytes in them; they are in no table")
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


_REPORT_TABLES: Final = (
    table(
        "kinds",
        "What the disk holds",
        text("kind", "what topics are for, as in the table `topics`"),
        truth("is_overhead", _OVERHEAD_DOC),
        number("topics", "how many topics"),
        _MESSAGES,
        *shared("bytes"),
        _PERCENT,
        *shared("meaning", in_text=False),
        by=("kind",),
    ),
    table(
        "topics",
        "Topics",
        *shared("topic"),
        text(
            "kind",
            "by its name: `application`, `retry`, `dead_letter`, `half`, `op`, `schedule`, `timer`, `trace` or "
            "`system`; `unconfigured` if it looks like an application's, and `topics.json` does not have it",
        ),
        truth("is_overhead", _OVERHEAD_DOC, in_text=False),
        _MESSAGES,
        *shared("bytes"),
        _PERCENT,
        number("segments", "segments that have messages of it", in_text=False),
        number("own_segments", "segments all of whose messages are its own"),
        number(
            "segments_saved",
            "how many segments fewer the same records would fill, one after the other, without this topic",
        ),
        moment("oldest", "its first store time", in_text=False),
        moment("newest", "its last store time", in_text=False),
        _OTHERS,
    ),
    table("queues", "Queues", *shared("topic", "queue_id"), _MESSAGES, *shared("bytes"), _PERCENT, _OTHERS),
    table(
        "tags", "Tags", *shared("topic"), text("tags", "null without"), _MESSAGES, *shared("bytes"), _PERCENT, _OTHERS
    ),
    table(
        "producers",
        "Producers",
        text("host", "address of the producer"),
        _MESSAGES,
        *shared("bytes"),
        _PERCENT,
        _OTHERS,
    ),
    table(
        "days",
        "Days",
        text("day", "of the store time, in UTC; the largest days, in order of time"),
        _MESSAGES,
        *shared("bytes"),
        _PERCENT,
        _OTHERS,
    ),
)

_TONES: Final = {True: Tone.WARNING, False: Tone.GOOD}


class BillReport(Report[BillFacts]):
    """Who uses the disk."""

    SCHEMA: ClassVar = ReportSchema.of("bill", 1, BillFacts, *_REPORT_TABLES)
    IS_JUDGEMENT: ClassVar = False

    def over_stores(self) -> BillReport:
        """Say what share of the bytes of all records each row has."""
        tables = {}
        for name, rows in self.tables.items():
            shares = [
                round(100 * size / self.found.bytes, 2) if self.found.bytes else 0.0
                for size in rows["bytes"].to_pylist()
            ]
            place = rows.column_names.index("percent")
            tables[name] = rows.set_column(place, "percent", pa.array(shares, pa.float64()))
        return replace(self, tables=tables)

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Bytes by topic and by day."""
        topics = tuple(_bars(self.tables["topics"], "topic"))
        return (Bars("Bytes by topic", topics), Bars("Bytes by day", tuple(_bars(self.tables["days"], "day"))))

    def _lines(self) -> Iterator[str]:
        found = self.found
        files = counted(found.segments, "segment")
        messages = counted(found.messages, "message")
        yield f"{messages} of {found.bytes:,} bytes, in {files} of {found.segment_size:,} bytes"
        share = 100 * found.overhead_bytes / found.bytes if found.bytes else 0
        yield f"overhead: {found.overhead_bytes:,} bytes, {share:.1f} % (retries, dead letters, the broker's own, ...)"
        if found.damaged_ranges:
            places = counted(found.damaged_ranges, "damaged range")
            are = agreeing(found.damaged_ranges, "bytes is", "bytes in all are")
            yield f"{places} of {found.damaged_bytes:,} {are} not counted"
        yield from found.notes


def _bars(table: pa.Table, name: str) -> Iterator[Bar]:
    columns = [each for each in (name, "bytes", "messages", "others", "is_overhead") if each in table.column_names]
    for row in table.select(columns).to_pylist():
        label = f"{row['bytes']:,} bytes, {counted(row['messages'], 'message')}"
        shown = f"{row['others']:,} others" if row["others"] is not None else row[name]
        yield Bar(shown, row["bytes"], _TONES.get(row.get("is_overhead"), Tone.PLAIN), label)
