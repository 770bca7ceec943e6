# SPDX-License-Identifier: Apache-2.0
"""Committed offsets, their file, and the service that writes it on a schedule."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import BrokerConfig, CorruptRecordError, InvalidOptionError
from store_core.broker.consumer_offset import ConsumerOffsetManager, FlushConsumerOffsetService
from store_core.files.file_system import OsFileSystem
from store_core.files.machine import SystemClock
from store_core.snapshot.config import DataVersion
from tests.store_core.fakes import FakeClock, FaultyFileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.format.release import Release


NOW = 1_700_000_000_000


@pytest.fixture
def offsets(tmp_path: Path) -> ConsumerOffsetManager:
    return ConsumerOffsetManager(tmp_path, FaultyFileSystem(), FakeClock())


def commit(offsets: ConsumerOffsetManager, offset: int, queue_id: int = 0, topic: str = "orders") -> None:
    offsets.commit_offset("10.0.0.1:4711", "billing", topic, queue_id, offset)


def loaded(root: Path, text: str, release: Release = "5.3") -> ConsumerOffsetManager:
    path = root / "config" / "consumerOffset.json"
    path.parent.mkdir()
    path.write_text(text)
    manager = ConsumerOffsetManager(root, OsFileSystem(), FakeClock(), release)
    manager.load()
    return manager


# ---- committing


def test_an_offset_may_go_back_with_a_warning(offsets: ConsumerOffsetManager, caplog: pytest.LogCaptureFixture) -> None:
    commit(offsets, 5)
    commit(offsets, 5)
    quiet = not caplog.records
    with caplog.at_level(logging.WARNING):
        commit(offsets, 4)

    assert quiet
    assert 4 == offsets.query_offset("billing", "orders", 0)
    assert "10.0.0.1:4711 commits offset 4 of orders@billing, queue 0, back from 5" in caplog.text


@pytest.mark.parametrize(("queue_id", "offset"), [(1 << 31, 0), (-(1 << 31) - 1, 0), (0, 1 << 63)])
def test_numbers_that_java_does_not_hold_are_refused(
    offsets: ConsumerOffsetManager, queue_id: int, offset: int
) -> None:
    with pytest.raises(ValueError, match="bits"):
        commit(offsets, offset, queue_id)


def test_the_data_version_moves_on_after_so_many_commits(tmp_path: Path) -> None:
    clock = FakeClock()
    offsets = ConsumerOffsetManager(tmp_path, OsFileSystem(), clock, version_step=3)
    clock.advance(1)
    counters = []
    for offset in range(7):
        commit(offsets, offset)
        counters.append(offsets.data_version.counter)

    assert [0, 0, 1, 1, 1, 2, 2] == counters
    assert DataVersion(NOW + 1000, 2) == offsets.data_version


# ---- pulls and resets


def test_resets_are_passed_over_where_the_broker_has_them_off(tmp_path: Path) -> None:
    off = ConsumerOffsetManager(tmp_path, OsFileSystem(), FakeClock(), uses_reset=False)
    off.assign_reset_offset("orders", "billing", 0, 2)
    commit(off, 9)

    assert 9 == off.query_offset("billing", "orders", 0)


@pytest.mark.parametrize(
    ("topic", "group", "queue_id", "offset"), [("", "g", 0, 0), ("t", "", 0, 0), ("t", "g", -1, 0), ("t", "g", 0, -1)]
)
def test_a_reset_that_makes_no_sense_is_passed_over(
    offsets: ConsumerOffsetManager, topic: str, group: str, queue_id: int, offset: int
) -> None:
    offsets.assign_reset_offset(topic, group, queue_id, offset)

    assert {} == offsets.offset_table()


# ---- groups and topics


def test_groups_and_topics_find_each_other(offsets: ConsumerOffsetManager) -> None:
    commit(offsets, 1)
    commit(offsets, 1, topic="refunds")
    commit(offsets, 1, topic="a@b")
    offsets.commit_offset("", "audit", "orders", 0, 1)

    assert {"orders", "refunds"} == offsets.which_topic_by_consumer("billing")
    assert {"billing", "audit"} == offsets.which_group_by_topic("orders")


def test_a_clone_goes_its_own_way(offsets: ConsumerOffsetManager) -> None:
    commit(offsets, 5)
    offsets.clone_offset("billing", "audit", "orders")
    commit(offsets, 6)

    assert 5 == offsets.query_offset("audit", "orders", 0)


def test_groups_and_topics_can_be_forgotten(offsets: ConsumerOffsetManager) -> None:
    for topic in ("orders", "refunds"):
        for group in ("billing", "audit"):
            offsets.commit_offset("", group, topic, 0, 1)
            offsets.commit_pull_offset(group, topic, 0, 2)
    offsets.remove_offset("audit")
    offsets.clean_offset_by_topic("refunds")

    assert {"orders@billing": {0: 1}} == offsets.offset_table()
    assert -1 == offsets.query_pull_offset("audit", "orders", 0)


# ---- the file


def test_loading_replaces_what_is_there_and_keeps_what_a_file_lacks(tmp_path: Path) -> None:
    offsets = loaded(tmp_path, '{"offsetTable":{"orders@billing":{0:5}}}')
    version = offsets.data_version
    commit(offsets, 7, topic="refunds")
    offsets.load()

    assert {"orders@billing": {0: 5}} == offsets.offset_table()
    assert version == offsets.data_version


_NAMES = st.text('ab@%-é"\\\n', min_size=1, max_size=4)
_COMMITS = st.lists(
    st.tuples(_NAMES, _NAMES, st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)), max_size=20
)


@given(_COMMITS)
def test_what_was_persisted_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, commits: list[tuple[str, str, int, int]]
) -> None:
    root = tmp_path_factory.mktemp("store")
    offsets = ConsumerOffsetManager(root, FaultyFileSystem(), FakeClock())
    for topic, group, queue_id, offset in commits:
        offsets.commit_offset("", group, topic, queue_id, offset)
    offsets.persist()
    again = ConsumerOffsetManager(root, FaultyFileSystem(), FakeClock(0))
    again.load()

    assert (offsets.offset_table(), offsets.data_version) == (again.offset_table(), again.data_version)


INTERVAL = BrokerConfig(flush_consumer_offset_interval=3000)


class Offsets:
    """Committed offsets in a directory, and the service that writes them."""

    def __init__(self, root: Path) -> None:
        self.clock, self.disk, self.root = FakeClock(), FaultyFileSystem(), root
        self.errors: list[OSError] = []
        self.manager = ConsumerOffsetManager(root, self.disk, self.clock)
        self.service = FlushConsumerOffsetService(self.manager, INTERVAL, self.clock, self.errors.append)

    def commit(self, offset: int) -> None:
        self.manager.commit_offset("10.0.0.1:4711", "billing", "orders", 0, offset)

    def step(self) -> float:
        """Let the service pause and run a step, and return when that was, in seconds."""
        self.service.pause()
        self.service.step()
        return self.clock.seconds

    def written(self) -> int:
        manager = ConsumerOffsetManager(self.root, self.disk, self.clock)
        manager.load()
        return manager.query_offset("billing", "orders", 0)


@pytest.fixture
def kept(tmp_path: Path) -> Offsets:
    return Offsets(tmp_path)


def test_offsets_are_written_after_ten_seconds_and_then_at_each_interval(kept: Offsets) -> None:
    kept.manager.load()
    found = []
    for offset in (5, 6, 7):
        kept.commit(offset)
        found.append((kept.step(), kept.written()))

    assert [(10.0, 5), (13.0, 6), (16.0, 7)] == found


def test_shutdown_writes_what_was_committed_last(kept: Offsets) -> None:
    kept.manager.load()
    kept.commit(5)
    kept.service.shutdown()

    assert 5 == kept.written()


def test_offsets_that_were_never_read_are_not_written_over(kept: Offsets) -> None:
    kept.manager.load()
    kept.commit(5)
    kept.service.shutdown()
    again = Offsets(kept.root)
    again.step()
    again.service.shutdown()

    assert 5 == again.written()


def test_write_that_fails_is_reported_and_repeated_after_the_interval(kept: Offsets) -> None:
    kept.manager.load()
    kept.commit(5)
    kept.disk.fail("sync", errno.ENOSPC)
    times = [kept.step(), kept.step()]

    assert ([10.0, 13.0], [errno.ENOSPC], 5) == (times, [error.errno for error in kept.errors], kept.written())


def test_start_reads_the_file_and_the_thread_ends_when_told(tmp_path: Path) -> None:
    first = Offsets(tmp_path)
    first.manager.load()
    first.commit(5)
    first.manager.persist()
    manager = ConsumerOffsetManager(tmp_path)
    service = FlushConsumerOffsetService(manager, INTERVAL, SystemClock())
    service.start()
    found = manager.query_offset("billing", "orders", 0)
    manager.commit_offset("10.0.0.1:4711", "billing", "orders", 0, 8)
    service.start()

    assert service.shutdown()
    assert (5, 8) == (found, first.written())


def test_start_refuses_offsets_that_can_not_be_read(kept: Offsets) -> None:
    kept.manager.path.parent.mkdir()
    kept.manager.path.write_text("{")
    with pytest.raises(CorruptRecordError, match="consumerOffset"):
        kept.service.start()
    kept.service.shutdown()

    assert "{" == kept.manager.path.read_text()


@pytest.mark.parametrize("interval", [0, -1])
def test_interval_must_be_positive(tmp_path: Path, interval: int) -> None:
    broker = BrokerConfig(flush_consumer_offset_interval=interval)
    with pytest.raises(InvalidOptionError, match=f"must be positive .*, found {interval}"):
        FlushConsumerOffsetService(ConsumerOffsetManager(tmp_path), broker, FakeClock())
