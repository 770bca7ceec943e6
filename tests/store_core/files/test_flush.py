# SPDX-License-Identifier: Apache-2.0
"""When the log is flushed to disk, and what producers get as an answer."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

import pytest

from store_core.files.flush import (
    CommitRealTimeService,
    FlushDiskWatcher,
    FlushRealTimeService,
    GroupCommitRequest,
    GroupCommitService,
    Pace,
)
from store_core.files.machine import SystemClock
from store_core.files.mapped_file import TransientStorePool
from store_core.files.mapped_file_queue import AllocateMappedFileService, MappedFileQueue
from store_core.files.segment_listing import SegmentPaths
from store_core.format.message import AppendMessageResult, AppendMessageStatus, PutMessageStatus
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.put.commit_log import _commit_pace, _flush_pace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.store_core.fakes import FakeClock, FaultyFileSystem

SIZE = 1 << 16
PAGE = 4096
FLUSH_PACE = _flush_pace(MessageStoreConfig())
COMMIT_PACE = _commit_pace(MessageStoreConfig())


@pytest.fixture
def queue(tmp_path: Path, disk: FaultyFileSystem) -> MappedFileQueue:
    return MappedFileQueue(SegmentPaths((tmp_path / "commitlog",)), SIZE, disk)


@pytest.fixture
def buffered(tmp_path: Path, disk: FaultyFileSystem, clock: FakeClock) -> MappedFileQueue:
    service = AllocateMappedFileService(disk, clock, TransientStorePool(2, SIZE))
    clock.while_waiting = service.run_once
    return MappedFileQueue(SegmentPaths((tmp_path / "commitlog",)), SIZE, disk, service)


def append(queue: MappedFileQueue, size: int, time: int = 0) -> int:
    """Append this number of bytes, rolling files, and return the offset after them."""
    while size:
        file = queue.get_last_mapped_file()
        assert file is not None

        def record(offset: int, view: memoryview, room: int, left: int = size) -> AppendMessageResult:
            taken = min(left, room)
            view[:taken] = b"x" * taken
            return AppendMessageResult(AppendMessageStatus.PUT_OK, offset, taken, store_timestamp=time)

        size -= file.append_with(record).wrote_bytes
    return queue.max_wrote_position


def request(queue: MappedFileQueue, clock: FakeClock, size: int = 100) -> GroupCommitRequest:
    return GroupCommitRequest(append(queue, size), clock.monotonic() + 5)


# ---- asynchronous flush


def test_the_paces_are_those_of_rocketmq() -> None:
    assert Pace(interval=0.5, least_pages=4, thorough_interval=10.0, timed=True) == FLUSH_PACE
    assert Pace(interval=0.2, least_pages=4, thorough_interval=0.2, timed=False) == COMMIT_PACE


def test_only_thorough_flushes_move_the_checkpoint(queue: MappedFileQueue, clock: FakeClock) -> None:
    told: list[int] = []
    service = FlushRealTimeService(queue, clock, FLUSH_PACE, told.append)
    service.run_once()
    append(queue, 4 * PAGE, time=11)
    service.run_once()

    assert queue.flushed_where == 4 * PAGE
    assert told == []

    append(queue, 1, time=22)
    clock.advance(10)
    service.run_once()

    assert told == [22]


@pytest.mark.parametrize(("timed", "slept"), [(True, [0.5]), (False, [])])
def test_a_timed_service_can_not_be_woken(
    queue: MappedFileQueue, clock: FakeClock, timed: bool, slept: list[float]
) -> None:
    service = FlushRealTimeService(queue, clock, Pace(0.5, 4, 10.0, timed=timed))
    service.wakeup()
    service.pause()

    assert clock.seconds == sum(slept)


def test_a_shutdown_flushes_everything_however_many_files(queue: MappedFileQueue, clock: FakeClock) -> None:
    told: list[int] = []
    service = FlushRealTimeService(queue, clock, FLUSH_PACE, told.append)
    end = append(queue, 15 * SIZE + 7, time=33)

    assert service.shutdown()
    assert queue.flushed_where == end
    assert told == [33]


def test_a_failing_flush_is_told_and_the_service_goes_on(
    queue: MappedFileQueue, clock: FakeClock, disk: FaultyFileSystem
) -> None:
    errors: list[OSError] = []
    disk.fail("sync", errno.EIO)
    append(queue, 1)
    service = FlushRealTimeService(queue, clock, FLUSH_PACE, on_error=errors.append)
    service.step()

    assert service.error is not None
    assert [error.errno for error in errors] == [errno.EIO]
    assert queue.flushed_where == 0


# ---- write buffer


def test_within_the_interval_only_four_pages_are_committed(buffered: MappedFileQueue, clock: FakeClock) -> None:
    service = CommitRealTimeService(buffered, clock, lambda: None, COMMIT_PACE)
    service.run_once()
    reached = []
    for size in (4 * PAGE - 1, 1, 1):
        append(buffered, size)
        clock.advance(0.1)
        service.run_once()
        reached.append(buffered.committed_where)

    assert reached == [0, 4 * PAGE, 4 * PAGE]
    clock.advance(0.1)
    service.run_once()
    assert buffered.committed_where == 4 * PAGE + 1


# ---- group commit


def test_a_group_commit_looks_every_ten_milliseconds_or_when_a_producer_comes(
    queue: MappedFileQueue, clock: FakeClock
) -> None:
    service = GroupCommitService(queue, clock)
    service.pause()
    idle = clock.seconds
    service.put_request(request(queue, clock))
    service.pause()

    assert pytest.approx(0.01) == idle
    assert idle == clock.seconds


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_where_a_flush_fails_all_that_wait_are_told_and_nothing_is_lost_in_silence(
    queue: MappedFileQueue, clock: FakeClock, disk: FaultyFileSystem, code: int
) -> None:
    errors: list[OSError] = []
    service = GroupCommitService(queue, clock, on_error=errors.append)
    disk.fail("sync", code)
    answers = []
    for _ in range(2):
        waiting = request(queue, clock)
        service.put_request(waiting)
        service.step()
        answers.append(waiting.future.result(0))

    assert answers == [PutMessageStatus.FLUSH_DISK_TIMEOUT] * 2
    assert queue.flushed_where == 0
    assert [error.errno for error in errors] == [code, code]


def test_the_log_hears_of_a_failed_flush_before_any_producer_does(
    queue: MappedFileQueue, clock: FakeClock, disk: FaultyFileSystem
) -> None:
    waiting: list[GroupCommitRequest] = []
    answered_before: list[bool] = []

    def note(_: OSError) -> None:
        answered_before.extend(each.future.done() for each in waiting)

    service = GroupCommitService(queue, clock, on_error=note)
    disk.fail("sync", errno.EIO)
    waiting += [request(queue, clock) for _ in range(3)]
    for each in waiting:
        service.put_request(each)
    service.run_once()

    assert answered_before == [False] * 3
    assert {each.future.result(0) for each in waiting} == {PutMessageStatus.FLUSH_DISK_TIMEOUT}


def test_nobody_is_told_that_all_is_well_once_a_flush_has_failed(
    queue: MappedFileQueue, clock: FakeClock, disk: FaultyFileSystem
) -> None:
    service = GroupCommitService(queue, clock, on_error=lambda _: None)
    flushed = request(queue, clock)
    service.put_request(flushed)
    service.run_once()
    disk.fail("sync", errno.EIO)
    answers = []
    for size in (100, 100, SIZE):  # the last one in a file whose own sync would succeed
        waiting = request(queue, clock, size)
        service.put_request(waiting)
        service.run_once()
        answers.append(waiting.future.result(0))

    assert flushed.future.result(0) is PutMessageStatus.PUT_OK
    assert answers == [PutMessageStatus.FLUSH_DISK_TIMEOUT] * 3
    assert queue.flushed_where == flushed.next_offset


def test_a_late_request_is_answered_at_once(queue: MappedFileQueue, clock: FakeClock) -> None:
    service = GroupCommitService(queue, clock)
    early, late = request(queue, clock), request(queue, clock)
    service.put_request(early)
    service.shutdown()
    service.put_request(late)

    assert early.future.result(0) is PutMessageStatus.PUT_OK
    assert late.future.result(0) is PutMessageStatus.FLUSH_DISK_TIMEOUT


def test_a_request_whose_flush_hangs_times_out_and_its_data_stay(queue: MappedFileQueue, clock: FakeClock) -> None:
    watcher = FlushDiskWatcher(clock)
    waiting = request(queue, clock)
    watcher.add(waiting)
    clock.advance(4.999)
    watcher.run_once()

    assert not waiting.future.done()
    clock.advance(0.001)
    watcher.run_once()
    assert waiting.future.result(0) is PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert queue.max_offset == waiting.next_offset


def test_the_watcher_waits_for_a_deadline_but_forgets_the_answered_every_second(
    queue: MappedFileQueue, clock: FakeClock
) -> None:
    watcher = FlushDiskWatcher(clock)
    for _ in range(3):
        waiting = request(queue, clock)
        watcher.add(waiting)
        waiting.answer(PutMessageStatus.PUT_OK)
    watcher.wait_for_running(0.0)
    watcher.pause()
    watcher.run_once()

    assert clock.seconds == 1.0
    assert watcher._requests == []


def test_threads_answer_producers_and_leave_nothing_behind(tmp_path: Path, disk: FaultyFileSystem) -> None:
    clock = SystemClock()
    queue = MappedFileQueue(SegmentPaths((tmp_path / "commitlog",)), SIZE, disk)
    before = threading.active_count()
    services = [GroupCommitService(queue, clock), FlushDiskWatcher(clock)]
    for service in services:
        service.start()
    group, watcher = services
    assert isinstance(group, GroupCommitService)
    assert isinstance(watcher, FlushDiskWatcher)
    statuses = set()
    for _ in range(200):
        waiting = GroupCommitRequest(append(queue, 1000), clock.monotonic() + 60)
        watcher.add(waiting)
        group.put_request(waiting)
        statuses.add(waiting.future.result(60))
    for service in services:
        assert service.shutdown()

    assert statuses == {PutMessageStatus.PUT_OK}
    assert queue.flushed_where == queue.max_offset
    assert threading.active_count() == before


def test_a_producer_is_answered_while_the_disk_hangs(tmp_path: Path, disk: FaultyFileSystem) -> None:
    clock = SystemClock()
    queue = MappedFileQueue(SegmentPaths((tmp_path / "commitlog",)), SIZE, disk)
    disk_answers = threading.Event()

    def hang() -> None:
        disk_answers.wait(60)

    disk.before["sync"] = hang
    group, watcher = GroupCommitService(queue, clock), FlushDiskWatcher(clock)
    group.start()
    watcher.start()
    waiting = GroupCommitRequest(append(queue, 1000), clock.monotonic() + 0.01)
    watcher.add(waiting)
    group.put_request(waiting)
    status = waiting.future.result(60)
    disk_answers.set()

    assert group.shutdown()
    assert watcher.shutdown()
    assert status is PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert queue.flushed_where == 1000
