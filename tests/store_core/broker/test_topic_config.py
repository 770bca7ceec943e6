# SPDX-License-Identifier: Apache-2.0
"""Topics, and their file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from store_core.broker.config_file import write_config
from store_core.broker.subscription_group import TopicConfigManager
from store_core.errors import CorruptRecordError
from store_core.files.file_system import OsFileSystem
from store_core.format.release import RELEASES
from store_core.snapshot.config import Permission, TopicConfig
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.queue.queue_path import Release

KEPT = [store.name for store in golden_stores() if store.scenario in ("delay", "live", "tx")]


@pytest.fixture
def topics(tmp_path: Path) -> TopicConfigManager:
    return TopicConfigManager(tmp_path, OsFileSystem(), FakeClock())


def load(topics: TopicConfigManager, text: str) -> None:
    topics.path.parent.mkdir(exist_ok=True)
    topics.path.write_text(text)
    topics.load()


@pytest.mark.golden
@pytest.mark.parametrize("name", KEPT)
def test_golden_files_are_written_as_they_were_read(name: str, golden: Callable[[str], UnpackedStore]) -> None:
    store = golden(name)
    release: Release = next((name for name in RELEASES if name == store.golden.release != "4.3"), "4.9")
    topics = TopicConfigManager(store.root, OsFileSystem(), FakeClock(), release)
    topics.load()
    again = TopicConfigManager(store.root, OsFileSystem(), FakeClock(), release)
    again.data_version = topics.data_version
    for topic in sorted(topics.topics()):
        config = topics.select_topic_config(topic)
        assert config is not None
        again.update_topic_config(config)
    again.data_version = topics.data_version

    assert topics.path.read_text() == write_config(topics.encode()) == write_config(again.encode())
    assert "SELF_TEST_TOPIC" in topics.topics()


def test_a_topic_has_rocketmq_s_defaults(topics: TopicConfigManager) -> None:
    load(topics, '{"topicConfigTable":{"orders":{}}}')

    assert TopicConfig(topic_name="orders") == topics.select_topic_config("orders")
    assert TopicConfig(
        topic_name="orders", read_queue_nums=16, write_queue_nums=16, perm=6, topic_filter_type="SINGLE_TAG"
    ) == topics.select_topic_config("orders")


@pytest.mark.parametrize(("perm", "readable", "writeable"), [(6, True, True), (4, True, False), (2, False, True)])
def test_permissions_are_bits(perm: int, readable: bool, writeable: bool) -> None:
    topic = TopicConfig(topic_name="orders", perm=perm)

    assert (readable, writeable) == (topic.is_readable, topic.is_writeable)


def test_batch_topics_are_told_by_their_attribute(topics: TopicConfigManager) -> None:
    topics.update_topic_config(TopicConfig(topic_name="plain", attributes={"queue.type": "SimpleCQ"}))
    topics.update_topic_config(TopicConfig(topic_name="batch", attributes={"queue.type": "BatchCQ"}))

    assert {"batch"} == topics.batch_topics()


def test_updates_and_deletions_move_the_data_version(topics: TopicConfigManager) -> None:
    topics.update_topic_config(TopicConfig(topic_name="orders"))
    topics.update_topic_config(TopicConfig(topic_name="orders", perm=Permission.READ))
    gone = topics.delete_topic_config("orders"), topics.delete_topic_config("orders")

    assert ((True, False), 3) == (gone, topics.data_version.counter)
    assert topics.select_topic_config("orders") is None


def test_what_was_persisted_is_loaded(topics: TopicConfigManager, tmp_path: Path) -> None:
    config = TopicConfig(
        topic_name="%RETRY%g", perm=7, order=True, topic_filter_type="MULTI_TAG", attributes={"b": "2", "a": "1"}
    )
    topics.update_topic_config(config)
    topics.persist()
    again = TopicConfigManager(tmp_path, OsFileSystem(), FakeClock(0))
    again.load()

    assert config == again.select_topic_config("%RETRY%g")
    assert topics.data_version == again.data_version


def test_release_4_has_no_attributes(tmp_path: Path) -> None:
    topics = TopicConfigManager(tmp_path, OsFileSystem(), FakeClock(), "4.9")
    topics.update_topic_config(TopicConfig(topic_name="orders", attributes={"a": "1"}))
    text = write_config(topics.encode())

    assert "attributes" not in text
    assert "stateVersion" not in text


def test_members_that_nobody_knows_are_written_again(topics: TopicConfigManager) -> None:
    load(topics, '{"topicConfigTable":{"orders":{"liteTopic":{"ttl":5},"perm":4}}}')
    config = topics.select_topic_config("orders")
    assert config is not None
    topics.update_topic_config(replace(config, perm=6))

    assert '"liteTopic":{\n\t\t\t\t"ttl":5\n\t\t\t},\n\t\t\t"order":false,\n\t\t\t"perm":6' in write_config(
        topics.encode()
    )


@pytest.mark.parametrize(
    ("member", "where"),
    [
        ('"perm":"x"', "topicConfigTable.orders.perm"),
        ('"perm":4294967296', "topicConfigTable.orders.perm"),
        ('"order":"maybe"', "topicConfigTable.orders.order"),
        ('"topicName":[]', "topicConfigTable.orders.topicName"),
        ('"attributes":{"a":[]}', "topicConfigTable.orders.attributes.a"),
        ('"attributes":[]', "topicConfigTable.orders.attributes"),
    ],
)
def test_a_hostile_file_is_refused_by_member_and_changes_nothing(
    topics: TopicConfigManager, member: str, where: str
) -> None:
    with pytest.raises(CorruptRecordError, match="orders") as raised:
        load(topics, f'{{"topicConfigTable":{{"first":{{}},"orders":{{{member}}}}}}}')

    assert raised.value.problem.endswith(where)
    assert () == topics.topics()
