# SPDX-License-Identifier: Apache-2.0
"""What a record is in the life of its message, in one word and in one line."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from store_core.broker.topic_kind import CHECK_MAX_TIME_TOPIC, DEAD_LETTER_PREFIX, HALF_TOPICS, OP_TOPICS, TRACE_TOPIC
from store_core.format.columns import iso_time
from store_core.format.layout import TransactionType
from store_core.format.record.delayed import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
