# SPDX-License-Identifier: Apache-2.0
"""The report about producers: what a broker can't tell of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.report import Report
from store_core.answers.report_plots import Bar, Bars, Tone
from store_core.answers.report_schema import Fact, ReportColumn, ReportSchema, ReportTable
from store_core.answers.scanning.log_buckets import PRECISION
from store_core.answers.verdict import Verdict
from store_core.format.counted import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.report_plots import Plot

__all__ = ["PRODUCERS_SCHEMA", "ProducersFacts", "ProducersReport"]

_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_TOPIC: Final = ReportColumn("topic", _TEXT, "name of the topic")
_PLACE: Final = (
    ReportColumn("queue_id", _LONG, "queue of the topic"),
    ReportColumn("queue_offset", _LONG, "place in the queue"),
    ReportColumn("physical_offset", _LONG, "place in the log"),
)
_SHARDING_KEY: Final = ReportColumn("sharding_key", _TEXT, "property `__SHARDINGKEY`")
_SENDS_DOC: Final = "what producers sent, without the copies that brokers made of it: retries, deliveries, commits"


def _percentile(rank: int, what: str) -> ReportColumn:
    return ReportColumn(f"p{rank}", _LONG, f"{what}: percentile {rank}, {PRECISION}")


PRODUCERS_SCHEMA: Final = ReportSchema(
    "producers",
    1,
    (
        Fact("store", "the store root"),
        Fact("messages", "messages in the log"),
        Fact("sends", _SENDS_DOC),
        Fact("unique_keys", "sends with a unique key"),
        Fact("duplicate_keys", "unique keys that were sent more than once"),
        Fact("duplicate_sends", "their sends after the first one"),
        Fact("sharding_keys", "sends with a sharding key"),
        Fact("inversions", "messages born before the one that precedes them in their queue, of the same sharding key"),
        Fact("spread_keys", "pairs of topic and sharding key whose messages are in several queues"),
        Fact("ahead", "sends that were born, by their producer's clock, after the broker stored them"),
        Fact("damaged_ranges", "ranges within the log that are no message, in pieces of 16 MiB at most, or missing"),
        Fact("damaged_bytes", "bytes in them"),
        Fact("notes", "what else an operator should know"),
    ),
    (
        ReportTable(
            "hosts",
            "Milliseconds from born to stored, by producer; less than 0 is a clock ahead of the broker's",
            (
                ReportColumn("host", _TEXT, "address of the producer"),
                ReportColumn("sends", _LONG, _SENDS_DOC),
                ReportColumn("ahead", _LONG, "how many of them have less than 0"),
                ReportColumn("least", _LONG, "ms: the least, exactly"),
                _percentile(1, "ms"),
                _percentile(50, "ms"),
                _percentile(99, "ms"),
                ReportColumn("most", _LONG, "ms: the most, exactly"),
            ),
        ),
        ReportTable(
            "sizes",
            "Bytes of records, by topic",
            (
                _TOPIC,
                ReportColumn("messages", _LONG, "messages of it, copies as well"),
                ReportColumn("least", _LONG, "bytes: the least, exactly"),
                _percentile(50, "bytes"),
                _percentile(90, "bytes"),
                _percentile(99, "bytes"),
                ReportColumn("most", _LONG, "bytes: the most, exactly"),
            ),
        ),
        ReportTable(
            "duplicates",
            "Unique keys that were sent more than once",
            (
                ReportColumn("unique_key", _TEXT, "the id that the producer got: the first property `UNIQ_KEY`"),
                ReportColumn("sends", _LONG, "how often"),
                ReportColumn("topic", _TEXT, "topic of the first"),
                ReportColumn("physical_offset", _LONG, "place of the first in the log"),
                ReportColumn("last_physical_offset", _LONG, "place of the last"),
            ),
        ),
        ReportTable(
            "inverted",
            "Messages out of order",
            (
                _TOPIC,
                *_PLACE,
                _SHARDING_KEY,
                ReportColumn("milliseconds", _LONG, "how much earlier it was born than the one before it"),
            ),
        ),
        ReportTable(
            "spread",
            "Sharding keys in several queues",
            (_TOPIC, _SHARDING_KEY, ReportColumn("queues", _LONG, "how many queues have them"), *_PLACE),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class ProducersFacts:
    """The facts of the report, as `PRODUCERS_SCHEMA` explains them."""

    store: str
    messages: int
    sends: int
    unique_keys: int
    duplicate_keys: int
    duplicate_sends: int
    sharding_keys: int
    inversions: int
    spread_keys: int
    ahead: int
    damaged_ranges: int
    damaged_bytes: int
    notes: tuple[str, ...] = ()


class ProducersReport(Report[ProducersFacts]):
    """The report about producers, as `PRODUCERS_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = PRODUCERS_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Damaged if the log is, so that something may be missed; else findings if a key was sent twice or disordered.

        A clock that is ahead is no finding: a few milliseconds are usual.
        """
        found = self.found
        if found.damaged_ranges:
            return Verdict.DAMAGED
        return Verdict.FINDINGS if found.duplicate_keys or found.inversions or found.spread_keys else Verdict.CLEAN

    @property
    def plots(self) -> tuple[Plot, ...]:
        """The median skew of each host, and the median size of each topic."""
        hosts = (_bar(row, row["host"], "ms", Tone.BAD if row["ahead"] else Tone.PLAIN) for row in self._rows("hosts"))
        sizes = (_bar(row, row["topic"], "bytes", Tone.PLAIN) for row in self._rows("sizes"))
        return (
            Bars("Milliseconds from born to stored: median, before percentile 99", tuple(hosts)),
            Bars("Bytes of records: median, before percentile 99", tuple(sizes)),
        )

    def _rows(self, name: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = self.tables[name].to_pylist()
        return rows

    def _lines(self) -> Iterator[str]:
        found = self.found
        messages = counted(found.messages, "message")
        have = agreeing(found.unique_keys, "has", "have")
        yield f"{messages}, {found.sends:,} of them sends; {found.unique_keys:,} {have} a unique key"
        keys = counted(found.duplicate_keys, "unique key")
        yield f"sent more than once: {keys}, {counted(found.duplicate_sends, 'more send')} than there should be"
        inversions, spread = counted(found.inversions, "message"), counted(found.spread_keys, "key")
        have = agreeing(found.sharding_keys, "has", "have")
        yield f"{found.sharding_keys:,} {have} a sharding key: {inversions} out of order, {spread} in several queues"
        born = agreeing(
            found.ahead, "was born after it was stored, by its", "were born after they were stored, by their"
        )
        yield f"{found.ahead:,} {born} producer's clock"
        if found.damaged_ranges:
            places = counted(found.damaged_ranges, "damaged range")
            are = agreeing(found.damaged_ranges, "bytes is", "bytes in all are")
            yield f"{places} of {found.damaged_bytes:,} {are} not looked at"
        yield from found.notes


def _bar(row: dict[str, object], name: object, unit: str, tone: Tone) -> Bar:
    median, high = (int(str(row[each])) for each in ("p50", "p99"))
    return Bar(str(name), max(median, 0), tone, f"{median:,} {unit}, p99 {high:,}", max(high, 0))
