# SPDX-License-Identifier: Apache-2.0
"""Segments that are allocated in advance, and write buffers that are borrowed."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from store_core.files.machine import SystemClock
from store_core.files.mapped_file import TransientStorePool, anonymous_memory, file_name_of
from store_core.files.mapped_file_queue import AllocateMappedFileService, MappedFileQueue
from store_core.files.segment_listing import SegmentPaths

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.store_core.fakes import FakeClock, FaultyFileSystem


SIZE = 1024


@pytest.fixture
def service(disk: FaultyFileSystem, clock: FakeClock) -> AllocateMappedFileService:
    """Return a service that runs during the wait of the append."""
    made = AllocateMappedFileService(disk, clock)
    clock.while_waiting = made.run_once
    return made


@pytest.fixture
def at(tmp_path: Path) -> Callable[[int], Path]:
    return lambda index: tmp_path / "commitlog" / file_name_of(index * SIZE)


def names(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.iterdir())


def test_making_a_file_also_makes_the_next(
    service: AllocateMappedFileService, at: Callable[[int], Path], tmp_path: Path
) -> None:
    file = service.put_request_and_return_mapped_file(at(0), at(1), SIZE)

    assert file.path == at(0)
    assert names(tmp_path / "commitlog") == [0, SIZE]
    assert list(service._requests) == [at(1)]


def test_a_file_made_ahead_is_given_without_waiting(
    service: AllocateMappedFileService, at: Callable[[int], Path], clock: FakeClock, disk: FaultyFileSystem
) -> None:
    service.put_request_and_return_mapped_file(at(0), at(1), SIZE)
    clock.while_waiting = None
    opened = disk.count("open")

    assert service.put_request_and_return_mapped_file(at(1), at(2), SIZE).path == at(1)
    assert disk.count("open") == opened
    assert clock.seconds == 0.0


def test_a_clean_shutdown_deletes_what_was_not_used(
    service: AllocateMappedFileService, at: Callable[[int], Path], tmp_path: Path
) -> None:
    service.put_request_and_return_mapped_file(at(0), at(1), SIZE)

    assert service.shutdown()
    assert names(tmp_path / "commitlog") == [0]
    assert not service._requests


def test_a_shutdown_spares_a_file_that_was_there_before(
    service: AllocateMappedFileService, at: Callable[[int], Path]
) -> None:
    at(1).parent.mkdir()
    at(1).write_bytes(b"old" + bytes(SIZE - 3))
    service.put_request_and_return_mapped_file(at(0), at(1), SIZE)
    service.shutdown()

    assert at(1).read_bytes()[:3] == b"old"


def test_an_append_waits_five_seconds_and_a_late_file_serves_the_next(
    service: AllocateMappedFileService, at: Callable[[int], Path], clock: FakeClock
) -> None:
    clock.while_waiting = None
    with pytest.raises(TimeoutError, match="not made within 5 s"):
        service.put_request_and_return_mapped_file(at(0), at(1), SIZE)

    assert clock.seconds == 5.0
    service.run_once()
    assert service.put_request_and_return_mapped_file(at(0), at(1), SIZE).path == at(0)
    assert clock.seconds == 5.0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EMFILE, errno.EIO])
def test_a_failure_is_told_at_once_and_the_next_append_tries_anew(
    service: AllocateMappedFileService, at: Callable[[int], Path], disk: FaultyFileSystem, clock: FakeClock, code: int
) -> None:
    disk.fail("open", code, times=2)
    with pytest.raises(OSError, match="Errno") as caught:
        service.put_request_and_return_mapped_file(at(0), at(1), SIZE)

    assert caught.value.errno == code
    assert clock.seconds == 0.0
    assert service.put_request_and_return_mapped_file(at(0), at(1), SIZE).path == at(0)


def test_a_next_file_that_could_not_be_made_ahead_is_made_when_it_is_needed(
    service: AllocateMappedFileService, at: Callable[[int], Path], disk: FaultyFileSystem
) -> None:
    disk.fail("open", errno.ENOSPC, after=1)

    assert service.put_request_and_return_mapped_file(at(0), at(1), SIZE).path == at(0)
    assert not at(1).exists()
    assert service.put_request_and_return_mapped_file(at(1), at(2), SIZE).path == at(1)


@pytest.mark.parametrize("reserve", [False, True])
def test_blocks_are_taken_at_once_where_that_is_asked_for(
    at: Callable[[int], Path], disk: FaultyFileSystem, clock: FakeClock, reserve: bool
) -> None:
    service = AllocateMappedFileService(disk, clock, reserve=reserve)
    clock.while_waiting = service.run_once
    service.put_request_and_return_mapped_file(at(0), at(1), SIZE)

    assert disk.count("reserve") == (2 if reserve else 0)


def test_files_get_buffers_while_there_are_any(
    at: Callable[[int], Path], disk: FaultyFileSystem, clock: FakeClock
) -> None:
    pool = TransientStorePool(1, SIZE)
    service = AllocateMappedFileService(disk, clock, pool)
    clock.while_waiting = service.run_once
    first = service.put_request_and_return_mapped_file(at(0), at(1), SIZE)
    second = service.put_request_and_return_mapped_file(at(1), at(2), SIZE)
    for file in (first, second):
        file.append(b"one")

    assert first.select(0) is None
    assert second.select(0) is not None


def test_failing_fast_refuses_a_file_without_a_buffer(
    at: Callable[[int], Path], disk: FaultyFileSystem, clock: FakeClock
) -> None:
    pool = TransientStorePool(2, SIZE)
    service = AllocateMappedFileService(disk, clock, pool, fail_fast_without_buffer=True)
    clock.while_waiting = service.run_once
    first = service.put_request_and_return_mapped_file(at(0), at(1), SIZE)
    service.put_request_and_return_mapped_file(at(1), at(2), SIZE)
    with pytest.raises(OSError, match="no buffer left") as caught:
        service.put_request_and_return_mapped_file(at(2), at(3), SIZE)

    assert caught.value.errno == errno.ENOBUFS
    first.append(bytes(SIZE))
    first.commit(0)
    assert service.put_request_and_return_mapped_file(at(2), at(3), SIZE).path == at(2)


def test_a_thread_makes_files_while_appends_go_on(tmp_path: Path, disk: FaultyFileSystem) -> None:
    clock = SystemClock()
    service = AllocateMappedFileService(disk, clock)
    threads_before = set(threading.enumerate())
    service.start()
    queue = MappedFileQueue(SegmentPaths((tmp_path,)), SIZE, disk, service)
    try:
        for _ in range(20):
            file = queue.get_last_mapped_file()
            assert file is not None
            file.append(bytes(SIZE))
    finally:
        assert service.shutdown()

    assert names(tmp_path) == [index * SIZE for index in range(20)]
    assert not service.is_running
    assert not {thread for thread in set(threading.enumerate()) - threads_before if thread.name == service.service_name}


def test_who_waits_when_the_service_ends_is_told(
    service: AllocateMappedFileService, at: Callable[[int], Path], clock: FakeClock
) -> None:
    clock.while_waiting = service.finish
    with pytest.raises(OSError, match="given up at shutdown"):
        service.put_request_and_return_mapped_file(at(0), at(1), SIZE)


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])


def test_buffers_are_lent_until_none_is_left() -> None:
    pool = TransientStorePool(2, 100)
    lent = [pool.borrow() for _ in range(3)]

    assert [buffer is None for buffer in lent] == [False, False, True]
    assert pool.available_buffers == 0
    assert lent[0] is not None
    pool.give_back(lent[0])
    assert pool.borrow() is lent[0]


def test_a_pool_that_runs_low_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    pool = TransientStorePool(5, 10)
    for _ in range(4):
        pool.borrow()

    assert [record.args for record in caplog.records] == [(1, 5)]


def test_a_destroyed_pool_has_no_buffers() -> None:
    pool = TransientStorePool(2, 10)
    pool.destroy()

    assert pool.borrow() is None


def test_memory_is_used_only_where_it_is_touched() -> None:
    before = resident_pages()
    memory = anonymous_memory(1 << 30)
    memory[-1] = 1

    assert memory[1 << 29] == 0
    assert resident_pages() - before < 1000
