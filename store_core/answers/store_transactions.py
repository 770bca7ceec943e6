# SPDX-License-Identifier: Apache-2.0
"""The answer `transactions`: how transactions ended, and which did not."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import pyarrow as pa

from store_core.answers.answer import TIME_WORDS, Answer, Kind, flag, function_of, opt, release_option
from store_core.answers.message_reads import SharedScan, read_of
from store_core.answers.plots import Bar, Bars, Plot, Strip, Tone, lanes_of
from store_core.answers.report import Report, ReportColumn, ReportSchema, fact, moment, number, shared, table, text
from store_core.broker.topic_kind import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, HALF_TOPICS, OP_TOPICS
from store_core.broker.transactions import (
    HALF_COLUMNS,
    OP_COLUMNS,
    SETTLED_COLUMNS,
    Transaction,
    TransactionStatus,
    half_rows,
    operation_rows,
    settled_rows,
    transactions_of,
)
from store_core.files.machine import SystemClock
from store_core.format.columns import iso_time, table_time
from store_core.format.layout import TRANSACTION_MASK, TransactionType
from store_core.format.words import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from store_core.format.release import Release
    from store_core.snapshot.store import Store
    from store_core.snapshot.units import Queue
    from store_core.store.parts import Engine


def absent_records(store: Store, records: Iterable[Mapping[str, Any]]) -> set[int] | None:
    """Return the physical offsets of records to which their queues do not lead; None if there are no queue files.

    What a crash or a running broker has not put into its queues yet is not absent: as long as the store is open, a
    queue that ends before a record proves nothing.
    """
    from store_core.files.store_lock import ABORT_FILE
    from store_core.snapshot.queues import Queues
    from store_core.snapshot.units import QueueDoubtError

    by_queue: defaultdict[tuple[str, int], dict[int, int]] = defaultdict(dict)  # queue -> physical offset -> its place
    for row in records:
        by_queue[row["topic"], row["queue_id"]][row["physical_offset"]] = row["queue_offset"]
    if not by_queue:
        return set()
    beside = Queues(store.root)
    queues = {queue.name: queue for queue in beside.each() if queue.files} if beside.database is None else {}
    if not queues:
        return None

    def is_absent(queue: Queue, physical_offset: int, queue_offset: int) -> bool:
        try:
            unit = queue.unit_at(queue_offset)
        except QueueDoubtError:
            return True
        return unit is None or unit[0] != physical_offset

    is_open, absent = store.is_live or (store.root / ABORT_FILE).exists(), set[int]()
    for name, places in by_queue.items():
        queue = queues.get(name)
        if queue is not None:
            last = max(queue.last().starts.tolist(), default=0) if is_open else 2**63 - 1
            absent |= {at for at, place in places.items() if at < last and is_absent(queue, at, place)}
        elif not is_open:
            absent |= places.keys()
    return absent


@dataclass(frozen=True)
class Transactions(Answer["TransactionsReport"]):
    """Tell how transactions ended: pending, committed, rolled back, given up, lost.

    Only the log, consume queues and consumerOffset.json are read. The exit code is 1 if one is stuck, or pending
    for too long.
    """

    NAME: ClassVar = "transactions"
    IS_SUMMED: ClassVar = True
    EXAMPLES: ClassVar = (
        "commitlog transactions /data/store",
        "commitlog transactions /data/store --older-than 3600 --html report.html",
        "commitlog transactions /data/store --all --json",
    )

    older_than: int = opt(
        60, "A transaction that is pending for longer than this is a finding.", metavar="SECONDS", least=0
    )
    most_checks: int = opt(
        15, "How often a broker asks a producer about a transaction (transactionCheckMax).", metavar="N", least=0
    )
    now: int | None = opt(
        None, f"Time that counts as now: {TIME_WORDS}.", kind=Kind.TIME, metavar="TIME", shown_default="the clock"
    )
    lists_all: bool = flag("List also transactions without a problem.", "--all")
    rows: int = opt(1000, "Rows that are listed; all are counted.", metavar="N", least=0)
    release: Release = release_option()

    def on(self, engine: Engine, store: Store) -> TransactionsReport:
        """Read the system topics, and of other messages those that settle a transaction."""
        # Where the broker is in the half messages: before the log's end is, so that the new copies of those that it is
        # past are read, too.
        asked_next, notes = _asked_next(store)
        shared: dict[str, Any] = {"release": self.release}
        reads = {
            "given_up": read_of(("unique_key",), topic=(CHECK_MAX_TIME_TOPIC,), **shared),
            "operations": read_of(OP_COLUMNS, operation_rows, topic=OP_TOPICS, **shared),
            "settled": read_of(SETTLED_COLUMNS, settled_rows, flag_bits=TRANSACTION_MASK, **shared),
            "halves": read_of(HALF_COLUMNS, half_rows, topic=HALF_TOPICS, **shared),
        }
        job = SharedScan(store, reads)
        found = engine.run(job)
        now = SystemClock().now_ms() if self.now is None else self.now
        log = store.asked_log.remaining()  # after the read: the halves of what was deleted are not missing
        rows = {name: table.to_pylist() for name, table in found.tables.items()}
        given_up = [row["unique_key"] for row in rows["given_up"]]
        state = transactions_of(rows["halves"], rows["settled"], rows["operations"], given_up)
        commits = [row for row in rows["settled"] if TransactionType.of(row["sys_flag"]) is TransactionType.COMMIT_TYPE]
        absent = absent_records(store, commits)
        damage = [
            (row["physical_offset"], row["physical_offset"] + row["store_size"]) for row in found.damage.to_pylist()
        ]
        halves = [row["queue_offset"] for row in rows["halves"] if row["topic"] == HALF_TOPIC]
        evidence = Evidence(
            absent or (), asked_next, sorted([*log.missing, *damage]), log.begin, min(halves, default=None)
        )
        ended = [(evidence.end_of(each), each) for each in state.transactions]
        facts = TransactionsFacts(
            store=str(store.root),
            now=iso_time(now),
            begin=log.begin,
            end=log.end,
            half_messages=len(rows["halves"]),
            transactions=len(ended),
            **self._counts(ended, now),
            lost_bytes=sum(end - begin for begin, end in evidence.lost),
            are_queues_checked=absent is not None,
            notes=(*job.notes, *state.notes, *notes),
        )
        return TransactionsReport.of(facts, {"groups": list(_groups(ended)), "transactions": self._rows(ended)})

    def _counts(self, ended: Sequence[tuple[End, Transaction]], now: int) -> dict[str, Any]:
        """Return the facts that count transactions."""
        pending = [each.store_timestamp for end, each in ended if end is End.PENDING]
        often = [each for end, each in ended if end in _UNSETTLED and each.checks >= self.most_checks]
        return {
            **Counter(end.value for end, _ in ended),
            "old_pending": sum(time < now - 1000 * self.older_than for time in pending),
            "checked_too_often": len(often),
            "oldest_pending": iso_time(min(pending)) if pending else None,
        }

    def _rows(self, ended: Iterable[tuple[End, Transaction]]) -> list[dict[str, Any]]:
        """Return the rows of the transactions, those that are findings first."""
        findings = {each.name for each in fields(TransactionsFacts) if each.metadata["tells"] == "findings"}
        kept = [(end, each) for end, each in ended if self.lists_all or end in findings or end is End.PENDING]
        kept.sort(key=lambda pair: pair[0] not in findings)
        return [
            asdict(each) | {"state": end.value, "store_timestamp": table_time(each.store_timestamp)}
            for end, each in kept[: self.rows]
        ]


transactions = function_of(Transactions)


BROKER_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Consumer group by which a broker reads its half messages, to ask about those that are not settled."""


class End(StrEnum):
    """How a transaction ended; the value is the name of the fact that says what that is."""

    PENDING = "pending"
    GIVEN_UP = "given_up"
    COMMITTED = "committed"
    COMMITTED_ABSENT = "committed_absent"
    ROLLED_BACK = "rolled_back"
    SETTLED = "settled"
    HALF_MISSING = "half_missing"
    HALF_DELETED = "half_deleted"


class Evidence(NamedTuple):
    """What else is known of a store."""

    absent: Collection[int]  # physical offsets of commits to which no queue leads
    asked_next: int  # queue offset of the half message that the broker looks at next; 0 if it is not known
    lost: Sequence[tuple[int, int]]  # ranges of the log without records that should be there, ascending
    log_begin: int  # physical offset
    first_half: int | None  # queue offset of the first half message in the log

    def is_lost_between(self, begin: int, end: int) -> bool:
        """Return whether anything is lost between two physical offsets."""
        at = bisect_left(self.lost, begin, key=lambda each: each[1])
        return at < len(self.lost) and self.lost[at][0] < end

    def end_of(self, found: Transaction) -> End:
        """Return how a transaction ended."""
        match found.status:
            case TransactionStatus.COMMITTED:
                return End.COMMITTED_ABSENT if found.commit_offset in self.absent else End.COMMITTED
            case TransactionStatus.ROLLED_BACK:
                begin, end = found.half_offset or 0, found.op_offset or 0
                return End.SETTLED if self.is_lost_between(begin, end) else End.ROLLED_BACK
            case TransactionStatus.PENDING:
                is_passed = found.half_queue_offset is not None and found.half_queue_offset < self.asked_next
                return End.GIVEN_UP if is_passed else End.PENDING
            case TransactionStatus.ORPHANED:
                if found.commit_offset is None and found.op_offset is None:
                    return End.GIVEN_UP
                if found.half_offset is not None:
                    return End.HALF_DELETED if found.half_offset < self.log_begin else End.HALF_MISSING
                is_first = self.first_half is None or (found.half_queue_offset or 0) < self.first_half
                return End.HALF_DELETED if self.log_begin and is_first else End.HALF_MISSING


def _asked_next(store: Store) -> tuple[int, tuple[str, ...]]:
    """Return the queue offset of the half message that the broker looks at next, and a note on the file.

    It is 0 if it is not known.
    """
    from store_core.snapshot.config import CONSUMER_OFFSETS

    found_offsets, notes = store.config.known(CONSUMER_OFFSETS)
    offsets = None if found_offsets is None else found_offsets.by_group
    return (offsets or {}).get((HALF_TOPIC, BROKER_GROUP), {}).get(0, 0), notes


_UNSETTLED: Final = frozenset({End.PENDING, End.GIVEN_UP})


def _groups(ended: Iterable[tuple[End, Transaction]]) -> Iterator[dict[str, Any]]:
    """Yield how many transactions of each producer group and topic ended in which way."""
    found: dict[tuple[str, str, str], list[Transaction]] = {}
    for end, each in ended:
        found.setdefault((each.group or "", each.topic or "", end.value), []).append(each)
    for (group, topic, state), those in sorted(found.items()):
        times = [each.store_timestamp for each in those]
        yield {
            "group": group or None,
            "topic": topic or None,
            "state": state,
            "transactions": len(those),
            "most_checks": max(each.checks for each in those),
            "first_timestamp": table_time(min(times)),
            "last_timestamp": table_time(max(times)),
        }


@dataclass(frozen=True, slots=True)
class TransactionsFacts:
    """The facts of the answer."""

    store: str = fact("the store's root")
    now: str = fact("time as of which transactions are judged, ISO 8601")
    begin: int = fact("physical offset at which the log begins", over="min")
    end: int = fact("physical offset at which its files end", over="max")
    half_messages: int = fact("half messages in the log, the broker's copies included", default=0)
    transactions: int = fact("transactions of which anything is in the log", default=0)
    pending: int = fact("neither committed nor rolled back; the broker asks the producer", default=0)
    given_up: int = fact(
        "not settled, and the broker asks no more: it moved the half message, or is past it",
        default=0,
        tells="findings",
    )
    committed: int = fact("its message is in the log, and its queue leads to it", default=0)
    committed_absent: int = fact(
        "its message is in the log, and its queue does not lead to it: no consumer gets it",
        default=0,
        tells="findings",
    )
    rolled_back: int = fact("settled, and no message was put", default=0)
    settled: int = fact(
        "settled, and bytes of the log are lost since: rolled back, or committed and lost", default=0, tells="findings"
    )
    half_missing: int = fact(
        "a commit or an operation whose half message is not in the log, though later ones are",
        default=0,
        tells="findings",
    )
    half_deleted: int = fact("the same, with a half message from before the log begins", default=0)
    old_pending: int = fact(
        "pending transactions that began longer ago than the option `older_than` allows", default=0, tells="findings"
    )
    checked_too_often: int = fact(
        "unsettled transactions about which the broker has asked `most_checks` times or more",
        default=0,
        tells="findings",
    )
    oldest_pending: str | None = fact(
        "when the oldest pending transaction began, ISO 8601, or null", default=None, over="min"
    )
    lost_bytes: int = fact("bytes of the log without records that should be there", default=0, tells="damaged")
    are_queues_checked: bool = fact(
        "whether commits were looked up in consume queue files; false if there are none", default=True
    )
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


_REPORT_TABLES: Final = (
    table(
        "groups",
        "By producer group",
        text("group", "producer group; null if only the end is left"),
        text("topic", "the real topic"),
        text("state", "how they ended: one of the facts"),
        number("transactions", "how many"),
        number("most_checks", "how often the broker asked about one, at most"),
        moment("first_timestamp", "when the first began"),
        moment("last_timestamp", "when the last began"),
    ),
    table(
        "transactions",
        "Transactions that did not end",
        text("state", "as in `groups`"),
        text("topic", "the real topic"),
        ReportColumn("queue_id", pa.int32(), "the real queue", in_text=False),
        text("group", "producer group"),
        *shared("unique_key"),
        number("checks", "how often the broker asked the producer"),
        moment("store_timestamp", "store time of its first record in the log"),
        number("half_offset", "physical offset of the newest half message"),
        number("half_queue_offset", "its queue offset", in_text=False),
        number("commit_offset", "physical offset of the committed message"),
        number("op_offset", "physical offset of the record that settles it"),
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


class TransactionsReport(Report[TransactionsFacts]):
    """What became of the transactions of a store."""

    SCHEMA: ClassVar = ReportSchema.of("transactions", 1, TransactionsFacts, *_REPORT_TABLES)

    @property
    def plots(self) -> tuple[Plot, ...]:
        """How transactions ended, and the places of pending ones in the log."""
        counts = ((name, getattr(self.found, name), tone) for name, tone in _TONES.items())
        bars = tuple(Bar(name, count, tone, f"{count:,}") for name, count, tone in counts if count)
        rows = self.tables["transactions"].select(["state", "half_offset", "commit_offset", "op_offset"]).to_pylist()
        places = [(row["state"], row["half_offset"] or row["commit_offset"] or row["op_offset"]) for row in rows]
        lanes = lanes_of([(state, at, at + 1) for state, at in places if at is not None], _TONES, "transaction")
        if not lanes:
            return (Bars("How transactions ended", bars),)
        strip = Strip("Where in the log their half messages are", self.found.begin, self.found.end, lanes)
        return Bars("How transactions ended", bars), strip

    def _lines(self) -> Iterator[str]:
        found = self.found
        yield f"{found.store}: {counted(found.transactions, 'transaction')}, as of {found.now}"
        for each in self.SCHEMA.facts:
            if each.name in _TONES and getattr(found, each.name):
                yield f"{getattr(found, each.name):,} {each.name.replace('_', ' ')}: {each.doc}"
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
