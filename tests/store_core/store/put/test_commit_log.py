# SPDX-License-Identifier: Apache-2.0
"""Appending one message or one batch to the log: what is added to it, and why it is refused."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from store_core.errors import InvalidOptionError
from store_core.format.message import AppendMessageResult, AppendMessageStatus, Message, PutMessageStatus
from store_core.format.record.decode import client_batch
from tests.store_core.store.logs import FILE_SIZE, Log, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from store_core.store.put.put_preparation import PutMessageResult

HEAD = 91 + len("orders")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def appended(result: PutMessageResult) -> AppendMessageResult:
    assert result.append_message_result is not None
    return result.append_message_result


# ---- what is added to a message


def test_store_time_is_that_inside_the_lock_and_born_time_that_of_the_call(log: Log) -> None:
    clock = log.clock

    class Ticking:
        times = iter([clock.wall_ms, clock.wall_ms + 7, clock.wall_ms + 9])

    clock.now_ms = lambda: next(Ticking.times)  # type: ignore[method-assign]  # three readings of the clock
    result = log.put_message(message())

    stored = log.messages[0]
    assert (clock.wall_ms, clock.wall_ms + 7) == (stored.born_timestamp, stored.store_timestamp)
    assert (clock.wall_ms + 7, 2) == (appended(result).store_timestamp, appended(result).pagecache_rt)


def test_clock_that_steps_back_is_stored_as_it_is(log: Log) -> None:
    log.put_message(message())
    log.clock.wall_ms -= 60_000
    log.put_message(message())

    first, second = log.messages
    assert 60_000 == first.store_timestamp - second.store_timestamp


def test_file_store_time_is_that_of_its_last_record(log: Log) -> None:
    log.put_message(message())
    log.clock.wall_ms += 5
    log.put_message(message())

    assert log.clock.wall_ms == log.log.mapped_file_queue.mapped_files[0].store_timestamp


# ---- batches


def test_members_keep_the_time_from_before_the_lock_up_to_4_9_0(tmp_path: Path) -> None:
    log = Log(tmp_path, {"release": "4.3"})
    times = iter([1000, 1007, 1007])
    log.clock.now_ms = lambda: next(times)  # type: ignore[method-assign]  # three readings of the clock
    result = log.put_messages(client_batch([message()]))

    assert (1000, 1007) == (log.messages[0].store_timestamp, appended(result).store_timestamp)


# ---- refusals, which leave no trace

ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("refused", "status"),
    [
        (message(b"x" * 2000), ILLEGAL),
        (message(properties_string="x" * 32768), PutMessageStatus.PROPERTIES_SIZE_EXCEEDED),
        (message(topic="é" * 64), ILLEGAL),
        (message(sys_flag=0x10), ILLEGAL),
        (message(sys_flag=0x80, properties={"INNER_NUM": "many"}), ILLEGAL),
        (message(sys_flag=0x80, properties={"INNER_NUM": "40000"}), ILLEGAL),
    ],
)
def test_illegal_message_leaves_no_trace(tmp_path: Path, refused: Message, status: PutMessageStatus) -> None:
    log = Log(tmp_path, {"max_message_size": 1999})
    log.put_message(message())
    before, files = log.positions, log.files
    result = log.put_message(refused)

    assert (status, False, None) == (result.status, result.is_ok, result.append_message_result)
    assert (before, files) == (log.positions, log.files)


def test_message_larger_than_a_file_is_refused_before_it_burns_two(log: Log) -> None:
    fits = message(b"x" * (FILE_SIZE - HEAD - 8))

    assert log.put_message(fits).is_ok
    assert ILLEGAL is log.put_message(message(b"x" * (FILE_SIZE - HEAD - 7))).status
    assert [f"{0:020d}"] == list(log.files)


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
@pytest.mark.parametrize(
    "refused",
    [
        message(sys_flag=4),
        message(sys_flag=8),
        message(delay_level=1),
        message(properties={"DELAY": "soon"}),
        message(None),  # type: ignore[arg-type]  # a body that is missing
        message(b"\0\0\0"),
        client_batch([message(b"x" * 3000)]),
        client_batch([message(b"x" * 1500) for _ in range(3)]),
    ],
)
def test_illegal_batch_leaves_no_trace(tmp_path: Path, release: str, refused: Message) -> None:
    log = Log(tmp_path, {"max_message_size": 1999, "release": release})
    log.put_message(message())
    before, files = log.positions, log.files
    result = log.put_messages(refused)

    assert (ILLEGAL, None) == (result.status, result.append_message_result)
    assert (before, files) == (log.positions, log.files)


@pytest.mark.parametrize(
    ("refused", "append_status"),
    [
        (message(b"x" * 2000), AppendMessageStatus.MESSAGE_SIZE_EXCEEDED),
        (message(properties_string="x" * 32768), AppendMessageStatus.PROPERTIES_SIZE_EXCEEDED),
    ],
)
def test_release_4_3_refuses_with_an_append_result(
    tmp_path: Path, refused: Message, append_status: AppendMessageStatus
) -> None:
    log = Log(tmp_path, {"max_message_size": 1999, "release": "4.3"})
    result = log.put_message(refused)

    assert (ILLEGAL, AppendMessageResult(append_status)) == (result.status, result.append_message_result)


def test_host_that_is_none_raises_and_leaves_no_trace(log: Log) -> None:
    log.put_message(message())
    before = log.positions

    with pytest.raises(InvalidOptionError, match="a host needs an IP address"):
        log.put_message(message(born_host=("example.org", 1)))
    assert before == log.positions


# ---- what the system refuses


def test_file_that_can_not_be_made_is_its_own_status(log: Log) -> None:
    log.disk.fail("open", errno.EACCES)
    result = log.put_message(message())

    assert (PutMessageStatus.CREATE_MAPPED_FILE_FAILED, None) == (result.status, result.append_message_result)
    assert log.put_message(message()).is_ok
    assert 1 == log.log.queue_offsets.next_offset("orders", 0)


def test_second_file_that_can_not_be_made_leaves_the_first_closed(log: Log) -> None:
    log.put_message(message(b"x" * 3000))
    log.disk.fail("open", errno.ENOSPC)
    result = log.put_message(message(b"y" * 3000))

    assert PutMessageStatus.CREATE_MAPPED_FILE_FAILED is result.status
    assert (AppendMessageStatus.END_OF_FILE, False) == (appended(result).status, result.is_ok)
    assert FILE_SIZE - 3000 - HEAD == appended(result).wrote_bytes
    assert 1 == log.log.queue_offsets.next_offset("orders", 0)
    assert FILE_SIZE == appended(log.put_message(message(b"y" * 3000))).wrote_offset


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_write_that_fails_leaves_positions_and_table(log: Log, code: int) -> None:
    log.put_message(message())
    before = log.positions
    log.disk.fail("write", code)
    result = log.put_message(message(b"lost"))

    assert (PutMessageStatus.UNKNOWN_ERROR, False) == (result.status, result.is_ok)
    assert AppendMessageStatus.UNKNOWN_ERROR is appended(result).status
    assert before == log.positions
    log.put_message(message(b"next"))
    assert [b"body", b"next"] == [stored.body for stored in log.messages]


# ---- the lock


def test_order_of_indexes_is_the_order_of_the_log(tmp_path: Path) -> None:
    log = Log(tmp_path, {"mapped_file_size_commit_log": 1 << 16})
    barrier = threading.Barrier(4)

    def work(name: int) -> None:
        barrier.wait()
        for number in range(50):
            log.put_message(message(b"%d-%d" % (name, number)))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(range(200)) == [stored.queue_offset for stored in log.messages]
    assert 200 == len({stored.body for stored in log.messages})
    for name in range(4):
        own = [stored.body for stored in log.messages if stored.body.startswith(b"%d-" % name)]
        assert [b"%d-%d" % (name, number) for number in range(50)] == own


class SpiedLock:
    """The put lock, and who holds it."""

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock
        self.is_held = False

    def __enter__(self) -> None:
        self._lock.__enter__()
        self.is_held = True

    def __exit__(self, *_: object) -> None:
        self.is_held = False
        self._lock.__exit__(None, None, None)


@pytest.mark.parametrize("many", [False, True])
def test_index_record_and_next_index_are_taken_in_one_turn_of_the_lock(log: Log, many: bool) -> None:
    appender: Any = log.log._appender
    lock = SpiedLock(appender._lock)
    appender._lock = lock
    seen: list[tuple[str, bool]] = []
    offsets = log.log.queue_offsets
    for name in ("next_offsets", "advance_all") if many else ("next_offset", "advance"):
        real = getattr(offsets, name)

        def spy(*arguments: Any, name: str = name, real: Callable[..., object] = real) -> object:  # noqa: ANN401 -- of either method
            seen.append((name, lock.is_held))
            return real(*arguments)

        setattr(offsets, name, spy)
    log.disk.before["write"] = lambda: seen.append(("write", lock.is_held))
    if many:
        log.log.append_batch(pa.table({"topic": ["orders"], "body": [b"x"]}))
    else:
        log.put_message(message())

    assert {name for name, _ in seen} > {"write"}
    assert all(is_held for _, is_held in seen)
    assert not lock.is_held


@pytest.mark.parametrize(("seconds", "is_told"), [(0.5, False), (0.501, True)])
def test_append_of_over_half_a_second_is_logged(
    log: Log, caplog: pytest.LogCaptureFixture, seconds: float, is_told: bool
) -> None:
    log.disk.before["grow"] = lambda: log.clock.advance(seconds)
    log.put_message(message())

    assert is_told is ("held the lock for" in caplog.text)


# ---- counting, limits that change


def test_puts_are_counted_by_topic(log: Log) -> None:
    log.put_message(message())
    log.put_messages(client_batch([message(topic="b"), message(topic="b")]))
    log.put_message(message(b"x" * FILE_SIZE))

    assert {"orders": 1, "b": 2} == log.log.stats.put_message_topic_times
    assert {"orders": HEAD + 4, "b": 2 * 96} == log.log.stats.put_message_topic_size
    assert (3, HEAD + 4 + 192) == (log.log.stats.put_message_times_total, log.log.stats.put_message_size_total)


def test_delayed_messages_of_4x_count_for_the_schedule_topic(tmp_path: Path) -> None:
    log = Log(tmp_path, {"release": "4.9"})
    log.put_message(message(delay_level=3, queue_id=7))

    stored = log.messages[0]
    assert ("SCHEDULE_TOPIC_XXXX", 2) == (stored.topic, stored.queue_id)
    assert {"REAL_TOPIC": "orders", "REAL_QID": "7", "DELAY": "3"} == stored.properties
    assert ["SCHEDULE_TOPIC_XXXX"] == list(log.log.stats.put_message_topic_times)
