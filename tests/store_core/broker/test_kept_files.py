# SPDX-License-Identifier: Apache-2.0
"""Files in which a broker keeps topics, groups and offsets: written as RocketMQ does, loaded whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core.broker.config_file import encode_members, write_config
from store_core.broker.consumer_offset import ConsumerOffsetManager, DelayOffsetTable
from store_core.broker.subscription_group import SubscriptionGroupManager, TopicConfigManager
from store_core.errors import CorruptRecordError
from store_core.files.file_system import OsFileSystem
from store_core.format.release import RELEASES
from store_core.snapshot.config import GROUP_MEMBERS, DataVersion, Permission, SubscriptionGroupConfig, TopicConfig
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.broker.config_file import VersionedConfigManager
    from store_core.format.release import Release

TOPICS, GROUPS, OFFSETS, DELAYS = TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager, DelayOffsetTable
KEPT: Final[list[tuple[type, str]]] = [
    (kind, store.name)
    for store in golden_stores()
    for kind in (TOPICS, GROUPS, OFFSETS, DELAYS)
    if store.scenario in ("delay", "live", "tx")
    and (kind is not DELAYS or (store.scenario != "tx" and store.version != "4.3.0"))  # which had delivered nothing yet
]
TABLES: Final[dict[type, str]] = {
    OFFSETS: '"offsetTable":{"orders@billing":{0:5}}',
    DELAYS: '"offsetTable":{1:5}',
    GROUPS: '"subscriptionGroupTable":{"billing":{}},"forbiddenTable":{"billing":{"orders":4}}',
    TOPICS: '"topicConfigTable":{"orders":{}}',
}
TOPIC: Final = TopicConfig(
    topic_name="%RETRY%g", perm=7, order=True, topic_filter_type="MULTI_TAG", attributes={"b": "2", "a": "1"}
)
GROUP: Final = SubscriptionGroupConfig(
    group_name="billing", consume_broadcast_enable=False, retry_max_times=-1, broker_id=1 << 40, attributes={"a": "1"}
)


def manager(kind: Any, root: Path, release: Release = "5.5", now: int | None = None) -> Any:  # noqa: ANN401 -- of each kind
    return kind(root, OsFileSystem(), FakeClock() if now is None else FakeClock(now), release)


def load(kept: VersionedConfigManager, text: str) -> None:
    kept.path.parent.mkdir(exist_ok=True)
    kept.path.write_text(text)
    kept.load()


@pytest.fixture
def topics(tmp_path: Path) -> TopicConfigManager:
    return TopicConfigManager(tmp_path, OsFileSystem(), FakeClock())


@pytest.fixture
def groups(tmp_path: Path) -> SubscriptionGroupManager:
    return SubscriptionGroupManager(tmp_path, OsFileSystem(), FakeClock())


@pytest.fixture
def delays(tmp_path: Path) -> DelayOffsetTable:
    return DelayOffsetTable(tmp_path, OsFileSystem(), FakeClock())


def known(groups: SubscriptionGroupManager, name: str) -> SubscriptionGroupConfig:
    config = groups.find_subscription_group_config(name)
    assert config is not None
    return config


# ---- all kinds of files


def put_again(kept: Any, again: Any) -> None:  # noqa: ANN401 -- of each kind
    """Put topics and groups one by one, in another order than that of the file."""
    if isinstance(kept, TopicConfigManager):
        for topic in sorted(kept.topics()):
            again.update_topic_config(kept.select_topic_config(topic))
    elif isinstance(kept, SubscriptionGroupManager):
        for group in sorted(kept.groups()):
            again.update_subscription_group_config(known(kept, group))
    else:
        again.load()
    again.data_version = kept.data_version


@pytest.mark.golden
@pytest.mark.parametrize(("kind", "name"), KEPT)
def test_golden_files_are_written_as_they_were_read(
    kind: type, name: str, golden: Callable[[str], UnpackedStore]
) -> None:
    store = golden(name)
    release: Release = next((name for name in RELEASES if name == store.golden.release != "4.3"), "4.9")
    kept, again = manager(kind, store.root, release), manager(kind, store.root, release)
    kept.load()
    put_again(kept, again)

    assert kept.path.read_text() == kept.text() == again.text()
    assert "SELF_TEST_TOPIC" in kept.text() or kind is not TOPICS
    assert "SELF_TEST_C_GROUP" in kept.text() or kind is not GROUPS
    assert '"offsetTable":{}' not in kept.text() or kind is OFFSETS


PERSISTED: Final[list[tuple[type, Callable[[Any], object], Callable[[Any], object]]]] = [
    (TOPICS, lambda kept: kept.update_topic_config(TOPIC), lambda kept: kept.select_topic_config("%RETRY%g") == TOPIC),
    (GROUPS, lambda kept: kept.update_subscription_group_config(GROUP), lambda kept: known(kept, "billing") == GROUP),
    (
        DELAYS,
        lambda kept: [kept.update_offset(level, level * 10) for level in (18, 3, 1)],
        lambda kept: kept.offset_table() == {18: 180, 3: 30, 1: 10},
    ),
]


@pytest.mark.parametrize(("kind", "change", "is_there"), PERSISTED)
def test_what_was_persisted_is_loaded(
    kind: type, change: Callable[[Any], object], is_there: Callable[[Any], object], tmp_path: Path
) -> None:
    kept, again = manager(kind, tmp_path), manager(kind, tmp_path, now=0)
    change(kept)
    kept.persist()
    again.load()

    assert is_there(kept)
    assert is_there(again)
    assert kept.data_version == again.data_version


@pytest.mark.parametrize("kind", TABLES)
def test_a_file_without_a_version_keeps_the_current_one(kind: type, tmp_path: Path) -> None:
    kept = manager(kind, tmp_path)
    before = kept.data_version
    load(kept, f"{{{TABLES[kind]}}}")

    assert before == kept.data_version


HOSTILE: Final = [
    *((kind, f'{{{TABLES[kind]},"dataVersion":{{"counter":"x"}}}}', "dataVersion.counter") for kind in TABLES),
    *(
        (TOPICS, f'{{"topicConfigTable":{{"first":{{}},"orders":{{{text}}}}}}}', f"topicConfigTable.orders.{where}")
        for text, where in [
            ('"perm":"x"', "perm"), ('"perm":4294967296', "perm"), ('"order":"maybe"', "order"),
            ('"topicName":[]', "topicName"), ('"attributes":{"a":[]}', "attributes.a"),
            ('"attributes":[]', "attributes"),
        ]
    ),
    (GROUPS, '{"subscriptionGroupTable":{"billing":{"consumeEnable":"yes"}}}', "billing.consumeEnable"),
    (GROUPS, '{"subscriptionGroupTable":{"billing":{"brokerId":1e30}}}', "billing.brokerId"),
    (GROUPS, '{"subscriptionGroupTable":{"billing":{"groupRetryPolicy":5}}}', "billing.groupRetryPolicy"),
    (GROUPS, '{"subscriptionGroupTable":{"billing":[]}}', "billing"),
    (GROUPS, '{"forbiddenTable":{"billing":{"orders":"x"}}}', "billing.orders"),
    (OFFSETS, '{"offsetTable":[]}', "offsetTable"),
    (OFFSETS, '{"offsetTable":{"t@g":5}}', "offsetTable.t@g"),
    *(
        (OFFSETS, f'{{"offsetTable":{{"t@g":{{0:{offset}}}}}}}', "offsetTable.t@g.0")
        for offset in ('"x"', "null", '""', "[1]", "9223372036854775808")
    ),
    (OFFSETS, '{"offsetTable":{"t@g":{"x":1}}}', "offsetTable.t@g"),
    (OFFSETS, '{"offsetTable":{"t@g":{2147483648:1}}}', "offsetTable.t@g"),
    (DELAYS, '{"offsetTable":{"x":1}}', "offsetTable"),
    (DELAYS, '{"offsetTable":{1:null,2:[]}}', "offsetTable"),
    (DELAYS, '{"offsetTable":3}', "offsetTable"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "where"), HOSTILE)
def test_a_hostile_file_is_refused_by_member_and_changes_nothing(
    kind: type, text: str, where: str, tmp_path: Path
) -> None:
    kept = manager(kind, tmp_path)
    before = kept.encode()
    with pytest.raises(CorruptRecordError) as raised:
        load(kept, text)

    assert where in raised.value.problem
    assert kept.path.name in raised.value.file
    assert before == kept.encode()


# ---- topics


def test_batch_topics_are_told_by_their_attribute(topics: TopicConfigManager) -> None:
    topics.update_topic_config(TopicConfig(topic_name="plain", attributes={"queue.type": "SimpleCQ"}))
    topics.update_topic_config(TopicConfig(topic_name="batch", attributes={"queue.type": "BatchCQ"}))

    assert {"batch"} == topics.batch_topics()


def test_changes_of_topics_move_the_data_version(topics: TopicConfigManager) -> None:
    topics.update_topic_config(TopicConfig(topic_name="orders"))
    topics.update_topic_config(TopicConfig(topic_name="orders", perm=Permission.READ))
    gone = topics.delete_topic_config("orders"), topics.delete_topic_config("orders")

    assert ((True, False), 3) == (gone, topics.data_version.counter)
    assert topics.select_topic_config("orders") is None


def test_members_that_nobody_knows_are_written_again(topics: TopicConfigManager) -> None:
    load(topics, '{"topicConfigTable":{"orders":{"liteTopic":{"ttl":5},"perm":4}}}')
    config = topics.select_topic_config("orders")
    assert config is not None
    topics.update_topic_config(replace(config, perm=6))

    assert '"liteTopic":{\n\t\t\t\t"ttl":5\n\t\t\t},\n\t\t\t"order":false,\n\t\t\t"perm":6' in write_config(
        topics.encode()
    )


# ---- groups


def test_a_group_has_rocketmq_s_defaults(groups: SubscriptionGroupManager) -> None:
    load(groups, '{"subscriptionGroupTable":{"billing":{}}}')
    text = write_config(encode_members(known(groups, "billing"), GROUP_MEMBERS))

    assert SubscriptionGroupConfig(group_name="billing") == known(groups, "billing")
    assert '"consumeTimeoutMinute":15' in text
    assert '"retryMaxTimes":16' in text
    assert '"whichBrokerWhenConsumeSlowly":1' in text


def test_changes_of_groups_move_the_data_version(groups: SubscriptionGroupManager) -> None:
    groups.update_subscription_group_config(SubscriptionGroupConfig(group_name="billing"))
    groups.disable_consume("billing")
    groups.disable_consume("unknown")
    enabled = known(groups, "billing").consume_enable
    gone = [groups.delete_subscription_group_config("billing") for _ in range(2)]

    assert (False, [True, False], 3) == (enabled, gone, groups.data_version.counter)


def test_a_group_may_be_forbidden_to_read_a_topic(groups: SubscriptionGroupManager) -> None:
    load(groups, '{"forbiddenTable":{"billing":{"orders":4,"refunds":2,"odd":-1}}}')

    assert groups.is_read_forbidden("billing", "orders")
    assert not groups.is_read_forbidden("billing", "refunds")
    assert (0, 0) == (groups.forbidden("billing", "odd"), groups.forbidden("audit", "orders"))
    assert '"forbiddenTable":{\n\t\t"billing":{\n\t\t\t' in write_config(groups.encode())


# ---- offsets of delayed messages by level


def test_the_data_version_moves_on_after_so_many_updates(tmp_path: Path) -> None:
    delays = DelayOffsetTable(tmp_path, OsFileSystem(), FakeClock(), version_step=2)
    for offset in range(5):
        delays.update_offset(1, offset)

    assert DataVersion(1_700_000_000_000, 2) == delays.data_version


def test_offsets_outside_their_queues_are_brought_inside(delays: DelayOffsetTable) -> None:
    for level, offset in ((1, 5), (2, 50), (3, 15), (4, 99)):
        delays.update_offset(level, offset)
    corrected = delays.correct(lambda level: None if level == 4 else (10, 20))

    assert (1, 2) == corrected
    assert {1: 10, 2: 20, 3: 15, 4: 99} == delays.offset_table()
