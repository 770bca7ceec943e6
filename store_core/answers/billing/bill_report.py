# SPDX-License-Identifier: Apache-2.0
"""The report of a bill: who uses the disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.report import Report
from store_core.answers.report_plots import Bar, Bars, Tone
from store_core.answers.report_schema import Fact, ReportColumn, ReportSchema, ReportTable
from store_core.answers.scanning.top_rows import OTHERS_DOC
from store_core.answers.verdict import Verdict
from store_core.format.columns import TIMESTAMP_TYPE
from store_core.format.counted import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.report_plots import Plot

__all__ = ["BILL_SCHEMA", "BillFacts", "BillReport"]

_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_TOPIC: Final = ReportColumn("topic", _TEXT, "name of the topic")
_BYTES: Final = ReportColumn("bytes", _LONG, "bytes of their records")
_MESSAGES: Final = ReportColumn("messages", _LONG, "how many")
_PERCENT: Final = ReportColumn("percent", pa.float64(), "share of the bytes of all records")
_OTHERS: Final = ReportColumn("others", _LONG, OTHERS_DOC)
_DEAD_DOC: Final = "whether no application of today reads it: not an application's, or not in `topics.json`"

BILL_SCHEMA: Final = ReportSchema(
    "bill",
    1,
    (
        Fact("store", "the store root"),
        Fact("messages", "messages in the log"),
        Fact("bytes", "bytes of their records"),
        Fact("dead_bytes", "bytes of records in topics that are `is_dead`, as the table `topics` explains it"),
        Fact("segments", "segment files of the log"),
        Fact("segment_size", "bytes of each"),
        Fact("file_bytes", "bytes of all of them; what is no record is filler, unwritten or damaged"),
        Fact("damaged_ranges", "ranges within the log that are no message, in pieces of 16 MiB at most, or missing"),
        Fact("damaged_bytes", "bytes in them; they are in no table"),
        Fact("notes", "what else an operator should know"),
    ),
    (
        ReportTable(
            "kinds",
            "What the disk holds",
            (
                ReportColumn("kind", _TEXT, "what topics are for, as in the table `topics`"),
                ReportColumn("is_dead", pa.bool_(), _DEAD_DOC),
                ReportColumn("topics", _LONG, "how many topics"),
                _MESSAGES,
                _BYTES,
                _PERCENT,
                ReportColumn("meaning", _TEXT, "the kind in words", in_text=False),
            ),
        ),
        ReportTable(
            "topics",
            "Topics",
            (
                _TOPIC,
                ReportColumn(
                    "kind",
                    _TEXT,
                    "by its name: `application`, `retry`, `dead_letter`, `half`, `op`, `schedule`, `timer`, `trace` or "
                    "`system`; `unconfigured` if it looks like an application's, and `topics.json` does not have it",
                ),
                ReportColumn("is_dead", pa.bool_(), _DEAD_DOC, in_text=False),
                _MESSAGES,
                _BYTES,
                _PERCENT,
                ReportColumn("segments", _LONG, "segments that have messages of it", in_text=False),
                ReportColumn("own_segments", _LONG, "segments all of whose messages are its own"),
                ReportColumn(
                    "segments_saved",
                    _LONG,
                    "how many segments fewer the same records would fill, one after the other, without this topic",
                ),
                ReportColumn("oldest", TIMESTAMP_TYPE, "its first store time", in_text=False),
                ReportColumn("newest", TIMESTAMP_TYPE, "its last store time", in_text=False),
                _OTHERS,
            ),
        ),
        ReportTable(
            "queues",
            "Queues",
            (_TOPIC, ReportColumn("queue_id", _LONG, "queue of the topic"), _MESSAGES, _BYTES, _PERCENT, _OTHERS),
        ),
        ReportTable(
            "tags",
            "Tags",
            (_TOPIC, ReportColumn("tags", _TEXT, "null without"), _MESSAGES, _BYTES, _PERCENT, _OTHERS),
        ),
        ReportTable(
            "producers",
            "Producers",
            (ReportColumn("host", _TEXT, "address of the producer"), _MESSAGES, _BYTES, _PERCENT, _OTHERS),
        ),
        ReportTable(
            "days",
            "Days",
            (
                ReportColumn("day", _TEXT, "of the store time, in UTC; the largest days, in order of time"),
                _MESSAGES,
                _BYTES,
                _PERCENT,
                _OTHERS,
            ),
        ),
    ),
)

_TONES: Final = {True: Tone.WARNING, False: Tone.GOOD}


@dataclass(frozen=True, slots=True)
class BillFacts:
    """The facts of a bill, as `BILL_SCHEMA` explains them."""

    store: str
    messages: int
    bytes: int
    dead_bytes: int
    segments: int
    segment_size: int
    file_bytes: int
    damaged_ranges: int
    damaged_bytes: int
    notes: tuple[str, ...] = ()


class BillReport(Report[BillFacts]):
    """The report of a bill, as `BILL_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = BILL_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Damaged if the log is; a bill is no finding."""
        return Verdict.DAMAGED if self.found.damaged_ranges else Verdict.CLEAN

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
        share = 100 * found.dead_bytes / found.bytes if found.bytes else 0
        yield f"dead: {found.dead_bytes:,} bytes, {share:.1f} % (retries, dead letters, the broker's own, ...)"
        if found.damaged_ranges:
            places = counted(found.damaged_ranges, "damaged range")
            are = agreeing(found.damaged_ranges, "bytes is", "bytes in all are")
            yield f"{places} of {found.damaged_bytes:,} {are} not counted"
        yield from found.notes


def _bars(table: pa.Table, name: str) -> Iterator[Bar]:
    columns = [each for each in (name, "bytes", "messages", "others", "is_dead") if each in table.column_names]
    for row in table.select(columns).to_pylist():
        label = f"{row['bytes']:,} bytes, {counted(row['messages'], 'message')}"
        shown = f"{row['others']:,} others" if row["others"] is not None else row[name]
        yield Bar(shown, row["bytes"], _TONES.get(row.get("is_dead"), Tone.PLAIN), label)
