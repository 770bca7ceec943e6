# SPDX-License-Identifier: Apache-2.0
"""Files of queues and index are deleted when they point only to deleted segments."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from store_core.files.clock import SystemClock
from store_core.store.clean import CleanConsumeQueueService, CleanServices
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.put.commit_log import CommitLog
from store_core.store.store_layout import log_paths
from store_core.store.store_life import disk_space
from tests.store_core.fakes import FakeClock, FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass
class Files:
    """A queue, or the index, that has a number of files to delete at each call."""

    counts: list[int] = field(default_factory=list)
    failures: list[OSError] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def delete_expired_file(self, min_offset: int) -> int:
        self.asked.append(min_offset)
        if self.failures:
            raise self.failures.pop()
        return self.counts.pop(0) if self.counts else 0


class Store:
    """Three queues and an index."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.min_offset = 0
        self.files = [Files() for _ in range(3)]
        self.index = Files()
        queues: Any = self
        index: Any = self.index
        self.service = CleanConsumeQueueService(
            MessageStoreConfig(), lambda: self.min_offset, queues, index, self.clock
        )

    def queues(self) -> Iterable[Files]:
        return self.files

    def at(self, min_offset: int) -> int:
        self.min_offset = min_offset
        return self.service.delete_expired_files()


@pytest.fixture
def store() -> Store:
    return Store()


def test_nothing_is_asked_while_the_log_keeps_its_start(store: Store) -> None:
    store.at(-1)
    store.at(0)

    assert [] == store.index.asked + store.files[0].asked


def test_every_queue_and_the_index_are_asked_once_when_the_start_moves(store: Store) -> None:
    store.at(1000)
    store.at(1000)
    store.at(3000)

    assert [[1000, 3000]] * 4 == [files.asked for files in (*store.files, store.index)]


def test_a_store_whose_log_starts_late_is_cleaned_on_the_first_round(store: Store) -> None:
    store.min_offset = 4096
    store.service.run_once()

    assert [4096] == store.index.asked


def test_there_is_a_pause_after_each_queue_that_lost_files(store: Store) -> None:
    store.files[0].counts = [2]
    store.files[2].counts = [1]

    assert 3 == store.at(1000)
    assert [0.1, 0.1] == store.clock.slept


def test_a_round_that_failed_is_done_again(store: Store) -> None:
    store.files[1].failures = [OSError(errno.EIO, "no")]
    with pytest.raises(OSError, match="no"):
        store.at(1000)
    store.at(1000)

    assert [1000, 1000] == store.files[0].asked
    assert [1000] == store.index.asked


def test_both_services_start_and_end_together(tmp_path: Path) -> None:
    config, disk = MessageStoreConfig(), FaultyFileSystem()
    space = disk_space(tmp_path, config, disk)
    paths = replace(log_paths(tmp_path, config, disk), full_paths=space.full_paths)
    log = CommitLog(paths, config, disk, SystemClock())
    queues: Any = Store()
    services = CleanServices(config, log, space, queues, queues.index, SystemClock())
    services.start()
    running = services.commit_log_service.is_running, services.queue_service.is_running
    ended = services.shutdown()

    assert ((True, True), True) == (running, ended)
    assert not services.commit_log_service.is_running
