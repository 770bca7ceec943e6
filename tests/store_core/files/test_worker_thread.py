# SPDX-License-Identifier: Apache-2.0
"""Background work is done in order; a failure is raised when more work is submitted, or waited for."""

from __future__ import annotations

from threading import Event

import pytest

from store_core.files.service_thread import WorkerThread


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
