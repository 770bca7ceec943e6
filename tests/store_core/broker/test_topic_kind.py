# SPDX-License-Identifier: Apache-2.0
"""Names say what a topic is for."""

from __future__ import annotations

import pytest

from store_core.broker.topic_kind import TopicKind, kind_of_topic, send_refusal
from store_core.format.release import RELEASES, Release


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


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "topic",
    [
        *("", " ", "or ders", "ördérs", "orders.v1", "orders/v1", "a\nb", "t" * 128, "%RETRY%" + "g" * 249, "中"),
        *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer"),
        *("TRANS_CHECK_MAX_TIME_TOPIC", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC"),
    ],
)
def test_clients_can_not_send_to_it(topic: str, release: Release) -> None:
    assert send_refusal(topic, release)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "topic",
    [
        "orders",
        "O_r-d|e%1",
        "t" * 127,
        "%RETRY%g",
        "%DLQ%g",
        "BenchmarkTest",
        "RMQ_SYS_TRACE_TOPIC",
        "CHECKPOINT_TOPIC",
    ],
)
def test_clients_can_send_to_it(topic: str, release: Release) -> None:
    assert send_refusal(topic, release) is None


@pytest.mark.parametrize(
    ("topic", "releases"),
    [("TBW102", {*RELEASES} - {"4.3"}), ("%RETRY%" + "g" * 121, {*RELEASES} - {"4.3", "4.9", "5.3"})],
)
def test_what_clients_can_send_to_depends_on_the_release(topic: str, releases: set[str]) -> None:
    """As ``TopicValidator`` of 4.9.7, 5.3.3, 5.4.0 and 5.5.0 says, and the broker of 4.3.0."""
    found = {release for release in RELEASES if send_refusal(topic, release) is None}

    assert releases == found
