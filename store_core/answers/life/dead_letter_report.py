# SPDX-License-Identifier: Apache-2.0
"""The report of the answer `deadletters`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.life.log_extent import MISSING_BYTES, missing_line
from store_core.answers.report import Report
from store_core.answers.report_plots import Bar, Bars, Tone
from store_core.answers.report_schema import Fact, ReportColumn, ReportSchema, ReportTable
from store_core.answers.text.message_column import with_message_column
from store_core.answers.verdict import Verdict
from store_core.format.columns import MAP_TYPE, STRINGS_TYPE, TIMESTAMP_TYPE
from store_core.format.counted import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.report_plots import Plot

__all__ = ["DEAD_LETTERS_SCHEMA", "DeadLettersFacts", "DeadLettersReport"]

_ORIGIN: Final = (
    "`here`; `deleted`, if the log begins after it; `elsewhere`, on another broker; `missing`, if its place has no "
    "such message; `unknown`, if the letter does not name it"
)
_WHY: Final = "`exhausted` if the group's retryMaxTimes were used up, `early` if not, `unknown` without a configuration"

DEAD_LETTERS_SCHEMA: Final = ReportSchema(
    "deadletters",
    1,
    (
        Fact("store", "the store's root"),
        Fact("letters", "dead letters that were looked at"),
        Fact("groups", "consumer groups that have any"),
        Fact("bytes", "bytes of their records"),
        Fact("exhausted", "letters of messages that were tried as often as their group allows"),
        Fact("early", "letters of messages that were tried less often: the consumer gave up by itself"),
        Fact("here", "letters whose first message is still in the log"),
        Fact("deleted", "letters whose first message was deleted"),
        Fact("elsewhere", "letters whose first message is on another broker"),
        Fact("missing", "letters whose first message is not where they say it is"),
        Fact("unknown", "letters that do not name their first message"),
        MISSING_BYTES,
        Fact("notes", "what else an operator should know"),
    ),
    (
        ReportTable(
            "groups",
            "By consumer group and origin",
            (
                ReportColumn("group", pa.string(), "consumer group"),
                ReportColumn("origin_topic", pa.string(), "topic of the first message"),
                ReportColumn("letters", pa.int64(), "dead letters"),
                ReportColumn("bytes", pa.int64(), "bytes of their records", in_text=False),
                ReportColumn("retry_max_times", pa.int64(), "the group's retryMaxTimes; null if not configured"),
                ReportColumn("least_failures", pa.int64(), "deliveries that failed, at least", in_text=False),
                ReportColumn("most_failures", pa.int64(), "deliveries that failed, at most"),
                ReportColumn("here", pa.int64(), "first messages that are still in the log"),
                ReportColumn("first_timestamp", TIMESTAMP_TYPE, "when the first letter was stored"),
                ReportColumn("last_timestamp", TIMESTAMP_TYPE, "when the last one was stored", in_text=False),
            ),
        ),
        ReportTable(
            "letters",
            "Dead letters",
            (
                ReportColumn("topic", pa.string(), "its topic"),
                ReportColumn("queue_id", pa.int32(), "its queue"),
                ReportColumn("queue_offset", pa.int64(), "its place in the queue"),
                ReportColumn("group", pa.string(), "consumer group", in_text=False),
                ReportColumn("keys", STRINGS_TYPE, "its keys"),
                ReportColumn("failures", pa.int64(), "deliveries that failed"),
                ReportColumn("why", pa.string(), _WHY),
                ReportColumn("origin", pa.string(), "where the first message is: " + _ORIGIN),
                ReportColumn("origin_message", pa.string(), "the first message as `TOPIC/QUEUE/OFFSET`, if it is here"),
                ReportColumn("store_timestamp", TIMESTAMP_TYPE, "when it became a dead letter", in_text=False),
                ReportColumn("seconds", pa.float64(), "how long after its first message", in_text=False),
                ReportColumn("unique_key", pa.string(), "the id that its producer gave it", in_text=False),
                ReportColumn("physical_offset", pa.int64(), "where its record is", in_text=False),
                ReportColumn("msg_id", pa.string(), "its offset message id", in_text=False),
                ReportColumn("origin_topic", pa.string(), "topic of the first message", in_text=False),
                ReportColumn("origin_id", pa.string(), "offset message id of the first message", in_text=False),
                ReportColumn("origin_offset", pa.int64(), "its physical offset", in_text=False),
                ReportColumn("properties", MAP_TYPE, "its properties, as its last consumer left them", in_text=False),
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class DeadLettersFacts:
    """The facts of the answer, as `DEAD_LETTERS_SCHEMA` explains them."""

    store: str
    letters: int = 0
    groups: int = 0
    bytes: int = 0
    exhausted: int = 0
    early: int = 0
    here: int = 0
    deleted: int = 0
    elsewhere: int = 0
    missing: int = 0
    unknown: int = 0
    missing_bytes: int = 0
    notes: tuple[str, ...] = ()


class DeadLettersReport(Report[DeadLettersFacts]):
    """The dead letters of a store, as `DEAD_LETTERS_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = DEAD_LETTERS_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Findings if there is any dead letter; then damage, if segments are missing."""
        has_findings = bool(self.found.letters)
        return Verdict.of(has_findings=has_findings, is_damaged=bool(self.found.missing_bytes))

    @property
    def plots(self) -> tuple[Plot, ...]:
        """How many each group has, and whether their first messages are still there."""
        rows = self.tables["groups"].to_pylist()
        bars = tuple(
            Bar(
                f"{row['group']}, {row['origin_topic']}",
                row["here"],
                Tone.WARNING,
                f"{row['letters']:,}, of {row['here']:,} the first message is here",
                full=row["letters"],
            )
            for row in rows[:_MOST_BARS]
        )
        more = f"and {len(rows) - _MOST_BARS:,} more" if len(rows) > _MOST_BARS else ""
        return (Bars("Dead letters by group and topic", bars, more),) if bars else ()

    def _in_text(self, table: ReportTable) -> pa.Table:
        shown = super()._in_text(table)
        return with_message_column(shown) if table.name == "letters" else shown

    def _lines(self) -> Iterator[str]:
        found = self.found
        whose = f" of {counted(found.groups, 'group')}" if found.groups else ""
        yield f"{counted(found.letters, 'dead letter')}{whose}, in {found.store}"
        for name, words in _WORDS.items():
            count: int = getattr(found, name)
            if count:
                yield f"{count:,} {agreeing(count, *words)}"
        if found.missing_bytes:
            yield missing_line(found.missing_bytes)
        yield from found.notes


_MOST_BARS: Final = 20
_WORDS: Final = {
    "exhausted": ("was tried as often as its group allows", "were tried as often as their group allows"),
    "early": (
        "was tried less often: the consumer gave up by itself",
        "were tried less often: the consumer gave up by itself",
    ),
    "here": ("has its first message in the log", "have their first message in the log"),
    "deleted": ("had a first message that was deleted", "had a first message that was deleted"),
    "elsewhere": ("has its first message on another broker", "have their first message on another broker"),
    "missing": ("has no first message where it says it is", "have no first message where they say it is"),
    "unknown": ("does not name its first message", "do not name their first message"),
}
"""What is said of one, and of several."""
