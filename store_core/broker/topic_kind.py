# SPDX-License-Identifier: Apache-2.0
"""What a topic is for, as far as its name tells."""

from __future__ import annotations

from enum import Enum
from typing import Final

from store_core.broker.transaction_rows import CHECK_MAX_TIME_TOPIC, HALF_TOPICS, OP_TOPICS
from store_core.format.record.delayed import SCHEDULE_TOPIC, TIMER_TOPIC
from store_core.store.put.put_checks import RETRY_PREFIX

__all__ = ["DEAD_LETTER_PREFIX", "TRACE_TOPIC", "TopicKind", "kind_of_topic"]

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


_BY_NAME: Final = {
    **dict.fromkeys(HALF_TOPICS, TopicKind.HALF),
    **dict.fromkeys(OP_TOPICS, TopicKind.OP),
    SCHEDULE_TOPIC: TopicKind.SCHEDULE,
    TIMER_TOPIC: TopicKind.TIMER,
    TRACE_TOPIC: TopicKind.TRACE,
    CHECK_MAX_TIME_TOPIC: TopicKind.SYSTEM,
    "TBW102": TopicKind.SYSTEM,
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


def kind_of_topic(topic: str) -> TopicKind:
    """Return what a topic is for.

    Examples
    --------
    >>> kind_of_topic("%RETRY%billing"), kind_of_topic("orders")
    (<TopicKind.RETRY: 'messages that consumers could not process, to be delivered again'>, \
<TopicKind.APPLICATION: "an application's messages">)
    """
    known = _BY_NAME.get(topic)
    if known is not None:
        return known
    return next((kind for prefix, kind in _BY_PREFIX if topic.startswith(prefix)), TopicKind.APPLICATION)
