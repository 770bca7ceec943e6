# SPDX-License-Identifier: Apache-2.0
"""Names say what a topic is for."""

from __future__ import annotations

import pytest

from store_core.broker.topic_kind import TopicKind, kind_of_topic


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("orders", TopicKind.APPLICATION),
        ("RETRY", TopicKind.APPLICATION),
        ("", TopicKind.APPLICATION),
        ("%RETRY%", TopicKind.RETRY),
        ("%RETRY%group+orders", TopicKind.RETRY),
        ("%DLQ%group", TopicKind.DEAD_LETTER),
        ("RMQ_SYS_TRANS_HALF_TOPIC", TopicKind.HALF),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", TopicKind.OP),
        ("SCHEDULE_TOPIC_XXXX", TopicKind.SCHEDULE),
        ("rmq_sys_wheel_timer", TopicKind.TIMER),
        ("rmq_sys_SYNC_BROKER_MEMBER_a", TopicKind.SYSTEM),
        ("RMQ_SYS_TRACE_TOPIC", TopicKind.TRACE),
        ("TBW102", TopicKind.SYSTEM),
    ],
)
def test_a_name_says_what_a_topic_is_for(topic: str, kind: TopicKind) -> None:
    assert kind is kind_of_topic(topic)
