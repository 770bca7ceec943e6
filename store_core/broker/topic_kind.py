# SPDX-License-Identifier: Apache-2.0
"""What a topic is for, as far as its name tells."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from store_core.format.record.delayed import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from store_core.format.release import Release, rules_of

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Topic where half messages wait (RocketMQ 4.3 and later)."""
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Topic of the records that say which half messages are settled."""
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Topic of half messages that nobody settled, after ``transactionCheckMax`` questions to their producers."""

HALF_TOPICS: Final = (HALF_TOPIC, "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
"""Also that of brokers with ``transRocksDBEnable`` and without ``transWriteOriginTransHalfEnable`` (5.4 and later)."""
OP_TOPICS: Final = (OP_TOPIC, "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
"""The records of the second name a half message by its physical offset, in a property."""
DEAD_LETTER_PREFIX: Final = "%DLQ%"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Where clients send traces, unless the broker's ``msgTraceTopicName`` says otherwise."""


class TopicKind(Enum):
    """What a topic is for; its value is the kind in words."""

    APPLICATION = "an application's messages"
    RETRY = "messages that consumers could not process, to be delivered again"
    DEAD_LETTER = "messages whose deliveries all failed"
    HALF = "transactional messages that are not settled, and settled ones that are still there"
    OP = "which transactional messages are settled"
    SCHEDULE = "messages waiting for a delay level, and delivered ones that are still there"
    TIMER = "messages waiting for their time, and delivered ones that are still there"
    TRACE = "traces of clients"
    SYSTEM = "other messages of the broker's own"


_DEFAULT_TOPIC: Final = "TBW102"
_BY_NAME: Final = {
    **dict.fromkeys(HALF_TOPICS, TopicKind.HALF),
    **dict.fromkeys(OP_TOPICS, TopicKind.OP),
    SCHEDULE_TOPIC: TopicKind.SCHEDULE,
    TIMER_TOPIC: TopicKind.TIMER,
    TRACE_TOPIC: TopicKind.TRACE,
    CHECK_MAX_TIME_TOPIC: TopicKind.SYSTEM,
    _DEFAULT_TOPIC: TopicKind.SYSTEM,
    "BenchmarkTest": TopicKind.SYSTEM,
    "SELF_TEST_TOPIC": TopicKind.SYSTEM,
    "OFFSET_MOVED_EVENT": TopicKind.SYSTEM,
    "CHECKPOINT_TOPIC": TopicKind.SYSTEM,
}
"""Topics with fixed names (RocketMQ: ``TopicValidator``)."""

_BY_PREFIX: Final = (
    (RETRY_PREFIX, TopicKind.RETRY),
    (DEAD_LETTER_PREFIX, TopicKind.DEAD_LETTER),
    ("rmq_sys_", TopicKind.SYSTEM),
)


_ACTED_ON: Final = frozenset({TopicKind.HALF, TopicKind.OP, TopicKind.SCHEDULE, TopicKind.TIMER})
_NOT_SENT_TO: Final = frozenset({CHECK_MAX_TIME_TOPIC, "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"})
"""Topics to which only the broker itself sends, beside those whose messages it acts on (``isNotAllowedSendTopic``)."""

_ILLEGAL: Final = re.compile(r"[^%|a-zA-Z0-9_-]")
_LONGEST: Final = 127


def kind_of_topic(topic: str) -> TopicKind:
    """Return what a topic is for.

    >>> kind_of_topic("%RETRY%billing"), kind_of_topic("orders")
    (<TopicKind.RETRY: 'messages that consumers could not process, to be delivered again'>, \
<TopicKind.APPLICATION: "an application's messages">)
    """
    known = _BY_NAME.get(topic)
    if known is not None:
        return known
    return next((kind for prefix, kind in _BY_PREFIX if topic.startswith(prefix)), TopicKind.APPLICATION)


def send_refusal(topic: str, release: Release) -> str | None:
    """Return why brokers of a release take no messages of a topic from clients; None if they do.

    RocketMQ: ``TopicValidator``; of 4.3 the client's ``Validators``. Clients of some releases may send to topics whose
    messages a broker acts on; that is refused of all, since the message would be taken for one that waits.

    >>> send_refusal("orders.v1", "5.5")
    "it has the character '.': expected letters, digits and the characters %|_-, as in all names of topics"
    """
    from store_core.store.put.put_service import topic_refusal  # noqa: PLC0415 -- only names are looked at elsewhere

    refusal = topic_refusal(topic, release)
    if refusal is not None:
        return refusal
    illegal = _ILLEGAL.search(topic)
    if illegal is not None or not topic:
        has = f"it has the character {illegal[0]!r}" if illegal is not None else "it is empty"
        return f"{has}: expected letters, digits and the characters %|_-, as in all names of topics"
    kind, rules = kind_of_topic(topic), rules_of(release)
    if kind in _ACTED_ON or topic in _NOT_SENT_TO or (topic == _DEFAULT_TOPIC and rules.reserves_default_topic):
        return f"clients can't send to it, since a broker keeps there {kind.value}"
    if len(topic) > _LONGEST and not rules.takes_long_retry_topics:
        return f"it has {len(topic)} characters; of clients a broker takes at most {_LONGEST}"
    return None
