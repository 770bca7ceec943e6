# SPDX-License-Identifier: Apache-2.0
"""The report of the answer `delays`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.life.calendar import Scale, heat_map
from store_core.answers.life.log_extent import MISSING_BYTES, missing_line
from store_core.answers.report import Report
from store_core.answers.report_plots import Bar, Bars, Tone
from store_core.answers.report_schema import Fact, ReportColumn, ReportSchema, ReportTable
from store_core.answers.verdict import Verdict
from store_core.format.columns import TIMESTAMP_TYPE
from store_core.format.counted import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.report_plots import Plot

__all__ = ["DELAYS_SCHEMA", "DelaysFacts", "DelaysReport"]

_STATES: Final = (
    ReportColumn("waiting", pa.int64(), "not due yet"),
    ReportColumn("overdue", pa.int64(), "due, and not delivered"),
    ReportColumn(
        "unsettled", pa.int64(), "due after the broker's file was written, and perhaps delivered since", in_text=False
    ),
    ReportColumn("orphaned", pa.int64(), "never to be delivered"),
)
_DUE: Final = (
    ReportColumn("first_due", TIMESTAMP_TYPE, "when the first that is not delivered is due"),
    ReportColumn("last_due", TIMESTAMP_TYPE, "when the last is due"),
)
_KIND: Final = ReportColumn("kind", pa.string(), "`level` for a delay level, `timer` for a timer of RocketMQ 5")

DELAYS_SCHEMA: Final = ReportSchema(
    "delays",
    1,
    (
        Fact("store", "the store's root"),
        Fact("at", "time as of which messages are due, ISO 8601"),
        Fact("last_stored", "store time of the log's last record, ISO 8601, or null in an empty log"),
        Fact("messages", "delayed messages and timers in the log"),
        Fact("waiting", "those that are not due yet"),
        Fact("overdue", "those that are due and not delivered: a broker that starts now delivers them at once"),
        Fact("late", "of these, those due longer ago than the option `late_after` allows"),
        Fact(
            "unsettled", "those due between when the broker wrote its file and the log's end: perhaps delivered since"
        ),
        Fact("orphaned", "those that no broker will deliver"),
        Fact("delivered", "those that the broker has delivered"),
        Fact("cancelled", "timers that another message has cancelled"),
        Fact("rolled", "timers that were put again, further ahead than the wheel reaches; the last copy is counted"),
        Fact("has_delay_offsets", "whether there is a delayOffset.json, or no delayed message"),
        Fact("has_timer_check", "whether there is a config/timercheck, or no timer"),
        Fact("next_due", "when the next message is due, ISO 8601, or null"),
        MISSING_BYTES,
        Fact("notes", "what else an operator should know"),
    ),
    (
        ReportTable(
            "levels",
            "Delay levels, and the timer",
            (
                _KIND,
                ReportColumn("level", pa.int64(), "delay level; null for the timer"),
                ReportColumn("delay", pa.int64(), "its delay, ms"),
                ReportColumn("messages", pa.int64(), "messages in the log"),
                ReportColumn("next_offset", pa.int64(), "queue offset that is delivered next"),
                ReportColumn("end_offset", pa.int64(), "queue offset after its last message in the log"),
                *_STATES,
                *_DUE,
            ),
        ),
        ReportTable(
            "topics",
            "By real topic",
            (ReportColumn("real_topic", pa.string(), "where messages are delivered"), _KIND, *_STATES, *_DUE),
        ),
        ReportTable(
            "calendar",
            "When messages are due that are not delivered",
            (
                ReportColumn("begin", TIMESTAMP_TYPE, "when the minute, hour or day begins, UTC"),
                ReportColumn("seconds", pa.int64(), "how long it is", in_text=False),
                ReportColumn("level", pa.int64(), "delayed messages due in it"),
                ReportColumn("timer", pa.int64(), "timers due in it"),
            ),
        ),
        ReportTable(
            "messages",
            "Messages that are overdue, or never to be delivered",
            (
                _KIND,
                ReportColumn("state", pa.string(), "one of the facts"),
                ReportColumn("reason", pa.string(), "why it will not be delivered"),
                ReportColumn("due", TIMESTAMP_TYPE, "when it is due"),
                ReportColumn("level", pa.int64(), "delay level"),
                ReportColumn("real_topic", pa.string(), "where it is to be delivered"),
                ReportColumn("real_queue_id", pa.string(), "its real queue", in_text=False),
                ReportColumn("unique_key", pa.string(), "the id that its producer gave it"),
                ReportColumn("queue_offset", pa.int64(), "in the queue where it waits", in_text=False),
                ReportColumn("physical_offset", pa.int64(), "where its record is"),
                ReportColumn("store_timestamp", TIMESTAMP_TYPE, "when it was stored", in_text=False),
            ),
        ),
    ),
)

_TONES: Final = {
    "waiting": Tone.PLAIN,
    "overdue": Tone.WARNING,
    "unsettled": Tone.PLAIN,
    "orphaned": Tone.BAD,
    "delivered": Tone.GOOD,
    "cancelled": Tone.PLAIN,
    "rolled": Tone.PLAIN,
}


@dataclass(frozen=True, slots=True)
class DelaysFacts:
    """The facts of the answer, as `DELAYS_SCHEMA` explains them; `scale` is of the calendar."""

    store: str
    at: str
    last_stored: str | None
    scale: Scale
    messages: int = 0
    waiting: int = 0
    overdue: int = 0
    late: int = 0
    unsettled: int = 0
    orphaned: int = 0
    delivered: int = 0
    cancelled: int = 0
    rolled: int = 0
    has_delay_offsets: bool = True
    has_timer_check: bool = True
    next_due: str | None = None
    missing_bytes: int = 0
    notes: tuple[str, ...] = ()


class DelaysReport(Report[DelaysFacts]):
    """When the delayed messages of a store are due, as `DELAYS_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = DELAYS_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Findings if messages are late, or will never be delivered; then damage, if segments are missing."""
        has_findings = bool(self.found.late or self.found.orphaned)
        return Verdict.of(has_findings=has_findings, is_damaged=bool(self.found.missing_bytes))

    @property
    def plots(self) -> tuple[Plot, ...]:
        """What became of messages, and a calendar of those that are not delivered."""
        counts = ((name, getattr(self.found, name), tone) for name, tone in _TONES.items())
        bars = Bars("Delayed messages", tuple(Bar(name, n, tone, f"{n:,}") for name, n, tone in counts if n))
        table = self.tables["calendar"]
        if not table.num_rows:
            return (bars,)
        begins = pc.divide(table["begin"].cast(pa.int64()), 1_000_000).to_pylist()
        dues = pc.add(table["level"], table["timer"]).to_pylist()
        title = "When messages are due that are not delivered (UTC)"
        return bars, heat_map(title, list(zip(begins, dues, strict=True)), self.found.scale)

    def _lines(self) -> Iterator[str]:
        found = self.found
        yield f"{found.store}: {counted(found.messages, 'delayed message')}, as of {found.at}"
        for name, what in _WORDS.items():
            count: int = getattr(found, name)
            if count:
                yield f"{count:,} {agreeing(count, *what)}"
        if found.next_due is not None:
            yield f"the next one is due at {found.next_due}"
        if not found.has_delay_offsets:
            yield "no delayOffset.json can be read: a broker that starts with this store delivers all levels again"
        if not found.has_timer_check:
            yield "there is no config/timercheck: a broker that starts with this store delivers all timers again"
        if found.missing_bytes:
            yield missing_line(found.missing_bytes)
        yield from found.notes


_WORDS: Final = {
    "waiting": ("waits: it is not due yet", "wait: they are not due yet"),
    "overdue": ("is overdue: due, and not delivered", "are overdue: due, and not delivered"),
    "unsettled": (
        "was due after the broker wrote down what it had delivered: it may be delivered since",
        "were due after the broker wrote down what it had delivered: they may be delivered since",
    ),
    "orphaned": ("is orphaned: no broker will deliver it", "are orphaned: no broker will deliver them"),
    "delivered": ("is delivered", "are delivered"),
    "cancelled": ("timer is cancelled", "timers are cancelled"),
    "rolled": (
        "timer was put again, to wait for another turn of the wheel",
        "timers were put again, to wait for another turn of the wheel",
    ),
}
"""What is said of one, and of several."""
