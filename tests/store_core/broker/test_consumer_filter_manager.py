# SPDX-License-Identifier: Apache-2.0
"""Registered expressions, and their file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.broker.config_file import write_config
from store_core.broker.consumer_filter import BloomFilter, ConsumerFilterData, SubscriptionData, calculate_bit_map
from store_core.broker.consumer_filter_manager import ConsumerFilterManager
from store_core.broker.subscription_group import RegisteredSubscription
from store_core.errors import CorruptRecordError
from store_core.files.file_system import OsFileSystem
from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from store_core.store.broker_config import BrokerConfig
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


@pytest.mark.parametrize("version", [0, 1])
def test_what_is_not_newer_changes_nothing(version: int, filters: Filters) -> None:
    filters.add("a > 5", 1)
    before = filters.one()
    filters.clock.advance(1)

    assert not filters.add("a > 6", version)
    assert before == filters.one()


def test_a_newer_expression_is_born_when_it_comes(filters: Filters) -> None:
    filters.add("a > 5", 1)
    filters.clock.advance(1)

    assert filters.add("a > 6", 2)
    assert ("a > 6", filters.clock.wall_ms) == (filters.one().expression, filters.one().born_time)


def test_a_newer_version_of_the_same_expression_keeps_its_birth(filters: Filters) -> None:
    filters.add("a > 5", 1)
    born = filters.one().born_time
    filters.clock.advance(1)

    assert filters.add("a > 5", 2)
    assert (2, born) == (filters.one().client_version, filters.one().born_time)


def test_a_newer_one_that_does_not_compile_takes_the_old_one_with_it(filters: Filters) -> None:
    filters.add("a > 5", 1)

    assert not filters.add("a >", 2)
    assert filters.get("TopicA", "g1") is None


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
