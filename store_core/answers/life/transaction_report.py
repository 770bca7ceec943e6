# SPDX-License-Identifier: Apache-2.0
"""The report of the answer `transactions`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.life.transaction_ends import End
from store_core.answers.report import Report
from store_core.answers.report_plots import Bar, Bars, Strip, Tone, lanes_of
from store_core.answers.report_schema import Fact, ReportColumn, ReportSchema, ReportTable
from store_core.answers.verdict import Verdict
from store_core.format.columns import TIMESTAMP_TYPE
from store_core.format.counted import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.report_plots import Plot

__all__ = ["TRANSACTIONS_SCHEMA", "TransactionsFacts", "TransactionsReport"]

TRANSACTIONS_SCHEMA: Final = ReportSchema(
    "transactions",
    1,
    (
        Fact("store", "the store's root"),
        Fact("at", "time as of which transactions are judged, ISO 8601"),
        Fact("begin", "physical offset at which the log begins"),
        Fact("end", "physical offset at which its files end"),
        Fact("half_messages", "half messages in the log, the broker's copies included"),
        Fact("transactions", "transactions of which anything is in the log"),
        *(Fact(each.value, each.meaning) for each in End),
        Fact("old_pending", "pending transactions that began longer ago than the option `older_than` allows"),
        Fact(
            "checked_too_often", "unsettled transactions about which the broker has asked `most_checks` times or more"
        ),
        Fact("oldest_pending", "when the oldest pending transaction began, ISO 8601, or null"),
        Fact("lost_bytes", "bytes of the log without records that should be there"),
        Fact("are_queues_checked", "whether commits were looked up in consume queue files; false if there are none"),
        Fact("notes", "what else an operator should know"),
    ),
    (
        ReportTable(
            "groups",
            "By producer group",
            (
                ReportColumn("group", pa.string(), "producer group; null if only the end is left"),
                ReportColumn("topic", pa.string(), "the real topic"),
                ReportColumn("state", pa.string(), "how they ended: one of the facts"),
                ReportColumn("transactions", pa.int64(), "how many"),
                ReportColumn("most_checks", pa.int64(), "how often the broker asked about one, at most"),
                ReportColumn("first_timestamp", TIMESTAMP_TYPE, "when the first began"),
                ReportColumn("last_timestamp", TIMESTAMP_TYPE, "when the last began"),
            ),
        ),
        ReportTable(
            "transactions",
            "Transactions that did not end",
            (
                ReportColumn("state", pa.string(), "as in `groups`"),
                ReportColumn("topic", pa.string(), "the real topic"),
                ReportColumn("queue_id", pa.int32(), "the real queue", in_text=False),
                ReportColumn("group", pa.string(), "producer group"),
                ReportColumn("unique_key", pa.string(), "the id that its producer gave it"),
                ReportColumn("checks", pa.int64(), "how often the broker asked the producer"),
                ReportColumn("store_timestamp", TIMESTAMP_TYPE, "store time of its first record in the log"),
                ReportColumn("half_offset", pa.int64(), "physical offset of the newest half message"),
                ReportColumn("half_queue_offset", pa.int64(), "its queue offset", in_text=False),
                ReportColumn("commit_offset", pa.int64(), "physical offset of the committed message"),
                ReportColumn("op_offset", pa.int64(), "physical offset of the record that settles it"),
            ),
        ),
    ),
)

_TONES: Final[dict[str, Tone]] = {
    End.PENDING: Tone.WARNING,
    End.GIVEN_UP: Tone.BAD,
    End.COMMITTED: Tone.GOOD,
    End.COMMITTED_ABSENT: Tone.BAD,
    End.ROLLED_BACK: Tone.GOOD,
    End.SETTLED: Tone.BAD,
    End.HALF_MISSING: Tone.BAD,
    End.HALF_DELETED: Tone.PLAIN,
}


@dataclass(frozen=True, slots=True)
class TransactionsFacts:
    """The facts of the answer, as `TRANSACTIONS_SCHEMA` explains them."""

    store: str
    at: str
    begin: int
    end: int
    half_messages: int = 0
    transactions: int = 0
    pending: int = 0
    given_up: int = 0
    committed: int = 0
    committed_absent: int = 0
    rolled_back: int = 0
    settled: int = 0
    half_missing: int = 0
    half_deleted: int = 0
    old_pending: int = 0
    checked_too_often: int = 0
    oldest_pending: str | None = None
    lost_bytes: int = 0
    are_queues_checked: bool = True
    notes: tuple[str, ...] = ()

    def count(self, end: End) -> int:
        """Return how many transactions ended so."""
        number: int = getattr(self, end.value)
        return number


class TransactionsReport(Report[TransactionsFacts]):
    """What became of the transactions of a store, as `TRANSACTIONS_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = TRANSACTIONS_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Findings if a transaction will not end by itself, or is pending for too long; damage if bytes are lost."""
        found = self.found
        is_stuck = bool(found.old_pending or found.checked_too_often)
        has_findings = is_stuck or any(found.count(end) for end in End if end.is_finding)
        return Verdict.of(has_findings=has_findings, is_damaged=bool(found.lost_bytes))

    @property
    def plots(self) -> tuple[Plot, ...]:
        """How transactions ended, and where in the log those are that did not."""
        counts = [(end, self.found.count(end)) for end in End]
        bars = tuple(Bar(end.value, count, _TONES[end], f"{count:,}") for end, count in counts if count)
        rows = self.tables["transactions"].select(["state", "half_offset", "commit_offset", "op_offset"]).to_pylist()
        places = [(row["state"], row["half_offset"] or row["commit_offset"] or row["op_offset"]) for row in rows]
        lanes = lanes_of([(state, at, at + 1) for state, at in places if at is not None], _TONES, "transaction")
        if not lanes:
            return (Bars("How transactions ended", bars),)
        strip = Strip("Where in the log their half messages are", self.found.begin, self.found.end, lanes)
        return Bars("How transactions ended", bars), strip

    def _lines(self) -> Iterator[str]:
        found = self.found
        yield f"{found.store}: {counted(found.transactions, 'transaction')}, as of {found.at}"
        for end in End:
            if found.count(end):
                yield f"{found.count(end):,} {end.value.replace('_', ' ')}: {end.meaning}"
        if found.old_pending:
            old = agreeing(found.old_pending, "is old; it began", "are old; the oldest began")
            yield f"{found.old_pending:,} of the pending ones {old} at {found.oldest_pending}"
        if found.checked_too_often:
            yield f"the broker has asked about {found.checked_too_often:,} of those not settled as often as it may"
        if found.lost_bytes:
            yield f"{found.lost_bytes:,} bytes of the log are lost"
        if not found.are_queues_checked:
            yield "whether queues lead to committed messages was not checked: there are no consume queue files"
        yield from found.notes
