# SPDX-License-Identifier: Apache-2.0
"""Consumer groups, and their file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.broker.config_file import encode_members, write_config
from store_core.broker.subscription_group import SubscriptionGroupManager
from store_core.errors import CorruptRecordError
from store_core.files.file_system import OsFileSystem
from store_core.format.release import RELEASES
from store_core.snapshot.config import GROUP_MEMBERS, SubscriptionGroupConfig
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.queue.queue_path import Release

KEPT = [store.name for store in golden_stores() if store.scenario in ("delay", "live", "tx")]


@pytest.fixture
def groups(tmp_path: Path) -> SubscriptionGroupManager:
    return SubscriptionGroupManager(tmp_path, OsFileSystem(), FakeClock())


def load(groups: SubscriptionGroupManager, text: str) -> None:
    groups.path.parent.mkdir(exist_ok=True)
    groups.path.write_text(text)
    groups.load()


def known(groups: SubscriptionGroupManager, name: str) -> SubscriptionGroupConfig:
    config = groups.find_subscription_group_config(name)
    assert config is not None
    return config


@pytest.mark.golden
@pytest.mark.parametrize("name", KEPT)
def test_golden_files_are_written_as_they_were_read(name: str, golden: Callable[[str], UnpackedStore]) -> None:
    store = golden(name)
    release: Release = next((name for name in RELEASES if name == store.golden.release != "4.3"), "4.9")
    groups = SubscriptionGroupManager(store.root, OsFileSystem(), FakeClock(), release)
    groups.load()
    again = SubscriptionGroupManager(store.root, OsFileSystem(), FakeClock(), release)
    for group in sorted(groups.groups()):
        again.update_subscription_group_config(known(groups, group))
    again.data_version = groups.data_version

    assert groups.path.read_text() == write_config(groups.encode()) == write_config(again.encode())
    assert "SELF_TEST_C_GROUP" in groups.groups()


def test_a_group_has_rocketmq_s_defaults(groups: SubscriptionGroupManager) -> None:
    load(groups, '{"subscriptionGroupTable":{"billing":{}}}')
    text = write_config(encode_members(known(groups, "billing"), GROUP_MEMBERS))

    assert SubscriptionGroupConfig(group_name="billing") == known(groups, "billing")
    assert '"consumeTimeoutMinute":15' in text
    assert '"retryMaxTimes":16' in text
    assert '"whichBrokerWhenConsumeSlowly":1' in text


def test_updates_and_deletions_move_the_data_version(groups: SubscriptionGroupManager) -> None:
    groups.update_subscription_group_config(SubscriptionGroupConfig(group_name="billing"))
    groups.disable_consume("billing")
    groups.disable_consume("unknown")
    enabled = known(groups, "billing").consume_enable
    gone = [groups.delete_subscription_group_config("billing") for _ in range(2)]

    assert (False, [True, False], 3) == (enabled, gone, groups.data_version.counter)


def test_what_was_persisted_is_loaded(groups: SubscriptionGroupManager, tmp_path: Path) -> None:
    config = SubscriptionGroupConfig(
        group_name="billing",
        consume_broadcast_enable=False,
        retry_max_times=-1,
        broker_id=1 << 40,
        attributes={"a": "1"},
    )
    groups.update_subscription_group_config(config)
    groups.persist()
    again = SubscriptionGroupManager(tmp_path, OsFileSystem(), FakeClock(0))
    again.load()

    assert config == known(again, "billing")
    assert groups.data_version == again.data_version


def test_release_4_writes_what_it_knows(tmp_path: Path) -> None:
    groups = SubscriptionGroupManager(tmp_path, OsFileSystem(), FakeClock(), "4.9")
    groups.update_subscription_group_config(SubscriptionGroupConfig(group_name="billing"))
    text = write_config(groups.encode())

    assert not {"attributes", "forbiddenTable", "groupRetryPolicy", "stateVersion"} & set(text.split('"'))


def test_a_group_may_be_forbidden_to_read_a_topic(groups: SubscriptionGroupManager) -> None:
    load(groups, '{"forbiddenTable":{"billing":{"orders":4,"refunds":2,"odd":-1}}}')

    assert groups.is_read_forbidden("billing", "orders")
    assert not groups.is_read_forbidden("billing", "refunds")
    assert (0, 0) == (groups.forbidden("billing", "odd"), groups.forbidden("audit", "orders"))
    assert '"forbiddenTable":{\n\t\t"billing":{\n\t\t\t' in write_config(groups.encode())


def test_members_that_are_passed_on_are_written_again(groups: SubscriptionGroupManager) -> None:
    load(groups, '{"subscriptionGroupTable":{"billing":{"groupRetryPolicy":{"type":"EXPONENTIAL"},"zone":[1]}}}')
    text = write_config(groups.encode())

    assert '"type":"EXPONENTIAL"' in text
    assert '"zone":[' in text


@pytest.mark.parametrize(
    "text",
    [
        '{"subscriptionGroupTable":{"billing":{"consumeEnable":"yes"}}}',
        '{"subscriptionGroupTable":{"billing":{"brokerId":1e30}}}',
        '{"subscriptionGroupTable":{"billing":{"groupRetryPolicy":5}}}',
        '{"subscriptionGroupTable":{"billing":[]}}',
        '{"forbiddenTable":{"billing":{"orders":"x"}}}',
    ],
)
def test_a_hostile_file_is_refused_by_member(groups: SubscriptionGroupManager, text: str) -> None:
    with pytest.raises(CorruptRecordError, match="billing"):
        load(groups, text)
