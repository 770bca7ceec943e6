# SPDX-License-Identifier: Apache-2.0
"""When files of the commit log, queues and index are deleted, and which; what a store does when its disks fill up."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from store_core.errors import InvalidOptionError
from store_core.files.machine import SystemClock
from store_core.files.segment_listing import SegmentPaths
from store_core.format.release import rules_of
from store_core.store.clean import (
    CleanCommitLogService,
    CleanConsumeQueueService,
    CleanServices,
    DiskLimits,
    DiskSpace,
    SpaceVerdict,
    parse_delete_when,
)
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.put.commit_log import CommitLog
from store_core.store.store_layout import log_paths
from store_core.store.store_life import disk_space
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.store.logs import FILE_SIZE, message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.format.message import PutMessageStatus
    from store_core.format.release import Release


HOUR_MS = 3_600_000
NOON_UTC = int(datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()) * 1000


class Store:
    """Six segments, all changed at noon; by default only their age keeps them."""

    def __init__(self, root: Path, time_zone: tzinfo | None = UTC, **settings: Any) -> None:  # noqa: ANN401
        self.clock = FakeClock(NOON_UTC)
        self.disk = FaultyFileSystem()
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
        return self.log.wait(self.log.put(message(bytes(900)))).status

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


@pytest.mark.parametrize(("percent", "age", "left"), [(75, 75, 6), (76, 75, 1), (85, 1, 6), (86, 1, 1)])
def test_over_the_limit_of_deletion_old_files_go_at_any_hour_and_over_the_forcible_one_young_ones(
    tmp_path: Path, percent: int, age: int, left: int
) -> None:
    assert left == full(tmp_path, percent).hours_later(age)


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

    class OneFull(FaultyFileSystem):
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


class Queues:
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
def store() -> Queues:
    return Queues()


def test_every_queue_and_the_index_are_asked_once_when_the_start_moves(store: Queues) -> None:
    store.at(1000)
    store.at(1000)
    store.at(3000)

    assert [[1000, 3000]] * 4 == [files.asked for files in (*store.files, store.index)]


def test_there_is_a_pause_after_each_queue_that_lost_files(store: Queues) -> None:
    store.files[0].counts = [2]
    store.files[2].counts = [1]

    assert 3 == store.at(1000)
    assert [0.1, 0.1] == store.clock.slept


def test_a_round_that_failed_is_done_again(store: Queues) -> None:
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
    queues: Any = Queues()
    services = CleanServices(config, log, space, queues, queues.index, SystemClock())
    services.start()
    running = services.commit_log_service.is_running, services.queue_service.is_running
    ended = services.shutdown()

    assert ((True, True), True) == (running, ended)
    assert not services.commit_log_service.is_running


A, B, QUEUES = Path("/a/commitlog"), Path("/b/commitlog"), Path("/q/consumequeue")


class Disks(FaultyFileSystem):
    """Disks as full as a test says; other disks do not exist."""

    def __init__(self, **percents: int) -> None:
        super().__init__()
        self.percents = {path: percents[path.parent.name] for path in (A, B, QUEUES) if path.parent.name in percents}

    def used_percent(self, path: Path) -> int:
        return self.percents.get(path, -1)


def config(**settings: Any) -> MessageStoreConfig:  # noqa: ANN401 -- any field
    return MessageStoreConfig(**settings)


def verdict(release: Release, log: int, queues: int, **settings: Any) -> tuple[bool, bool, bool | None]:  # noqa: ANN401
    found = SpaceVerdict.of(DiskLimits.of(config(release=release, **settings)), rules_of(release), log, queues)
    return found.wants_deletion, found.at_once, found.is_full


# ---- limits


@pytest.mark.parametrize(("value", "kept"), [(9, 10), (10, 10), (95, 95), (96, 95), (-3, 10)])
@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_every_release_bounds_the_limit_of_deletion(release: Release, value: int, kept: int) -> None:
    assert kept == DiskLimits.of(config(release=release, disk_max_used_space_ratio=value)).delete


@pytest.mark.parametrize(("value", "warning", "forcible"), [(10, 35, 30), (60, 60, 60), (99, 90, 85)])
def test_the_other_limits_are_bounded_by_5_alone(value: int, warning: int, forcible: int) -> None:
    settings = {"disk_space_warning_level_ratio": value, "disk_space_clean_forcibly_ratio": value}
    new = DiskLimits.of(config(**settings))
    old = DiskLimits.of(config(release="4.9", **settings))

    assert (warning, forcible) == (new.warning, new.forcible)
    assert (value, value) == (old.warning, old.forcible)


# ---- verdicts


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
@pytest.mark.parametrize(
    ("log", "queues", "expected"),
    [
        (75, 75, (False, False, False)),
        (76, 10, (True, False, False)),
        (10, 76, (True, False, False)),
        (-1, 10, (True, False, False)),
        (10, -1, (True, False, False)),
        (86, 10, (True, True, None)),
        (90, 10, (True, True, None)),
        (91, 10, (True, True, True)),
        (10, 86, (True, True, False)),
        (10, 91, (True, True, True)),
        (91, 91, (True, True, True)),
    ],
)
def test_full_disks_ask_for_deletion(
    release: Release, log: int, queues: int, expected: tuple[bool, bool, bool | None]
) -> None:
    assert expected == verdict(release, log, queues)


@pytest.mark.parametrize(
    ("log", "queues", "limit", "in_4", "in_5"),
    [
        # a log disk over the limit of deletion ends the check in 4
        (80, 91, 75, (True, False, False), (True, True, True)),
        # a queue disk with room clears the flag of a full log disk in 4
        (92, 10, 95, (False, True, False), (True, True, True)),
        # at once needs another reason to delete in 4
        (10, 88, 95, (False, True, False), (True, True, False)),
    ],
)
def test_verdicts_of_4_differ(
    log: int, queues: int, limit: int, in_4: tuple[bool, ...], in_5: tuple[bool, ...]
) -> None:
    assert in_4 == verdict("4.9", log, queues, disk_max_used_space_ratio=limit)
    assert in_5 == verdict("5.3", log, queues, disk_max_used_space_ratio=limit)


# ---- measuring


@pytest.mark.parametrize(("percents", "wants"), [({"a": 95, "b": 50, "q": 10}, False), ({"a": 95, "q": 10}, True)])
def test_of_several_log_disks_the_emptiest_counts_or_one_that_is_missing(percents: dict[str, int], wants: bool) -> None:
    space = DiskSpace(config(), (A, B), QUEUES, Disks(**percents))

    assert SpaceVerdict(wants_deletion=wants, at_once=False, is_full=False) == space.check()


def test_directories_over_the_forcible_limit_are_full_as_of_the_last_check() -> None:
    disks = Disks(a=86, b=85, q=10)
    space = DiskSpace(config(), (A, B), QUEUES, disks)
    before = set(space.full_paths())
    space.check()
    full = set(space.full_paths())
    disks.percents[A] = 20
    space.check()

    assert (set(), {A}, set()) == (before, full, set(space.full_paths()))
