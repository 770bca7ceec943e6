# SPDX-License-Identifier: Apache-2.0
"""The event that a consumer was sent to another offset; RocketMQ's own events are in test_pull_answers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.broker.pull_checks import PullMessageRequest
from store_core.broker.pull_message_processor import offset_moved_event

NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)


def event(group: str = "g", topic: str = "orders", broker: str = "b", request: int = 9, new: int = 5) -> bytes:
    asked = PullMessageRequest(consumer_group=group, topic=topic, queue_id=1, queue_offset=request)
    return offset_moved_event(asked, new, broker)


def test_members_come_in_the_order_of_their_names() -> None:
    expected = (
        b'{"consumerGroup":"g","messageQueue":{"brokerName":"b","queueId":1,"topic":"orders"},'
        b'"offsetNew":5,"offsetRequest":9}'
    )

    assert expected == event()


@given(NAMES, NAMES, NAMES, OFFSETS, OFFSETS)
def test_any_event_can_be_read_as_json(group: str, topic: str, broker: str, request: int, new: int) -> None:
    encoded = event(group, topic, broker, request, new)

    assert {
        "consumerGroup": group,
        "messageQueue": {"brokerName": broker, "queueId": 1, "topic": topic},
        "offsetNew": new,
        "offsetRequest": request,
    } == json.loads(encoded)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_a_name_can_not_leave_its_quotes(name: str) -> None:
    assert name == json.loads(event(topic=name))["messageQueue"]["topic"]
