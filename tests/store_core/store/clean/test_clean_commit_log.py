# SPDX-License-Identifier: Apache-2.0
"""When old segments of the commit log are deleted, and which."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any

import pytest

from store_core.errors import InvalidOptionError
from store_core.files.segment_paths import SegmentPaths
from store_core.format.message import PutMessageStatus
from store_core.store.clean import CleanCommitLogService, DiskSpace, parse_delete_when
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.put.commit_log import CommitLog
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.store.logs import FILE_SIZE, message

if TYPE_CHECKING:
    from pathlib import Path

HOUR_MS = 3_600_000
NOON_UTC = int(datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()) * 1000


class Disk(FaultyFileSystem):
    """One disk for everything, as full as a test says."""

    percent = 10

    def used_percent(self, path: Path) -> int:
        return self.percent if path.exists() else -1


class Store:
    """Six segments, all changed at noon; by default only their age keeps them."""

    def __init__(self, root: Path, time_zone: tzinfo | None = UTC, **settings: Any) -> None:  # noqa: ANN401
        self.clock = FakeClock(NOON_UTC)
        self.disk = Disk()
        self.config = MessageStoreConfig(mapped_file_size_commit_log=FILE_SIZE, **settings)
        queues = root / "consumequeue"
        queues.mkdir(parents=True)
        paths = tuple(root / name for name in ("a", "b"))
        space = DiskSpace(self.config, paths, queues, self.disk)
        self.log = CommitLog(SegmentPaths(paths, (), space.full_paths), self.config, self.disk, self.clock)
        while len(self.files) < 6:
            self.put()
        for file in self.files:
            os.utime(file.path, ns=(NOON_UTC * 1_000_000, NOON_UTC * 1_000_000))
        self.service = CleanCommitLogService(
            self.config, self.log.mapped_file_queue, self.log.running_flags, space, self.clock, time_zone=time_zone
        )

    @property
    def files(self) -> tuple[Any, ...]:
        return self.log.mapped_file_queue.mapped_files

    def put(self) -> PutMessageStatus:
        return self.log.put_message(message(bytes(900))).status

    def hours_later(self, hours: float) -> int:
        """Advance the clock, run once, and return the number of files that are left."""
        self.clock.advance(hours * 3600)
        self.service.run_once()
        return len(self.files)


def full(root: Path, percent: int, **settings: Any) -> Store:  # noqa: ANN401
    store = Store(root, **settings)
    store.disk.percent = percent
    return store


# ---- deleteWhen


@pytest.mark.parametrize(
    ("text", "hours"), [("04", {4}), ("4;16;23", {4, 16, 23}), ("04;", {4}), ("+5", {5}), ("99", {99})]
)
def test_hours_are_read_as_java_reads_them(text: str, hours: set[int]) -> None:
    assert hours == parse_delete_when(text)


@pytest.mark.parametrize("text", ["", ";", ";04", "04,05", " 04", "four", "4.5", "4;;5", "٤"])
def test_what_is_no_hour_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidOptionError, match="delete_when"):
        Store(tmp_path, delete_when=text)


# ---- reasons


def test_old_files_go_in_the_hours_of_delete_when_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)

    assert 6 == store.hours_later(75)  # 15:00, and 75 hours old
    assert 6 == store.hours_later(13 - 1 / 3600)  # 03:59:59
    assert 1 == store.hours_later(1 / 3600)  # 04:00:00


@pytest.mark.parametrize(("offset", "left"), [(0, 6), (8, 1), (-8, 6)])
def test_the_hour_is_that_of_the_time_zone(tmp_path: Path, offset: int, left: int) -> None:
    store = Store(tmp_path, timezone(timedelta(hours=offset)))

    assert left == store.hours_later(80)  # 20:00 UTC, 04:00 in China


def test_files_younger_than_file_reserved_time_stay(tmp_path: Path) -> None:
    store = Store(tmp_path, delete_when="12", file_reserved_time=48)

    assert 6 == store.hours_later(24)
    assert 1 == store.hours_later(24)


def test_a_request_by_hand_counts_for_twenty_rounds(tmp_path: Path) -> None:
    store = Store(tmp_path, delete_file_batch_max=1)
    store.clock.advance(75 * 3600)
    store.service.execute_delete_files_manually()
    left = [store.hours_later(0) for _ in range(6)]

    assert [5, 4, 3, 2, 1, 1] == left
    assert 14 == store.service._manual_rounds
    for _ in range(20):
        store.service.run_once()
    assert 0 == store.service._manual_rounds


def test_a_request_by_hand_spares_young_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.service.execute_delete_files_manually()

    assert 6 == store.hours_later(71)


@pytest.mark.parametrize(("percent", "left"), [(75, 6), (76, 1)])
def test_over_the_limit_of_deletion_old_files_go_at_any_hour(tmp_path: Path, percent: int, left: int) -> None:
    assert left == full(tmp_path, percent).hours_later(75)


@pytest.mark.parametrize(("percent", "left"), [(85, 6), (86, 1)])
def test_over_the_forcible_limit_young_files_go(tmp_path: Path, percent: int, left: int) -> None:
    assert left == full(tmp_path, percent).hours_later(1)


def test_young_files_stay_where_forcible_cleaning_is_off(tmp_path: Path) -> None:
    store = full(tmp_path, 99, clean_file_forcibly_enable=False)

    assert 6 == store.hours_later(1)
    assert 1 == store.hours_later(74)


def test_a_batch_is_configured_in_5_and_ten_in_4(tmp_path: Path) -> None:
    new = full(tmp_path / "new", 86, delete_file_batch_max=2)
    old = full(tmp_path / "old", 86, delete_file_batch_max=2, release="4.9")

    assert (4, 1) == (new.hours_later(1), old.hours_later(1))


# ---- the disk-full flag


def test_a_full_disk_refuses_messages_until_it_has_room(tmp_path: Path) -> None:
    store = full(tmp_path, 91)
    store.service.run_once()
    when_full = store.log.running_flags.is_writeable
    store.disk.percent = 86
    store.service.run_once()
    when_less_full = store.log.running_flags.is_writeable
    store.disk.percent = 85
    store.service.run_once()

    assert (False, False, True) == (when_full, when_less_full, store.log.running_flags.is_writeable)


def test_new_segments_avoid_full_directories(tmp_path: Path) -> None:
    store = Store(tmp_path)

    class OneFull(Disk):
        def used_percent(self, path: Path) -> int:
            return 86 if path.name == "a" else 10

    store.disk.__class__ = OneFull
    store.service.run_once()
    while len(store.files) < 8:
        store.put()

    assert ["a", "b", "a", "b", "a", "b", "b", "b"] == [file.path.parent.name for file in store.files]


# ---- files that the system refuses to delete


def refused(root: Path) -> Store:
    store = full(root, 86)
    store.disk.fail("remove", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        store.service.delete_expired_files()
    return store


def test_a_file_that_could_not_be_deleted_no_longer_counts_as_the_logs_start(tmp_path: Path) -> None:
    store = refused(tmp_path)

    assert (6, FILE_SIZE) == (len(store.files), store.log.min_offset)
    assert 0 == store.log.mapped_file_queue.min_offset


def test_it_is_tried_again_every_two_minutes_without_another_reason(tmp_path: Path) -> None:
    store = refused(tmp_path)
    store.disk.percent = 10
    store.disk.fail("remove", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        store.service.run_once()
    soon = store.hours_later(100 / 3600)
    later = store.hours_later(21 / 3600)

    assert (6, 5) == (soon, later)


# ---- the service


def test_the_first_round_comes_after_a_minute_then_every_interval(tmp_path: Path) -> None:
    store = Store(tmp_path, clean_resource_interval=7000)
    times = []
    for _ in range(3):
        store.service.pause()
        times.append(store.clock.seconds)

    assert [60.0, 67.0, 74.0] == times


def test_an_interval_that_would_never_rest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="clean_resource_interval"):
        Store(tmp_path, clean_resource_interval=0)


def test_what_the_system_refuses_does_not_end_the_service(tmp_path: Path) -> None:
    store = full(tmp_path, 86)
    store.disk.fail("remove", errno.EACCES)
    store.service.step()
    refused = store.service.error
    store.service.step()

    assert isinstance(refused, PermissionError)
    assert 1 == len(store.files)


def test_puts_go_on_while_the_oldest_files_go(tmp_path: Path) -> None:
    store = full(tmp_path, 86)
    store.service.run_once()

    assert PutMessageStatus.PUT_OK == store.put()
    assert store.log.min_offset == 5 * FILE_SIZE
