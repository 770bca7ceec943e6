# SPDX-License-Identifier: Apache-2.0
"""Background work is done, survives or tells its errors, and ends when asked to."""

from __future__ import annotations

import errno
import threading
from threading import Event

import pytest

from store_core.files import service_thread
from store_core.files.machine import SystemClock
from store_core.files.service_thread import ServiceThread, WorkerThread


class Counting(ServiceThread):
    """Counts its steps; each is announced, and may fail."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), self.note)
        self.steps = 0
        self.finished = 0
        self.stepped = threading.Semaphore(0)
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.failure: OSError | None = None
        self.noted: list[OSError] = []

    def note(self, error: OSError) -> None:
        self.noted.append(error)

    def pause(self) -> None:
        self.wait_for_running(None)

    def run_once(self) -> None:
        self.steps += 1
        self.stepped.release()
        self.may_go_on.wait(60)
        if self.failure is not None:
            raise self.failure

    def finish(self) -> None:
        self.finished += 1


def test_each_wakeup_is_a_step_until_the_end() -> None:
    service = Counting()
    service.start()
    service.start()
    for _ in range(3):
        service.wakeup()
        assert service.stepped.acquire(timeout=60)

    assert service.is_running
    assert service.shutdown()
    assert not service.is_running
    assert service.steps >= 3
    assert service.finished == 1
    assert "Counting" not in [thread.name for thread in threading.enumerate()]


def test_a_service_that_was_never_started_still_does_what_is_left() -> None:
    service = Counting()

    assert service.shutdown()
    assert (service.steps, service.finished) == (0, 1)


def test_a_service_can_start_again() -> None:
    service = Counting()
    for _ in range(2):
        service.start()
        service.wakeup()
        assert service.stepped.acquire(timeout=60)
        assert service.shutdown()

    assert service.finished == 2


def test_what_the_system_refuses_is_told_and_the_next_step_comes() -> None:
    service = Counting()
    service.failure = OSError(errno.EIO, "broken")
    service.start()
    for _ in range(2):
        service.wakeup()
        assert service.stepped.acquire(timeout=60)
    service.shutdown()

    assert service.error is service.failure
    assert len(service.noted) >= 2


def test_the_same_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    service = Counting()
    service.failure = OSError(errno.EIO, "broken")
    for _ in range(3):
        service.step()

    assert [record.getMessage() for record in caplog.records] == ["Counting: [Errno 5] broken"]


def test_a_step_that_hangs_does_not_hang_the_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_thread, "_JOIN_SECONDS", 0.01)
    service = Counting()
    service.may_go_on.clear()
    service.start()
    service.wakeup()
    assert service.stepped.acquire(timeout=60)

    assert not service.shutdown()
    assert service.finished == 0

    monkeypatch.setattr(service_thread, "_JOIN_SECONDS", 60)
    service.may_go_on.set()
    assert service.shutdown()
    assert service.finished == 1


def test_all_work_is_done_in_its_order() -> None:
    thread, done = WorkerThread("test", 2), list[int]()
    for number in range(50):
        thread.take(done.append, number)
    thread.wait()

    assert done == list(range(50))
    thread.close()


def fail() -> None:
    raise ValueError("no")


def test_what_fails_is_raised_once_by_the_next_wait() -> None:
    thread, done = WorkerThread("test", 2), list[int]()
    thread.take(fail)
    with pytest.raises(ValueError, match="no"):
        thread.wait()
    thread.take(done.append, 1)
    thread.wait()

    assert done == [1]
    thread.close()


def test_who_brings_too_much_waits_for_what_was_first() -> None:
    thread, may_go_on, done = WorkerThread("test", 1), Event(), list[int]()
    thread.take(may_go_on.wait)
    thread.take(done.append, 1)
    assert done == []
    may_go_on.set()
    thread.take(done.append, 2)
    thread.close()

    assert done == [1, 2]
