# SPDX-License-Identifier: Apache-2.0
"""When the log is flushed to disk, and what producers get as an answer."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

import pytest

from store_core.files.clock import SystemClock
from store_core.files.flush import (
    COMMIT_PACE,
    FLUSH_PACE,
    CommitRealTimeService,
    FlushDiskWatcher,
    FlushRealTimeService,
    GroupCommitRequest,
    GroupCommitService,
    Pace,
)
from store_core.files.mapped_file import TransientStorePool
from store_core.files.mapped_file_queue import AllocateMappedFileService, MappedFileQueue
from store_core.files.segment_paths import SegmentPaths
from store_core.format.message import AppendMessageResult, AppendMessageStatus, PutMessageStatus

if TYPE_CHECKING:
    from pathlib import Path

    from tests.store_core.fakes import FakeClock, FaultyFileSystem

SIZE = 1 << 16
PAGE = 4096


@pytest.fixture
def queue(tmp_path: Path, disk: FaultyFileSystem, clock: FakeClock) -> MappedFileQueue:
    return MappedFileQueue(SegmentPaths((tmp_path / "commitlog",)), SIZE, disk, clock)


@pytest.fixture
def buffered(tmp_path: Path, disk: FaultyFileSystem, clock: FakeClock) -> MappedFileQueue:
    service = AllocateMappedFileService(disk, clock, TransientStorePool(2, SIZE))
    clock.while_waiting = service.run_once
    return MappedFileQueue(SegmentPaths((tmp_path / "commitlog",)), SIZE, disk, clock, service)


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


def test_four_pages_are_worth_a_flush(queue: MappedFileQueue, clock: FakeClock) -> None:
    service = FlushRealTimeService(queue, clock)
    service.run_once()
    reached = []
    for size in (4 * PAGE - 1, 1, 4 * PAGE):
        append(queue, size)
        clock.advance(0.5)
        service.run_once()
        reached.append(queue.flushed_where)

    assert reached == [0, 4 * PAGE, 8 * PAGE]


def test_the_first_flush_and_one_every_ten_seconds_take_everything(queue: MappedFileQueue, clock: FakeClock) -> None:
    service = FlushRealTimeService(queue, clock)
    reached = []
    for seconds in (0.0, 0.5, 9.4, 0.1, 0.5):
        clock.advance(seconds)
        append(queue, 1)
        service.run_once()
        reached.append(queue.flushed_where)

    assert reached == [1, 1, 1, 4, 4]


def test_a_clock_set_back_puts_no_thorough_flush_off(queue: MappedFileQueue, clock: FakeClock) -> None:
    service = FlushRealTimeService(queue, clock)
    service.run_once()
    append(queue, 1)
    clock.advance(10)
    clock.wall_ms -= 3_600_000
    service.run_once()

    assert queue.flushed_where == 1


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
    service = FlushRealTimeService(queue, clock, on_error=errors.append)
    service.step()

    assert service.error is not None
    assert [error.errno for error in errors] == [errno.EIO]
    assert queue.flushed_where == 0


# ---- write buffer


def test_a_commit_wakes_the_flush(buffered: MappedFileQueue, clock: FakeClock) -> None:
    woken: list[int] = []
    service = CommitRealTimeService(buffered, clock, lambda: woken.append(buffered.committed_where))
    service.run_once()
    append(buffered, 10)
    clock.advance(0.2)
    service.run_once()
    service.run_once()

    assert woken == [10]
    assert buffered.max_offset == 10


def test_within_the_interval_only_four_pages_are_committed(buffered: MappedFileQueue, clock: FakeClock) -> None:
    service = CommitRealTimeService(buffered, clock, lambda: None)
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


def test_a_commit_by_pages_puts_the_thorough_one_off(buffered: MappedFileQueue, clock: FakeClock) -> None:
    service = CommitRealTimeService(buffered, clock, lambda: None)
    service.run_once()
    reached = []
    for size, seconds in ((4 * PAGE, 0.1), (1, 0.15), (0, 0.1)):
        append(buffered, size)
        clock.advance(seconds)
        service.run_once()
        reached.append(buffered.committed_where)

    assert reached == [4 * PAGE, 4 * PAGE, 4 * PAGE + 1]


def test_a_shutdown_commits_before_it_flushes(buffered: MappedFileQueue, clock: FakeClock) -> None:
    end = append(buffered, 2 * SIZE + 7)
    CommitRealTimeService(buffered, clock, lambda: None).shutdown()
    FlushRealTimeService(buffered, clock).shutdown()

    assert (buffered.committed_where, buffered.flushed_where) == (end, end)


# ---- group commit


def test_a_request_is_answered_when_its_record_is_on_disk(
    queue: MappedFileQueue, clock: FakeClock, disk: FaultyFileSystem
) -> None:
    service = GroupCommitService(queue, clock)
    waiting = request(queue, clock)
    service.put_request(waiting)

    assert not waiting.future.done()
    service.run_once()
    assert waiting.future.result(0) is PutMessageStatus.PUT_OK
    assert queue.flushed_where == waiting.next_offset
    assert disk.count("sync") == 1


def test_one_sync_serves_all_that_wait(queue: MappedFileQueue, clock: FakeClock, disk: FaultyFileSystem) -> None:
    service = GroupCommitService(queue, clock)
    waiting = [request(queue, clock) for _ in range(50)]
    for one in waiting:
        service.put_request(one)
    service.run_once()

    assert {one.future.result(0) for one in waiting} == {PutMessageStatus.PUT_OK}
    assert disk.count("sync") == 1


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


def test_a_request_that_comes_during_a_flush_is_answered_by_the_next_one(
    queue: MappedFileQueue, clock: FakeClock, disk: FaultyFileSystem
) -> None:
    service = GroupCommitService(queue, clock)
    first = request(queue, clock)
    late: list[GroupCommitRequest] = []

    def while_it_syncs() -> None:
        if not late:
            late.append(GroupCommitRequest(first.next_offset, first.deadline))
            service.put_request(late[0])

    disk.before["sync"] = while_it_syncs
    service.put_request(first)
    service.run_once()
    answered = [first.future.done(), late[0].future.done()]
    service.run_once()

    assert [True, False] == answered
    assert PutMessageStatus.PUT_OK is late[0].future.result(0)


def test_a_request_is_looked_at_in_one_step_only(
    queue: MappedFileQueue, clock: FakeClock, disk: FaultyFileSystem
) -> None:
    service = GroupCommitService(queue, clock)
    beyond = GroupCommitRequest(append(queue, 100) + 1, clock.monotonic() + 5)
    service.put_request(beyond)
    service.run_once()
    before = clock.seconds
    service.run_once()

    assert PutMessageStatus.FLUSH_DISK_TIMEOUT is beyond.future.result(0)
    assert (before, 1) == (clock.seconds, disk.count("sync"))


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_a_record_behind_a_file_border_takes_two_syncs(
    queue: MappedFileQueue, clock: FakeClock, disk: FaultyFileSystem, release: str
) -> None:
    service = GroupCommitService(queue, clock, release)
    append(queue, SIZE - 10)
    waiting = request(queue, clock)
    service.put_request(waiting)
    service.run_once()

    assert waiting.future.result(0) is PutMessageStatus.PUT_OK
    assert disk.count("sync") == 2


@pytest.mark.parametrize(
    ("release", "status"),
    [
        ("4.3", PutMessageStatus.FLUSH_DISK_TIMEOUT),
        ("4.9", PutMessageStatus.FLUSH_DISK_TIMEOUT),
        ("5.3", PutMessageStatus.PUT_OK),
    ],
)
def test_a_record_two_borders_away_is_reached_from_5_2_on(
    queue: MappedFileQueue, clock: FakeClock, release: str, status: PutMessageStatus
) -> None:
    service = GroupCommitService(queue, clock, release)
    append(queue, 2 * SIZE)
    waiting = request(queue, clock)
    service.put_request(waiting)
    service.run_once()

    assert waiting.future.result(0) is status


def test_release_5_3_waits_a_second_for_a_commit(buffered: MappedFileQueue, clock: FakeClock) -> None:
    service = GroupCommitService(buffered, clock)
    waiting = request(buffered, clock)
    service.put_request(waiting)
    service.run_once()

    assert waiting.future.result(0) is PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert clock.slept == [0.001] * 999


def test_a_commit_in_time_answers_the_request(
    buffered: MappedFileQueue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = GroupCommitService(buffered, clock)
    waiting = request(buffered, clock)
    service.put_request(waiting)

    def others_commit(seconds: float) -> None:
        clock.advance(seconds)
        if clock.seconds > 0.2:
            buffered.commit(0)

    monkeypatch.setattr(clock, "sleep", others_commit)
    service.run_once()

    assert waiting.future.result(0) is PutMessageStatus.PUT_OK
    assert 0.2 < clock.seconds < 0.3


def test_those_who_do_not_wait_are_flushed_too(queue: MappedFileQueue, clock: FakeClock) -> None:
    append(queue, 10)
    GroupCommitService(queue, clock).run_once()

    assert queue.flushed_where == 10


def test_a_group_commit_moves_the_checkpoint(queue: MappedFileQueue, clock: FakeClock) -> None:
    told: list[int] = []
    service = GroupCommitService(queue, clock, "5.3", told.append)
    service.put_request(GroupCommitRequest(append(queue, 10, time=44), 5))
    service.run_once()

    assert told == [44]


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


def test_the_first_answer_counts(queue: MappedFileQueue, clock: FakeClock) -> None:
    waiting = request(queue, clock)
    waiting.answer(PutMessageStatus.FLUSH_DISK_TIMEOUT)
    waiting.answer(PutMessageStatus.PUT_OK)

    assert waiting.future.result(0) is PutMessageStatus.FLUSH_DISK_TIMEOUT


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
    queue = MappedFileQueue(SegmentPaths((tmp_path / "commitlog",)), SIZE, disk, clock)
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
    queue = MappedFileQueue(SegmentPaths((tmp_path / "commitlog",)), SIZE, disk, clock)
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
