# SPDX-License-Identifier: Apache-2.0
"""The report of the answer `trace`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.life.log_extent import MISSING_BYTES, missing_line
from store_core.answers.life.trace_steps import StepKind
from store_core.answers.report import Report
from store_core.answers.report_plots import Strip, Tone, lanes_of
from store_core.answers.report_schema import Fact, ReportColumn, ReportSchema, ReportTable
from store_core.answers.verdict import Verdict
from store_core.format.columns import TIMESTAMP_TYPE
from store_core.format.counted import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.report_plots import Plot

__all__ = ["TRACE_SCHEMA", "TraceFacts", "TraceReport"]

_UNIQUE: Final = ReportColumn("unique_key", pa.string(), "the id that its producer got")

TRACE_SCHEMA: Final = ReportSchema(
    "trace",
    1,
    (
        Fact("store", "the store's root"),
        Fact("what", "the key, unique key or message id that was asked for"),
        Fact("begin", "physical offset at which the log begins"),
        Fact("end", "physical offset at which its files end"),
        Fact("messages", "messages that it names: those with different unique keys"),
        Fact("records", "records of these messages"),
        Fact("duplicates", "sends beyond the first with the same unique key"),
        Fact("dead", "messages that are dead letters"),
        MISSING_BYTES,
        Fact("notes", "what else an operator should know"),
    ),
    (
        ReportTable(
            "messages",
            "Messages",
            (
                _UNIQUE,
                ReportColumn("keys", pa.string(), "property KEYS"),
                ReportColumn("topic", pa.string(), "the topic that it was sent to"),
                ReportColumn(
                    "outcome", pa.string(), "`stored`, `waiting`, `retried`, `dead`, `replayed`, `pending`, ..."
                ),
                ReportColumn("sends", pa.int64(), "how often it was sent"),
                ReportColumn("attempts", pa.int64(), "copies that consumers were to try again"),
                ReportColumn("first_timestamp", TIMESTAMP_TYPE, "store time of its first record"),
                ReportColumn("last_timestamp", TIMESTAMP_TYPE, "store time of its last record", in_text=False),
            ),
        ),
        ReportTable(
            "steps",
            "What happened, in order",
            (
                ReportColumn("store_timestamp", TIMESTAMP_TYPE, "when the record was stored"),
                ReportColumn("step", pa.string(), "what the record is"),
                ReportColumn("topic", pa.string(), "its topic"),
                ReportColumn("queue_id", pa.int32(), "its queue"),
                ReportColumn("queue_offset", pa.int64(), "its place in the queue"),
                ReportColumn("physical_offset", pa.int64(), "its place in the log"),
                ReportColumn("note", pa.string(), "what that means"),
                ReportColumn("group", pa.string(), "consumer group, or producer group of a transaction", in_text=False),
                ReportColumn("since", pa.int64(), "ms after the message's first record", in_text=False),
                ReportColumn("reconsume_times", pa.int32(), "deliveries that failed before", in_text=False),
                ReportColumn("due", TIMESTAMP_TYPE, "when a record that waits is due", in_text=False),
                ReportColumn("msg_id", pa.string(), "offset message id", in_text=False),
                ReportColumn("origin_id", pa.string(), "offset message id of the first message", in_text=False),
                ReportColumn(_UNIQUE.name, _UNIQUE.type, _UNIQUE.doc, in_text=False),
            ),
        ),
        ReportTable(
            "consumers",
            "Consumer groups of these queues",
            (
                ReportColumn("group", pa.string(), "consumer group"),
                ReportColumn("topic", pa.string(), "topic of the record"),
                ReportColumn("queue_id", pa.int32(), "its queue"),
                ReportColumn("queue_offset", pa.int64(), "the record"),
                ReportColumn("next_offset", pa.int64(), "what the group consumes next, by consumerOffset.json"),
                ReportColumn("is_past", pa.bool_(), "whether the group is past the record"),
            ),
        ),
    ),
)

_TONES: Final[dict[str, Tone]] = {
    kind.value: Tone.BAD if kind in (StepKind.DEAD_LETTER, StepKind.GIVEN_UP) else Tone.PLAIN for kind in StepKind
} | {StepKind.RETRY.value: Tone.WARNING, StepKind.SEND.value: Tone.GOOD, StepKind.COMMIT.value: Tone.GOOD}


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """The facts of the answer, as `TRACE_SCHEMA` explains them."""

    store: str
    what: str
    begin: int
    end: int
    messages: int = 0
    records: int = 0
    duplicates: int = 0
    dead: int = 0
    missing_bytes: int = 0
    notes: tuple[str, ...] = ()


class TraceReport(Report[TraceFacts]):
    """What happened to a message, as `TRACE_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = TRACE_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Findings if a message was sent twice, or is a dead letter; then damage, if segments are missing."""
        has_findings = bool(self.found.duplicates or self.found.dead)
        return Verdict.of(has_findings=has_findings, is_damaged=bool(self.found.missing_bytes))

    @property
    def subject(self) -> str:
        """What was asked for, and the store's root."""
        return f"{self.found.what} in {self.found.store}"

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Where in the log its records are."""
        rows = zip(*(self.tables["steps"][name].to_pylist() for name in ("step", "physical_offset")), strict=True)
        lanes = lanes_of([(step, at, at + 1) for step, at in rows], _TONES, "record")
        return (Strip("Where in the log its records are", self.found.begin, self.found.end, lanes),)

    def _lines(self) -> Iterator[str]:
        found = self.found
        yield f"{found.what}: {counted(found.messages, 'message')}, {counted(found.records, 'record')}"
        if found.duplicates:
            yield f"sent again with the same unique key: {counted(found.duplicates, 'duplicate')}"
        if found.dead:
            yield f"{counted(found.dead, 'message')} became {agreeing(found.dead, 'a dead letter', 'dead letters')}"
        if found.missing_bytes:
            yield missing_line(found.missing_bytes)
        yield from found.notes
