# SPDX-License-Identifier: Apache-2.0
"""The answer `trace`: what happened to one message, from its send to its last copy, in words for each record."""

from __future__ import annotations

from collections import Counter
from dataclasses import MISSING, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.answer import Answer, Kind, function_of, opt, release_option
from store_core.answers.delay_states import delay_levels, levels_note
from store_core.answers.message_reads import (
    MISSING_BYTES,
    ORIGIN_MESSAGE_ID,
    REPLAY_ID,
    REPLAY_ORIGIN_MESSAGE_ID,
    MessageRead,
    ReadJob,
    missing_line,
    read_of,
)
from store_core.answers.plots import Plot, Strip, Tone, lanes_of
from store_core.answers.report import (
    Report,
    ReportColumn,
    ReportSchema,
    ReportTable,
    fact,
    moment,
    number,
    shared,
    table,
    text,
    truth,
)
from store_core.broker.topic_kind import (
    CHECK_MAX_TIME_TOPIC,
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_TOPICS,
    TRACE_TOPIC,
)
from store_core.broker.transactions import OP_COLUMNS, operation_rows, with_ms
from store_core.errors import CorruptRecordError, InvalidOptionError, SegmentLayoutError, StoreNotFoundError
from store_core.format.columnar.arrow_slices import with_properties
from store_core.format.columns import iso_time, table_time
from store_core.format.layout import TransactionType
from store_core.format.properties import RETRY_TOPIC
from store_core.format.record.delayed import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from store_core.format.words import agreeing, counted
from store_core.store.read.option_table import NamedBy
from store_core.store.read.option_values import ReadMode

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from store_core.format.release import Release
    from store_core.snapshot.store import Store
    from store_core.store.parts import Engine


class StepKind(StrEnum):
    """What a record is; the value is its name in reports."""

    SEND = "send"
    HALF = "half"
    OPERATION = "operation"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    GIVEN_UP = "given_up"
    DELAY = "delay"
    TIMER = "timer"
    DELIVERY = "delivery"
    RETRY_WAIT = "retry_wait"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    REPLAY = "replay"
    TRACE_DATA = "trace_data"


class BrokerState(NamedTuple):
    """What a broker's files say of delivery."""

    delays: Sequence[int]  # of each delay level, ms
    next_offsets: Mapping[int, int]  # delay level -> the queue offset that is delivered next


_BY_TOPIC: Final = {
    **dict.fromkeys(HALF_TOPICS, StepKind.HALF),
    **dict.fromkeys(OP_TOPICS, StepKind.OPERATION),
    CHECK_MAX_TIME_TOPIC: StepKind.GIVEN_UP,
    TIMER_TOPIC: StepKind.TIMER,
    TRACE_TOPIC: StepKind.TRACE_DATA,
}
_BY_TYPE: Final = {
    TransactionType.PREPARED_TYPE: StepKind.HALF,
    TransactionType.COMMIT_TYPE: StepKind.COMMIT,
    TransactionType.ROLLBACK_TYPE: StepKind.ROLLBACK,
}


def kind_of(row: Mapping[str, Any]) -> StepKind:
    """Return what a record is, of those that `trace_rows` or `operations_on` return."""
    topic: str = row["topic"]
    real = row.get("real_topic")
    if topic in _BY_TOPIC:
        return _BY_TOPIC[topic]
    if topic == SCHEDULE_TOPIC:
        is_retry = real is not None and real.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        return StepKind.RETRY_WAIT if is_retry else StepKind.DELAY
    for prefix, kind in ((DEAD_LETTER_PREFIX, StepKind.DEAD_LETTER), (RETRY_PREFIX, StepKind.RETRY)):
        if topic.startswith(prefix):
            return kind
    if row.get("replay_id") is not None:
        return StepKind.REPLAY
    if row["prepared_transaction_offset"] or not (
        real == topic and (row.get("delay_level") is not None or row.get("timer_due") is not None)
    ):
        return _BY_TYPE.get(TransactionType.of(row["sys_flag"]), StepKind.SEND)
    return StepKind.DELIVERY


def is_send(row: Mapping[str, Any], kind: StepKind) -> bool:
    """Return whether a record is what a producer sent, and no copy that a broker made of it."""
    match kind:
        case StepKind.SEND:
            return True
        case StepKind.HALF:
            return row.get("check_times") is None
        case StepKind.DELAY | StepKind.TIMER:
            return not row["prepared_transaction_offset"] and row.get("roll_times") is None
        case _:
            return False


def group_of(row: Mapping[str, Any]) -> str | None:
    """Return the consumer group that a record is for, or the producer group of its transaction."""
    for topic in (row["topic"], row.get("real_topic") or ""):
        for prefix in (DEAD_LETTER_PREFIX, RETRY_PREFIX):
            if topic.startswith(prefix):
                return str(topic.removeprefix(prefix))
    return row.get("group")


def due_of(row: Mapping[str, Any], kind: StepKind, broker: BrokerState) -> int | None:
    """Return when a record that waits is due, ms."""
    if kind is StepKind.TIMER:
        return _number(row.get("timer_due"))
    level = min(_number(row.get("delay_level")) or 0, len(broker.delays))
    if kind not in (StepKind.DELAY, StepKind.RETRY_WAIT) or level <= 0:
        return None
    return int(row["store_timestamp"]) + broker.delays[level - 1]


def note_of(row: Mapping[str, Any], kind: StepKind, broker: BrokerState) -> str | None:
    """Return a record's part in words; None if its kind says all."""
    if kind in (StepKind.DELAY, StepKind.RETRY_WAIT, StepKind.TIMER):
        due = due_of(row, kind, broker)
        where = f"for {row['real_topic']}, " if row.get("real_topic") else ""
        return f"{where}due {'at once' if due is None else iso_time(due)}{_delivered(row, kind, broker)}"
    if kind not in _WORDS or (kind is StepKind.HALF and row.get("check_times") is None):
        return None
    return _WORDS[kind].format_map(dict(row) | {"group": group_of(row), "attempt": (row["reconsume_times"] or 0) + 1})


_WORDS: Final = {
    StepKind.RETRY: "attempt {attempt} of group {group}",
    StepKind.DEAD_LETTER: "group {group} failed {reconsume_times} times",
    StepKind.HALF: "the broker has asked {check_times} times",
    StepKind.COMMIT: "commits the half message at {prepared_transaction_offset}",
    StepKind.REPLAY: "replay {replay_id} of {replay_origin_id}",
}


def _delivered(row: Mapping[str, Any], kind: StepKind, broker: BrokerState) -> str:
    if kind is StepKind.TIMER:
        return ""
    next_offset = broker.next_offsets.get(row["queue_id"] + 1)
    if next_offset is None:
        return ""
    return ", delivered" if row["queue_offset"] < next_offset else ", not delivered yet"


def outcome_of(kinds: Sequence[StepKind]) -> str:
    """Return how a message ended, by the kinds of its records in order."""
    known = set(kinds)
    last = kinds[-1]
    if last is StepKind.REPLAY:
        return "replayed"
    if StepKind.DEAD_LETTER in known:
        return "dead"
    if StepKind.HALF in known and StepKind.COMMIT not in known:
        if StepKind.GIVEN_UP in known:
            return "given up"
        return "rolled back" if known & {StepKind.OPERATION, StepKind.ROLLBACK} else "pending"
    if last in (StepKind.DELAY, StepKind.TIMER):
        return "waiting"
    return "retried" if known & {StepKind.RETRY, StepKind.RETRY_WAIT} else "stored"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004 -- digits of a long


@dataclass(frozen=True)
class Trace(Answer["TraceReport"]):
    """Tell what happened to a message, in order: sends, delays, transaction, attempts, dead letter, replays.

    Duplicates are sends with the same unique key. The exit code is 1 if there are any, or if the message is a dead
    letter, and 2 if there is no such message.
    """

    NAME: ClassVar = "trace"
    IS_SUMMED: ClassVar = True
    MISSES: ClassVar = (InvalidOptionError, StoreNotFoundError)
    EXAMPLES: ClassVar = (
        "commitlog trace /data/store order-4711",
        "commitlog trace /data/store 7F00000100002A9F000000000000A3C1 --json",
        "commitlog trace /data/store orders/1/42 --html order.html",
    )
    CONFIG_WORDS: ClassVar = "messageDelayLevel"

    what: str = opt(
        MISSING,
        "A key, a unique key, an offset message id, or a place in a queue.",
        flag="",
        metavar="KEY|UNIQ_KEY|MSGID|TOPIC/QUEUE/OFFSET",
    )
    kind: NamedBy | None = opt(
        None,
        "How to read the argument.",
        flag="--as",
        choices=NamedBy,
        shown_default="what it looks like, and else a key",
    )
    release: Release = release_option()
    config: str | os.PathLike[str] | None = opt(None, "", kind=Kind.FROM_CONFIG)

    def again(self, found: Sequence[TraceReport]) -> Trace | None:
        """Ask for the unique key, which copies on other brokers have, too; an id or a place is of one broker."""
        keys = {key for report in found for key in report.tables["messages"]["unique_key"].to_pylist() if key}
        return replace(self, what=keys.pop(), kind=NamedBy.KEY) if len(keys) == 1 else None

    def on(self, engine: Engine, store: Store) -> TraceReport:
        """Find the copies of a message by its unique key, which they keep; one without it, by its message id.

        That takes the key index where it proves complete, and for a message id a scan.
        """
        return _Tracing(engine, store, self).report(self.what)


trace = function_of(Trace)


_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Tracing:
    engine: Engine
    store: Store
    options: Trace

    def report(self, what: str) -> TraceReport:
        from store_core.snapshot.config import CONSUMER_OFFSETS, DELAY_OFFSETS

        extent = self.store.asked_log
        levels = delay_levels(self.options.config, self.options.release)
        config = self.store.config.of_release(self.options.release)
        delivered, delay_notes = config.known(DELAY_OFFSETS)
        offsets, offset_notes = config.known(CONSUMER_OFFSETS)
        consumed = None if offsets is None else offsets.by_group
        broker = BrokerState(levels, delivered or {})
        rows, notes = self._records(what)
        halves = [row for row in rows if kind_of(row) is StepKind.HALF]
        rows += self._operations(halves) if halves else []
        messages = [_Message(key, those, broker) for key, those in _by_message(rows)]
        facts = TraceFacts(
            store=str(self.store.root),
            what=what,
            begin=extent.begin,
            end=extent.end,
            messages=len(messages),
            records=len(rows),
            duplicates=sum(max(message.sends - 1, 0) for message in messages),
            missing_bytes=extent.missing_bytes,
            dead=sum(StepKind.DEAD_LETTER in message.kinds for message in messages),
            notes=(*notes, *delay_notes, *offset_notes, *levels_note(self.store, _waiting(rows, broker))),
        )
        tables = {
            "messages": [message.row() for message in messages],
            "steps": sorted(
                (step for message in messages for step in message.steps()),
                key=lambda step: int(step["physical_offset"]),
            ),
            "consumers": list(_consumers(rows, consumed or {})),
        }
        return TraceReport.of(facts, tables)

    def _records(self, what: str) -> tuple[list[_Row], tuple[str, ...]]:
        """Return the records of the messages that a word means, in log order."""
        from store_core.store.read.read_messages import meanings_of

        for meaning in meanings_of(what, self.options.kind):
            rows, notes = self._read(read_of(TRACE_COLUMNS, trace_rows, release=self.options.release, **meaning))
            is_of_batch = bool(rows) and _is_of_batch(rows[0]) and meaning.get("key") in (None, rows[0]["uniq_msg_id"])
            if rows and ("key" not in meaning or is_of_batch):
                asked = rows[0]["msg_id"]
                rows, more = self._read(self._family(rows[0]))
                notes = tuple(dict.fromkeys([*notes, *more]))
                if is_of_batch:
                    rows = next(those for _, those in _by_message(rows) if any(row["msg_id"] == asked for row in those))
            if rows:
                return rows, notes
        missing = self.store.asked_log.missing_bytes
        where = f"; {missing:,} bytes of its log are missing, where one may have been" if missing else ""
        raise StoreNotFoundError(f"{self.store.root} has no message with the key, id or position {what!r}{where}")

    def _family(self, row: _Row) -> MessageRead:
        """Return the read of all copies of a message: by its unique key, or by its id if it has none."""
        key = row["unique_key"]
        if key is not None:
            return read_of(TRACE_COLUMNS, trace_rows, release=self.options.release, unique_key=key)
        origin = row["origin_id"] or row["replay_origin_id"] or row["msg_id"]
        return read_of(TRACE_COLUMNS, partial(copies_of, message_id=origin), release=self.options.release)

    def _operations(self, halves: Sequence[_Row]) -> list[_Row]:
        """Return the records that settle half messages."""
        indexes = [row["queue_offset"] for row in halves if row["topic"] == HALF_TOPIC]
        reduced = partial(operations_on, indexes=indexes, offsets=[row["physical_offset"] for row in halves])
        read = read_of(OP_COLUMNS, reduced, topic=OP_TOPICS, release=self.options.release)
        found = self._read(read)[0]
        return [_as_step(row, half) for row in found for half in halves if _settles(row, half)]

    def _read(self, read: MessageRead) -> tuple[list[_Row], tuple[str, ...]]:
        """Return the rows of a read, through queues and index if they prove complete.

        They are used only where damage is an error, as leaving it out takes a scan: that is made where there is some.
        """
        strict = replace(read, options=replace(read.options, mode=ReadMode.FAILFAST))
        try:
            job = ReadJob(self.store, strict)
            found = self.engine.run(job)
        except (CorruptRecordError, SegmentLayoutError):
            job = ReadJob(self.store, read)
            found = self.engine.run(job)
        return found.to_pylist(), job.notes


def _waiting(rows: Sequence[_Row], broker: BrokerState) -> Iterator[tuple[int, int, int, int]]:
    """Yield where delayed records are, and when they are due; see `levels_note`."""
    for row in rows:
        due = due_of(row, kind_of(row), broker) if row["topic"] == SCHEDULE_TOPIC else None
        if due is not None:
            yield row["queue_id"], row["queue_offset"], row["physical_offset"], due


def _consumers(rows: Sequence[_Row], offsets: Mapping[tuple[str, str], Mapping[int, int]]) -> Iterator[_Row]:
    """Yield for each record the groups that consume its queue, and whether they are past it."""
    for row in rows:
        for (topic, group), queues in sorted(offsets.items()):
            following = queues.get(row["queue_id"]) if topic == row["topic"] else None
            if following is not None:
                is_past = following > row["queue_offset"]
                yield row | {"group": group, "next_offset": following, "is_past": is_past}


class _Message:
    """A message and its records, in log order."""

    def __init__(self, key: str, rows: Sequence[_Row], broker: BrokerState) -> None:
        self._key = key
        self._rows = sorted(rows, key=lambda row: int(row["physical_offset"]))
        self._broker = broker
        self.kinds = [kind_of(row) for row in self._rows]
        self.sends = sum(map(is_send, self._rows, self.kinds))

    def row(self) -> _Row:
        """Return the message's row in the report."""
        first, last = self._rows[0], self._rows[-1]
        return {
            "unique_key": first["uniq_msg_id"],
            "keys": first["keys"],
            "topic": first["retry_topic"] or first["real_topic"] or first["topic"],
            "outcome": outcome_of(self.kinds),
            "sends": self.sends,
            "attempts": self.kinds.count(StepKind.RETRY),
            "first_timestamp": table_time(first["store_timestamp"]),
            "last_timestamp": table_time(last["store_timestamp"]),
        }

    def steps(self) -> Iterator[_Row]:
        """Yield the rows of its records."""
        begin = self._rows[0]["store_timestamp"]
        for row, kind in zip(self._rows, self.kinds, strict=True):
            yield row | {
                "step": kind.value,
                "store_timestamp": table_time(row["store_timestamp"]),
                "since": row["store_timestamp"] - begin,
                "due": table_time(due_of(row, kind, self._broker)),
                "group": group_of(row),
                "note": note_of(row, kind, self._broker),
            }


def _by_message(rows: Sequence[_Row]) -> Iterator[tuple[str, list[_Row]]]:
    """Yield the records of each message, those of the earliest message first."""
    found: dict[str, list[_Row]] = {}
    of_batch = {row["msg_id"]: row["uniq_msg_id"] for row in rows if _is_of_batch(row)}
    for row in sorted(rows, key=lambda row: int(row["physical_offset"])):
        found.setdefault(_message_of(row, of_batch), []).append(row)
    yield from found.items()


def _is_of_batch(row: _Row) -> bool:
    """Return whether a record is of a client's batch, whose messages have one unique key in common."""
    return bool(row["uniq_msg_id"] != row["unique_key"])


def _message_of(row: _Row, of_batch: Mapping[str, str]) -> str:
    """Return what the copies of a message have in common; those of a batch's message name it by its offset id."""
    for name in ("msg_id", "origin_id", "replay_origin_id"):
        if row.get(name) in of_batch:
            return of_batch[row[name]]
    return str(row["unique_key"] or row.get("origin_id") or row.get("replay_origin_id") or row["msg_id"])


def _settles(row: _Row, half: _Row) -> bool:
    """Return whether an operation names a half message."""
    named = row["half_physical_offset"]
    if named is not None:
        return bool(named == str(half["physical_offset"]))
    return str(half["queue_offset"]).encode() in (row["body"] or b"").split(b",")


def _as_step(row: _Row, half: _Row) -> _Row:
    """Return an operation as a record of the message that it settles."""
    place = {name: row[name] for name in ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")}
    msg_id = None if half["unique_key"] else half["msg_id"]
    return half | place | {"msg_id": msg_id, "group": None, "reconsume_times": None}


TRACE_COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_timestamp",
    "reconsume_times",
    "sys_flag",
    "prepared_transaction_offset",
    "msg_id",
    "unique_key",
    "uniq_msg_id",
    "properties",
)

_NAMES: Final = {
    "keys": "KEYS",
    "real_topic": "REAL_TOPIC",
    "retry_topic": RETRY_TOPIC,
    "origin_id": ORIGIN_MESSAGE_ID,
    "delay_level": "DELAY",
    "timer_due": "TIMER_OUT_MS",
    "roll_times": "TIMER_ROLL_TIMES",
    "group": "PGROUP",
    "check_times": "TRANSACTION_CHECK_TIMES",
    "replay_id": REPLAY_ID,
    "replay_origin_id": REPLAY_ORIGIN_MESSAGE_ID,
}


def trace_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records, read with `TRACE_COLUMNS`, with the properties that matter as columns of strings."""
    return with_ms(with_properties(batch, _NAMES))


def copies_of(batch: pa.RecordBatch, *, message_id: str) -> pa.RecordBatch:
    """Return the records that name a message by its offset id, as those without a unique key do; and its own record."""
    rows = trace_rows(batch)
    columns = (rows[name] for name in ("msg_id", "origin_id", "replay_origin_id"))
    named, *others = (pc.fill_null(pc.equal(column, message_id), False) for column in columns)  # noqa: FBT003 -- a value
    for other in others:
        named = pc.or_(named, other)
    return rows.filter(named)


def operations_on(batch: pa.RecordBatch, *, indexes: Sequence[int], offsets: Sequence[int]) -> pa.RecordBatch:
    """Return the operations, read with `OP_COLUMNS`, on half messages with some queue offsets or physical offsets."""
    rows = operation_rows(batch)
    pattern = f"(^|,)({'|'.join(map(str, indexes)) or '-'})(,|$)"
    texts = pa.array(
        [body if body is None else body.decode("latin-1") for body in rows["body"].to_pylist()], pa.string()
    )
    is_index = pc.fill_null(pc.match_substring_regex(texts, pattern), False)  # noqa: FBT003 -- a value
    is_offset = pc.is_in(rows["half_physical_offset"], pa.array(list(map(str, offsets)), pa.string()))
    is_named = pc.is_valid(rows["half_physical_offset"])
    return rows.filter(pc.if_else(is_named, is_offset, is_index))


_UNIQUE: Final = text("unique_key", "the id that its producer got")


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """The facts of the answer."""

    store: str = fact("the store's root")
    what: str = fact("the key, unique key or message id that was asked for")
    begin: int = fact("physical offset at which the log begins", over="min")
    end: int = fact("physical offset at which its files end", over="max")
    messages: int = fact("messages that it names: those with different unique keys", default=0)
    records: int = fact("records of these messages", default=0)
    duplicates: int = fact("sends beyond the first with the same unique key", default=0, tells="findings")
    dead: int = fact("messages that are dead letters", default=0, tells="findings")
    missing_bytes: int = fact(MISSING_BYTES, default=0, tells="damaged")
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


_REPORT_TABLES: Final = (
    table(
        "messages",
        "Messages",
        _UNIQUE,
        text("keys", "property KEYS"),
        text("topic", "the topic that it was sent to"),
        text("outcome", "`stored`, `waiting`, `retried`, `dead`, `replayed`, `pending`, ..."),
        number("sends", "how often it was sent"),
        number("attempts", "copies that consumers were to try again"),
        moment("first_timestamp", "store time of its first record"),
        moment("last_timestamp", "store time of its last record", in_text=False),
    ),
    table(
        "steps",
        "What happened, in order",
        *shared("store_timestamp"),
        text("step", "what the record is"),
        *shared("topic", "queue_id", "queue_offset", "physical_offset"),
        text("note", "what that means"),
        text("group", "consumer group, or producer group of a transaction", in_text=False),
        number("since", "ms after the message's first record", in_text=False),
        ReportColumn("reconsume_times", pa.int32(), "deliveries that failed before", in_text=False),
        moment("due", "when a record that waits is due", in_text=False),
        *shared("msg_id", in_text=False),
        text("origin_id", "offset message id of the first message", in_text=False),
        ReportColumn(_UNIQUE.name, _UNIQUE.type, _UNIQUE.doc, in_text=False),
    ),
    table(
        "consumers",
        "Consumer groups of these queues",
        text("group", "consumer group"),
        text("topic", "topic of the record"),
        *shared("queue_id"),
        number("queue_offset", "the record"),
        number("next_offset", "what the group consumes next, by consumerOffset.json"),
        truth("is_past", "whether the group is past the record"),
    ),
)

_TONES: Final[dict[str, Tone]] = {
    kind.value: Tone.BAD if kind in (StepKind.DEAD_LETTER, StepKind.GIVEN_UP) else Tone.PLAIN for kind in StepKind
} | {StepKind.RETRY.value: Tone.WARNING, StepKind.SEND.value: Tone.GOOD, StepKind.COMMIT.value: Tone.GOOD}


class TraceReport(Report[TraceFacts]):
    """What happened to a message."""

    SCHEMA: ClassVar = ReportSchema.of("trace", 1, TraceFacts, *_REPORT_TABLES)
    IS_JUDGEMENT: ClassVar = False

    def over_stores(self) -> TraceReport:
        """Tell the steps in the order of time, and count a message once that has records on several brokers."""
        rows = self.tables["messages"].to_pylist()
        keys = {row["unique_key"] for row in rows if row["unique_key"] is not None}
        sends = Counter({key: sum(row["sends"] for row in rows if row["unique_key"] == key) for key in keys})
        steps = self.tables["steps"].sort_by([("store_timestamp", "ascending")])
        facts: Any = replace(
            self.found,
            messages=len(keys) + sum(row["unique_key"] is None for row in rows),
            duplicates=sum(max(count - 1, 0) for count in sends.values()),
        )
        return replace(self, found=facts, tables={**self.tables, "steps": steps})

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

    def _in_text(self, table: ReportTable) -> pa.Table:
        """Return what the text shows; steps of several messages say whose they are."""
        shown = super()._in_text(table)
        if table.name != "steps" or self.found.messages == 1:
            return shown
        return shown.append_column(_UNIQUE.name, self.tables["steps"][_UNIQUE.name].slice(0, shown.num_rows))

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
