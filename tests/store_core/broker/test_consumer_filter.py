# SPDX-License-Identifier: Apache-2.0
"""Filters of consumers: the bits of a bloom filter, registered expressions and their file, and what they match."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import FilterError
from store_core.broker.config_file import write_config
from store_core.broker.consumer_filter import (
    BloomFilter,
    BloomFilterData,
    ConsumerFilterData,
    ExpressionForRetryMessageFilter,
    ExpressionMessageFilter,
    SubscriptionData,
    calculate_bit_map,
    murmur3_128,
)
from store_core.broker.consumer_filter_manager import ConsumerFilterManager
from store_core.broker.subscription_group import RegisteredSubscription
from store_core.errors import CorruptRecordError
from store_core.files.file_system import OsFileSystem
from store_core.format.filter.message_selector import MessageFilter
from store_core.format.java import hash_code
from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from store_core.store.message_store_config import BrokerConfig
from tests.builders import Record
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


names = st.text(max_size=20)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0),
        (b"hello", 0xCBD8A7B341BD9B02),
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_murmur_gives_published_values(data: bytes, value: int) -> None:
    assert value == murmur3_128(data)


@pytest.mark.parametrize(
    ("rate", "number", "m", "k"), [(10, 128, 616, 4), (1, 1, 16, 7), (50, 8, 16, 1), (99, 1, 8, 1)]
)
def test_sizes_follow_from_error_rate_and_number(rate: int, number: int, m: int, k: int) -> None:
    assert (m, k) == (BloomFilter(rate, number).m, BloomFilter(rate, number).k)


@pytest.mark.parametrize(("rate", "number"), [(0, 32), (100, 32), (20, 0)])
def test_sizes_that_make_no_filter_are_refused(rate: int, number: int) -> None:
    with pytest.raises(ValueError, match="expected an error rate of 1 to 99 per cent"):
        BloomFilter(rate, number)


def test_the_bits_of_a_consumer_are_those_of_rocketmq() -> None:
    assert BloomFilterData((19, 13, 46), 112) == BloomFilter().generate("g1", "TopicA")


@given(st.lists(st.tuples(names, names), max_size=6), st.tuples(names, names))
def test_a_map_is_hit_by_all_that_were_put_in(consumers: list[tuple[str, str]], other: tuple[str, str]) -> None:
    bloom = BloomFilter()
    bit_map = bytearray(bloom.m // 8)
    for group, topic in consumers:
        bloom.hash_to(bloom.generate(group, topic), bit_map)
    bits = {position for consumer in consumers for position in bloom.generate(*consumer).positions}
    missing = bloom.generate(*other)

    assert all(bloom.is_hit(bloom.generate(*consumer), bytes(bit_map)) for consumer in consumers)
    assert (set(missing.positions) <= bits) == bloom.is_hit(missing, bytes(bit_map))
    assert sum(1 << position for position in bits) == int.from_bytes(bit_map, "little")


def test_bits_of_another_filter_are_not_valid() -> None:
    bloom = BloomFilter()

    assert bloom.is_valid(bloom.generate("g", "t"))
    assert not bloom.is_valid(None)
    assert not bloom.is_valid(BloomFilter(10, 128).generate("g", "t"))
    assert not bloom.is_valid(BloomFilterData((1, 2), 112))


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


def test_a_consumer_without_expression_or_bits_sets_none() -> None:
    consumers = [replace(consumer(), compiled=None), replace(consumer(), bloom=None)]

    assert bytes(14) == calculate_bit_map(consumers, {"a": "5"})


def test_bits_of_another_filter_leave_no_map() -> None:
    other = replace(consumer(), bloom=BloomFilter(10, 128).generate("g1", "TopicA"))

    assert b"" == calculate_bit_map([consumer(), other], {"a": "5"})
    assert MISS == calculate_bit_map([consumer(), other], {"a": "6"})


# --- the queue's question ---


def asked(data: ConsumerFilterData | None, ext: Ext | None, subscription: SubscriptionData | None = SQL) -> bool:
    return ExpressionMessageFilter(subscription, data).is_matched_by_consume_queue(CODE, ext)


@pytest.mark.parametrize(
    ("matches", "data", "ext"),
    [
        (True, consumer(), Ext(bit_map=HIT)),
        (False, consumer(), Ext(bit_map=MISS)),
        # what the map does not tell
        (True, None, Ext(bit_map=MISS)),
        (True, replace(consumer(), compiled=None), Ext(bit_map=MISS)),
        (True, replace(consumer(), bloom=None), Ext(bit_map=MISS)),
        (True, replace(consumer(), bloom=BloomFilter(10, 128).generate("g1", "TopicA")), Ext(bit_map=MISS)),
        (True, consumer(), None),
        (True, consumer(), Ext()),
        (True, consumer(), Ext(bit_map=MISS + b"\0")),
        (True, consumer(), Ext(bit_map=MISS[:-1])),
        (True, consumer(), Ext(BORN, MISS)),
    ],
)
def test_the_map_decides_if_it_is_there_and_younger_than_the_consumer(
    data: ConsumerFilterData | None, ext: Ext | None, *, matches: bool
) -> None:
    assert matches == asked(data, ext)


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


BY_TAG = SubscriptionData.build("%RETRY%g1", "*")


@pytest.mark.parametrize(
    ("matches", "subscription", "release", "properties"),
    [
        (True, RETRY, "5.3", {"a": "5", "RETRY_TOPIC": "TopicA"}),
        (False, RETRY, "5.3", {"a": "5", "RETRY_TOPIC": "TopicB"}),
        (True, RETRY, "5.3", {"a": "5", "RETRY_TOPIC": "TopicC"}),
        (True, RETRY, "5.3", {"a": "7"}),
        # any other topic, by its own registration
        (False, SQL, "5.3", {"a": "5", "RETRY_TOPIC": "TopicA"}),
        # the group is cut out of the topic
        (False, replace(RETRY, topic="%RETRY%g1+TopicA"), "5.3", {"a": "5", "RETRY_TOPIC": "TopicB"}),
        (True, replace(RETRY, topic="%RETRY%g1+TopicA"), "4.9", {"a": "5", "RETRY_TOPIC": "TopicB"}),
        (True, replace(RETRY, topic="%RETRY%g1+"), "5.3", {"a": "5", "RETRY_TOPIC": "TopicB"}),
        (True, replace(RETRY, topic="%RETRY%g1+a+b"), "5.3", {"a": "5", "RETRY_TOPIC": "TopicB"}),
        # subscribed by tag, judged up to 4.9
        (False, BY_TAG, "4.3", {"a": "5", "RETRY_TOPIC": "TopicB"}),
        (False, BY_TAG, "4.9", {"a": "5", "RETRY_TOPIC": "TopicB"}),
        (True, BY_TAG, "5.3", {"a": "5", "RETRY_TOPIC": "TopicB"}),
    ],
)
def test_a_retry_is_judged_by_what_is_registered_for_its_own_topic(
    subscription: SubscriptionData, release: str, properties: dict[str, str], *, matches: bool
) -> None:
    assert matches == retry_filter(subscription, release).is_matched_by_commit_log(record(**properties))


def test_both_are_filters() -> None:
    assert isinstance(ExpressionMessageFilter(SQL), MessageFilter)
    assert isinstance(retry_filter(SQL), MessageFilter)


KEPT = [store.name for store in golden_stores() if store.name in ("5.3.3/live", "5.3.3/tx")]
DAY = 24 * 3600


class Filters(ConsumerFilterManager):
    """A table with its own clock."""

    def __init__(self, root: Path, broker: BrokerConfig | None = None) -> None:
        self.clock = FakeClock()
        super().__init__(root, OsFileSystem(), self.clock, "5.3", broker)

    def add(self, expression: str, version: int = 1, group: str = "g1") -> bool:
        return self.register_expression("TopicA", group, expression, version)

    def one(self, group: str = "g1") -> ConsumerFilterData:
        found = self.get("TopicA", group)
        assert found is not None
        return found


@pytest.fixture
def filters(tmp_path: Path) -> Filters:
    return Filters(tmp_path)


def subscribed(topic: str, text: str = "a > 5", kind: str = "SQL92", version: int = 1) -> RegisteredSubscription:
    return RegisteredSubscription(SubscriptionData.build(topic, text, kind), version)


# ---- registering


def test_an_expression_is_registered_with_its_bits_and_time(filters: Filters) -> None:
    assert filters.add("a > 5", 7)

    found = filters.one()
    assert ("g1", "TopicA", "a > 5", 7, 0) == (
        found.consumer_group, found.topic, found.expression, found.client_version, found.dead_time
    )  # fmt: skip
    assert filters.clock.wall_ms == found.born_time
    assert BloomFilter().generate("g1", "TopicA") == found.bloom


@pytest.mark.parametrize(
    ("expression", "kind"), [("a", "TAG"), ("a", ""), ("", "SQL92"), ("a >", "SQL92"), ("a > 5", "SQL99")]
)
def test_what_is_no_expression_is_not_registered(expression: str, kind: str, filters: Filters) -> None:
    assert not filters.register_expression("TopicA", "g1", expression, 1, expression_type=kind)

    assert filters.get("TopicA", "g1") is None
    assert {"filterDataByTopic": {}} == filters.encode()


@pytest.mark.parametrize(
    ("expression", "version", "is_taken", "left"),
    [
        ("a > 6", 0, False, ("a > 5", 1, 0)),
        ("a > 6", 1, False, ("a > 5", 1, 0)),
        ("a > 6", 2, True, ("a > 6", 2, 1000)),
        ("a > 5", 2, True, ("a > 5", 2, 0)),
        ("a >", 2, False, None),
    ],
)
def test_a_newer_version_counts_and_is_born_when_its_expression_comes(
    expression: str, version: int, is_taken: bool, left: tuple[str, int, int] | None, filters: Filters
) -> None:
    filters.add("a > 5", 1)
    born = filters.one().born_time
    filters.clock.advance(1)

    assert is_taken == filters.add(expression, version)
    found = filters.get("TopicA", "g1")
    assert left == (found and (found.expression, found.client_version, found.born_time - born))


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_that_left_is_back_with_the_same_expression(version: int, filters: Filters) -> None:
    filters.add("a > 5", 1)
    filters.unregister("g1")
    assert filters.one().is_dead

    assert filters.add("a > 5", version)
    assert not filters.one().is_dead


def test_a_group_leaves_the_topics_it_no_longer_names(filters: Filters) -> None:
    filters.register("g1", [subscribed("TopicA"), subscribed("TopicB")])
    filters.register("g1", [subscribed("TopicB", version=2), subscribed("TopicC", "TagA", "TAG")])

    assert {("TopicA", True), ("TopicB", False)} == {(data.topic, data.is_dead) for data in filters.of_group("g1")}


# ---- expiry


def test_a_group_is_forgotten_a_day_after_it_left(filters: Filters) -> None:
    filters.add("a > 5", 1, "g1")
    filters.add("a > 5", 1, "g2")
    filters.unregister("g1")
    filters.clock.advance(DAY - 0.001)
    filters.clean()
    assert filters.one("g1").is_dead

    filters.clock.advance(0.001)
    filters.clean()

    assert ["g2"] == [data.consumer_group for data in filters.of_topic("TopicA")]


def test_how_long_groups_are_kept_is_a_setting(tmp_path: Path) -> None:
    filters = Filters(tmp_path, BrokerConfig(filter_data_clean_time_span=1000))
    filters.add("a > 5")
    filters.unregister("g1")
    filters.clock.advance(1)

    assert {"filterDataByTopic": {}} == filters.encode()


# ---- maps


def test_a_message_gets_the_bits_of_all_groups_of_its_topic(filters: Filters) -> None:
    for number in range(5):
        filters.add(f"a > {number}", 1, f"g{number}")
    filters.unregister("g1")
    filters.register_expression("TopicB", "g9", "TRUE", 1)
    request = DispatchRequest("TopicA", 0, 0, 100, 0, 0, 0, properties={"a": "3"})

    expected = calculate_bit_map([filters.one(f"g{number}") for number in range(3)], {"a": "3"})
    assert expected == filters.bit_map(request) != bytes(14)
    assert b"" == filters.bit_map(DispatchRequest("TopicC", 0, 0, 100, 0, 0, 0))


# ---- the file


@pytest.mark.golden
@pytest.mark.parametrize("name", KEPT)
def test_golden_files_are_written_as_they_were_read(name: str, golden: Callable[[str], UnpackedStore]) -> None:
    filters = Filters(golden(name).root)
    filters.load()

    assert filters.path.read_text() == write_config(filters.encode())


def test_what_is_persisted_is_loaded_again_as_left_half_a_minute_ago(filters: Filters, tmp_path: Path) -> None:
    filters.add("a > 5 AND b = 'x'", 3)
    filters.clock.advance(60)
    filters.add("c IS NULL", 4, "g2")
    filters.persist()

    again = Filters(tmp_path)
    again.clock.advance(70)
    again.load()

    assert filters.one("g1").born_time + 40_000 == again.one("g1").dead_time
    assert filters.one("g2").born_time == again.one("g2").dead_time
    for group in ("g1", "g2"):
        assert again.add(filters.one(group).expression, filters.one(group).client_version, group)
        assert filters.one(group) == again.one(group)


def test_bits_of_another_filter_make_the_whole_file_worthless(filters: Filters, tmp_path: Path) -> None:
    filters.add("a > 5")
    filters.persist()

    again = Filters(tmp_path, BrokerConfig(expect_consumer_num_use_filter=64))
    again.load()

    assert () == again.of_topic("TopicA")
    assert "expectConsumerNumUseFilter" in again.notes[0]


@pytest.mark.parametrize(
    "member",
    ['"bornTime":"x"', '"bloomFilterData":{"bitPos":["x"]}', '"bloomFilterData":{"bitPos":7}', '"expression":[]'],
)
def test_a_file_of_other_kinds_is_refused(member: str, filters: Filters) -> None:
    filters.path.parent.mkdir()
    filters.path.write_text('{"filterDataByTopic":{"TopicA":{"groupFilterData":{"g1":{' + member + "}}}}}")

    with pytest.raises(CorruptRecordError, match="TopicA"):
        filters.load()


def test_bits_beyond_the_map_are_another_filter_s(filters: Filters, tmp_path: Path) -> None:
    """The file is not trusted: a bit is set by its position later."""
    filters.add("a > 5")
    filters.persist()
    text = filters.path.read_text()
    filters.path.write_text(text.replace("[19,13,46]", "[19,13,1000000000]"))

    again = Filters(tmp_path)
    again.load()

    assert () == again.of_topic("TopicA")
