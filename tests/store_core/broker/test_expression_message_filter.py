# SPDX-License-Identifier: Apache-2.0
"""A broker's filters: unknown data matches, known data decides."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from store_core import FilterError
from store_core.broker.consumer_filter import (
    BloomFilter,
    ConsumerFilterData,
    ExpressionForRetryMessageFilter,
    ExpressionMessageFilter,
    SubscriptionData,
    calculate_bit_map,
)
from store_core.format.filter.message_selector import MessageFilter
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


def test_the_map_has_the_bits_of_the_consumers_whose_expression_is_true() -> None:
    consumers = [consumer(), consumer("a = 6", "g2"), consumer("b > 1", "g3"), consumer("TRUE", "g4")]
    bits = {position for data in (consumers[0], consumers[3]) if data.bloom for position in data.bloom.positions}

    bit_map = calculate_bit_map(consumers, {"a": "5", "b": "x"})

    assert 14 == len(bit_map)
    assert sum(1 << position for position in bits) == int.from_bytes(bit_map, "little")


def test_without_consumers_there_is_no_map() -> None:
    assert b"" == calculate_bit_map([], {"a": "5"})


def test_a_consumer_without_expression_or_bits_sets_none() -> None:
    consumers = [replace(consumer(), compiled=None), replace(consumer(), bloom=None)]

    assert bytes(14) == calculate_bit_map(consumers, {"a": "5"})


def test_bits_of_another_filter_leave_no_map() -> None:
    other = replace(consumer(), bloom=BloomFilter(10, 128).generate("g1", "TopicA"))

    assert b"" == calculate_bit_map([consumer(), other], {"a": "5"})
    assert MISS == calculate_bit_map([consumer(), other], {"a": "6"})


def test_an_expression_that_does_not_compile_is_not_registered() -> None:
    with pytest.raises(FilterError):
        consumer("a =")


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


def test_tags_are_compared_by_their_code() -> None:
    assert asked(None, None, SubscriptionData.build("t", "TagA || TagB"))
    assert asked(None, None, SubscriptionData.build("t", "*"))
    assert not asked(None, None, SubscriptionData.build("t", "TagA"))
    assert ExpressionMessageFilter(SubscriptionData.build("t", "TagA")).is_matched_by_consume_queue(None)


@pytest.mark.parametrize(
    "subscription", [None, replace(SubscriptionData.build("t", "TagA"), is_class_filter_mode=True)]
)
def test_without_a_subscription_or_with_a_class_filter_everything_matches(
    subscription: SubscriptionData | None,
) -> None:
    message_filter = ExpressionMessageFilter(subscription, consumer("FALSE"))

    assert message_filter.is_matched_by_consume_queue(CODE, Ext(bit_map=MISS))
    assert message_filter.is_matched_by_commit_log(record())


def test_an_empty_expression_is_no_subscription() -> None:
    with pytest.raises(FilterError, match="expected an expression of type SQL92, found nothing"):
        SubscriptionData.build("t", "", "SQL92")


# --- the record's question ---


@pytest.mark.parametrize(("value", "matches"), [("5", True), ("6", False), ("x", False)])
def test_only_true_matches_a_record(value: str, *, matches: bool) -> None:
    assert matches == ExpressionMessageFilter(SQL, consumer()).is_matched_by_commit_log(record(a=value))
    assert not ExpressionMessageFilter(SQL, consumer()).is_matched_by_commit_log(record())


@pytest.mark.parametrize("data", [None, replace(consumer("FALSE"), compiled=None)])
def test_without_a_compiled_expression_every_record_matches(data: ConsumerFilterData | None) -> None:
    assert ExpressionMessageFilter(SQL, data).is_matched_by_commit_log(record())
    assert ExpressionMessageFilter(SubscriptionData.build("t", "TagA"), consumer("FALSE")).is_matched_by_commit_log(
        record()
    )


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


def test_any_other_topic_is_judged_by_its_own_registration() -> None:
    assert not retry_filter(SQL).is_matched_by_commit_log(record(a="5", RETRY_TOPIC="TopicA"))


@pytest.mark.parametrize(("topic", "release", "matches"), [
    ("%RETRY%g1+TopicA", "5.3", False),
    ("%RETRY%g1+TopicA", "4.9", True),
    ("%RETRY%g1+", "5.3", True),
    ("%RETRY%g1+a+b", "5.3", True),
])  # fmt: skip
def test_the_group_is_cut_out_of_the_retry_topic(topic: str, release: str, *, matches: bool) -> None:
    judge = retry_filter(replace(RETRY, topic=topic), release)

    assert matches == judge.is_matched_by_commit_log(record(a="5", RETRY_TOPIC="TopicB"))


@pytest.mark.parametrize(("release", "matches"), [("4.3", False), ("4.9", False), ("5.3", True)])
def test_retries_subscribed_by_tag_are_judged_up_to_4_9(release: str, *, matches: bool) -> None:
    judge = retry_filter(SubscriptionData.build("%RETRY%g1", "*"), release)

    assert matches == judge.is_matched_by_commit_log(record(a="5", RETRY_TOPIC="TopicB"))


def test_both_are_filters() -> None:
    assert isinstance(ExpressionMessageFilter(SQL), MessageFilter)
    assert isinstance(retry_filter(SQL), MessageFilter)


def test_a_consumer_is_dead_once_it_left() -> None:
    assert not consumer().is_dead
    assert replace(consumer(), dead_time=BORN).is_dead
