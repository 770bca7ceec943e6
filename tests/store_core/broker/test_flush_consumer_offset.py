# SPDX-License-Identifier: Apache-2.0
"""Committed offsets are written on a schedule."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from store_core import BrokerConfig, CorruptRecordError, InvalidOptionError
from store_core.broker import ConsumerOffsetManager, FlushConsumerOffsetService
from store_core.broker.pull_checks import PullSysFlag
from store_core.files.clock import SystemClock
from tests.store_core.broker.pull_broker import CARRIED, FakeStore, PullBroker, a_pull
from tests.store_core.fakes import FakeClock, FaultyFileSystem

if TYPE_CHECKING:
    from pathlib import Path

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
def offsets(tmp_path: Path) -> Offsets:
    return Offsets(tmp_path)


def test_offsets_are_written_after_ten_seconds_and_then_at_each_interval(offsets: Offsets) -> None:
    offsets.manager.load()
    found = []
    for offset in (5, 6, 7):
        offsets.commit(offset)
        found.append((offsets.step(), offsets.written()))

    assert [(10.0, 5), (13.0, 6), (16.0, 7)] == found


def test_wake_up_between_the_intervals_writes_nothing(offsets: Offsets) -> None:
    offsets.manager.load()
    offsets.commit(5)
    offsets.service.wakeup()

    assert (0.0, -1) == (offsets.step(), offsets.written())


def test_shutdown_writes_what_was_committed_last(offsets: Offsets) -> None:
    offsets.manager.load()
    offsets.commit(5)
    offsets.service.shutdown()

    assert 5 == offsets.written()


def test_offsets_that_were_never_read_are_not_written_over(offsets: Offsets) -> None:
    offsets.manager.load()
    offsets.commit(5)
    offsets.service.shutdown()
    again = Offsets(offsets.root)
    again.step()
    again.service.shutdown()

    assert 5 == again.written()


def test_write_that_fails_is_reported_and_repeated_after_the_interval(offsets: Offsets) -> None:
    offsets.manager.load()
    offsets.commit(5)
    offsets.disk.fail("sync", errno.ENOSPC)
    times = [offsets.step(), offsets.step()]

    assert ([10.0, 13.0], [errno.ENOSPC], 5) == (times, [error.errno for error in offsets.errors], offsets.written())


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


def test_start_refuses_offsets_that_can_not_be_read(offsets: Offsets) -> None:
    offsets.manager.path.parent.mkdir()
    offsets.manager.path.write_text("{")
    with pytest.raises(CorruptRecordError, match="consumerOffset"):
        offsets.service.start()
    offsets.service.shutdown()

    assert "{" == offsets.manager.path.read_text()


@pytest.mark.parametrize("interval", [0, -1])
def test_interval_must_be_positive(tmp_path: Path, interval: int) -> None:
    broker = BrokerConfig(flush_consumer_offset_interval=interval)
    with pytest.raises(InvalidOptionError, match=f"must be positive .*, found {interval}"):
        FlushConsumerOffsetService(ConsumerOffsetManager(tmp_path), broker, FakeClock())


def test_what_a_pull_commits_is_in_the_file_after_the_interval(tmp_path: Path) -> None:
    broker = PullBroker(FakeStore(), tmp_path)
    broker.offsets.load()
    service = FlushConsumerOffsetService(broker.offsets, broker.config, broker.clock)
    broker.processor.process_request(a_pull(sys_flag=CARRIED | PullSysFlag.COMMIT_OFFSET, commit_offset=7))
    service.pause()
    service.step()

    assert '"orders@billing":{0:7}' in "".join((tmp_path / "config" / "consumerOffset.json").read_text().split())
