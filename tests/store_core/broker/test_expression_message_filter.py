# SPDX-License-Identifier: Apache-2.0
"""A broker's filters: unknown data matches, known data decides."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from store_core.broker.consumer_filter import (
    BloomFilter,
    ConsumerFilterData,
    ExpressionForRetryMessageFilter,
    ExpressionMessageFilter,
    SubscriptionData,
    calculate_bit_map,
)
from store_core.format.java import hash_code
from tests.builders import Record

BORN = 1000
LATER = BORN + 1
CODE = hash_code("TagB")


@dataclass(frozen=True)
class Ext:
    msg_store_time: int = LATER
    bit_map: bytes = b""


def record(**properties: str) -> memoryview:
    return memoryview(Record(properties=properties).encode())


def consumer(expression: str = "a = 5", group: str = "g1", topic: str = "TopicA") -> ConsumerFilterData:
    return ConsumerFilterData.build(group, topic, expression, BORN)


SQL = SubscriptionData.build("TopicA", "a = 5", "SQL92")
HIT = calculate_bit_map([consumer()], {"a": "5"})
MISS = calculate_bit_map([consumer()], {"a": "6"})


# --- the map of a message ---


def test_without_consumers_there_is_no_map() -> None:
    assert b"" == calculate_bit_map([], {"a": "5"})


def test_bits_of_another_filter_leave_no_map() -> None:
    other = replace(consumer(), bloom=BloomFilter(10, 128).generate("g1", "TopicA"))

    assert b"" == calculate_bit_map([consumer(), other], {"a": "5"})
    assert MISS == calculate_bit_map([consumer(), other], {"a": "6"})


# --- the queue's question ---


def asked(data: ConsumerFilterData | None, ext: Ext | None, subscription: SubscriptionData | None = SQL) -> bool:
    return ExpressionMessageFilter(subscription, data).is_matched_by_consume_queue(CODE, ext)


def test_the_map_decides_if_it_is_there_and_younger_than_the_consumer() -> None:
    assert asked(consumer(), Ext(bit_map=HIT))
    assert not asked(consumer(), Ext(bit_map=MISS))


@pytest.mark.parametrize(
    ("data", "ext"),
    [
        (None, Ext(bit_map=MISS)),
        (replace(consumer(), compiled=None), Ext(bit_map=MISS)),
        (replace(consumer(), bloom=None), Ext(bit_map=MISS)),
        (replace(consumer(), bloom=BloomFilter(10, 128).generate("g1", "TopicA")), Ext(bit_map=MISS)),
        (consumer(), None),
        (consumer(), Ext()),
        (consumer(), Ext(bit_map=MISS + b"\0")),
        (consumer(), Ext(bit_map=MISS[:-1])),
        (consumer(), Ext(BORN, MISS)),
    ],
    ids=["no data", "not compiled", "no bits", "other bits", "no ext", "no map", "longer", "shorter", "older"],
)
def test_what_the_map_does_not_tell_matches(data: ConsumerFilterData | None, ext: Ext | None) -> None:
    assert asked(data, ext)


# --- the record's question ---


# --- retries ---


def retry_filter(subscription: SubscriptionData, release: str = "5.3") -> ExpressionForRetryMessageFilter:
    registered = {("TopicA", "g1"): consumer(), ("TopicB", "g1"): consumer("a = 6", topic="TopicB")}
    return ExpressionForRetryMessageFilter(
        subscription, lambda topic, group: registered.get((topic, group)), consumer("FALSE"), release=release
    )


RETRY = SubscriptionData.build("%RETRY%g1", "a = 5", "SQL92")


def test_a_retry_is_judged_by_what_is_registered_for_its_own_topic() -> None:
    judge = retry_filter(RETRY)

    assert judge.is_matched_by_commit_log(record(a="5", RETRY_TOPIC="TopicA"))
    assert not judge.is_matched_by_commit_log(record(a="5", RETRY_TOPIC="TopicB"))
    assert judge.is_matched_by_commit_log(record(a="5", RETRY_TOPIC="TopicC"))
    assert judge.is_matched_by_commit_log(record(a="7"))


@pytest.mark.parametrize(("release", "matches"), [("4.3", False), ("4.9", False), ("5.3", True)])
def test_retries_subscribed_by_tag_are_judged_up_to_4_9(release: str, *, matches: bool) -> None:
    judge = retry_filter(SubscriptionData.build("%RETRY%g1", "*"), release)

    assert matches == judge.is_matched_by_commit_log(record(a="5", RETRY_TOPIC="TopicB"))
