# SPDX-License-Identifier: Apache-2.0
"""Opening, locking and closing a store."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from store_core import (
    DefaultMessageStore,
    InvalidOptionError,
    Message,
    MessageStoreConfig,
    PutMessageStatus,
    StoreLockedError,
    StoreNotFoundError,
)
from store_core.store.message_store_config import BrokerConfig
from tests.store_core.fakes import SteadyClock
from tests.store_core.store.logs import FILE_SIZE, config, message, messages_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.store.message_store_config import Release
    from tests.store_core.fakes import FaultyFileSystem

RELEASES: list[Release] = ["4.3", "4.9", "5.3"]


@pytest.fixture
def store(tmp_path: Path, disk: FaultyFileSystem) -> Iterator[DefaultMessageStore]:
    with DefaultMessageStore.open(tmp_path / "store", config(), file_system=disk) as opened:
        yield opened


def bodies(path: Path) -> list[bytes]:
    return [stored.body for stored in messages_of(path / "commitlog")]


# ---- a life


def test_a_record_is_viewed_at_its_place_with_its_size_and_nowhere_else(store: DefaultMessageStore) -> None:
    place = [store.put_message(message(body)).append_message_result for body in (b"one", b"two")][1]
    assert place is not None
    begin, size = place.wrote_offset, place.wrote_bytes
    found = store.select_one_message_by_offset(begin, size)

    assert found is not None
    assert (store.path / "commitlog" / f"{0:020d}").read_bytes()[begin : begin + size] == bytes(found)
    elsewhere = [
        (begin, size - 1),
        (begin, size + 1),
        (begin + 1, size),
        (begin + size, size),
        (-1, size),
        (10**9, size),
    ]
    assert {None} == {store.select_one_message_by_offset(*other) for other in elsewhere}


@pytest.mark.parametrize("release", RELEASES)
def test_clean_end_leaves_checkpoint_and_no_abort(tmp_path: Path, release: Release) -> None:
    with DefaultMessageStore.open(tmp_path, config(release=release), clock=SteadyClock()) as store:
        assert (tmp_path / "abort").read_text() == (str(os.getpid()) if release == "5.3" else "")
        store.put_message(message())

    left = {path.name for path in tmp_path.iterdir()}
    assert {"checkpoint", "commitlog", "consumequeue", "index", "lock"} | (
        {"abort.bak"} if release == "5.3" else set()
    ) == left
    assert SteadyClock.wall_ms.to_bytes(8) * 2 == (tmp_path / "checkpoint").read_bytes()[:16]
    with DefaultMessageStore.open(tmp_path, config(release=release)) as store:
        assert store.recovery_report.last_exit_ok


def test_file_made_ahead_is_deleted_at_the_end(tmp_path: Path) -> None:
    with DefaultMessageStore.open(tmp_path, config()) as store:
        store.put_message(message())

    assert [f"{0:020d}"] == [path.name for path in (tmp_path / "commitlog").iterdir()]


def test_closed_store_takes_no_messages(store: DefaultMessageStore) -> None:
    store.close()
    table = pa.table({"topic": ["a"], "body": [b"b"]})

    refused = PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert refused is store.put_message(message()).status
    assert refused is store.put_messages([message()]).status
    assert refused is store.append_batch(table).status
    assert refused is store.async_put_message(message()).result(0).status


def test_store_knows_its_bounds(store: DefaultMessageStore) -> None:
    assert (-1, 0) == (store.min_physical_offset, store.max_physical_offset)
    store.put_message(message(b"x" * 3000))
    store.put_message(message(b"x" * 3000))

    assert (0, FILE_SIZE + 3097) == (store.min_physical_offset, store.max_physical_offset)
    assert (2, 0) == (store.get_max_offset_in_queue("orders", 0), store.get_max_offset_in_queue("orders", 1))


def test_messages_without_a_host_have_the_brokers(tmp_path: Path) -> None:
    broker = BrokerConfig(broker_ip1="2001:db8::1", listen_port=1)
    with DefaultMessageStore.open(tmp_path, config(), broker=broker) as store:
        store.put_message(message())
        store.append_batch(pa.table({"topic": ["a"], "body": [b"b"]}))

    assert ["[2001:db8::1]:1"] * 2 == [stored.store_host for stored in messages_of(tmp_path / "commitlog")]


def test_all_ways_to_put_agree(store: DefaultMessageStore, tmp_path: Path) -> None:
    store.put_message(message(b"0"))
    store.async_put_message(message(b"1")).result(5)
    store.put_messages([message(b"2"), message(b"3")])
    store.async_put_messages([message(b"4")]).result(5)
    store.append_batch(pa.table({"topic": ["orders"] * 2, "body": [b"5", b"6"]}))
    store.append_batch(store.encode_messages(pa.table({"topic": ["orders"], "body": [b"7"]})))

    stored = messages_of(tmp_path / "store" / "commitlog")
    assert list(range(8)) == [each.queue_offset for each in stored]
    assert [b"%d" % number for number in range(8)] == [each.body for each in stored]


def test_batch_of_several_topics_is_refused_by_name(store: DefaultMessageStore) -> None:
    with pytest.raises(InvalidOptionError, match="message 1 of a batch has another topic"):
        store.put_messages([message(), message(topic="b")])


@pytest.mark.parametrize(("hooks", "topic", "expected"), [(True, "t" * 128, 0), (False, "t" * 128, 1), (True, "t", 1)])
def test_bulk_is_checked_like_single_messages(tmp_path: Path, hooks: bool, topic: str, expected: int) -> None:
    with DefaultMessageStore.open(tmp_path, config(), broker_hooks=hooks) as store:
        table = pa.table({"topic": [topic], "body": [b"b"]})

        assert expected == store.append_batch(table).msg_num
        assert expected == store.append_batch(store.encode_messages(table)).msg_num


@pytest.mark.parametrize(("hooks", "topic"), [(True, "SCHEDULE_TOPIC_XXXX"), (False, "orders")])
def test_bulk_delays_as_the_broker_does(tmp_path: Path, hooks: bool, topic: str) -> None:
    with DefaultMessageStore.open(tmp_path, config(), broker_hooks=hooks) as store:
        store.append_batch(pa.table({"topic": ["orders"], "body": [b"b"], "delay_level": [3]}))
        store.put_message(message(delay_level=3))

    assert [topic] * 2 == [stored.topic for stored in messages_of(tmp_path / "commitlog")]


# ---- one writer


def test_store_has_one_writer(store: DefaultMessageStore) -> None:
    with pytest.raises(StoreLockedError, match="a store has one writer"):
        DefaultMessageStore.open(store.path, config())
    store.close()
    DefaultMessageStore.open(store.path, config()).close()


def test_opening_that_fails_lets_go_of_the_lock(tmp_path: Path, disk: FaultyFileSystem) -> None:
    DefaultMessageStore.open(tmp_path, config()).close()
    disk.fail("open", errno.EMFILE, after=1)
    with pytest.raises(OSError, match="Too many open files"):
        DefaultMessageStore.open(tmp_path, config(), file_system=disk)

    DefaultMessageStore.open(tmp_path, config()).close()


# ---- reading only


def test_read_only_opening_touches_nothing(tmp_path: Path) -> None:
    with DefaultMessageStore.open(tmp_path, config()) as writer:
        writer.put_message(message())
        writer.dispatch_now()  # which makes directories
        before = {path.name for path in tmp_path.iterdir()}
        with DefaultMessageStore.open(tmp_path, config(), read_only=True) as reader:
            assert writer.max_physical_offset == reader.max_physical_offset
            assert PutMessageStatus.SERVICE_NOT_AVAILABLE is reader.put_message(message()).status
        assert before == {path.name for path in tmp_path.iterdir()}
        assert not reader.recovery_report.last_exit_ok


def test_read_only_opening_of_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match=r"there is no store at .*: give the broker's storePathRootDir"):
        DefaultMessageStore.open(tmp_path / "nowhere", read_only=True)
    assert not (tmp_path / "nowhere").exists()


def test_read_only_opening_of_what_is_no_store_is_named(tmp_path: Path) -> None:
    """It would look like an empty store."""
    (tmp_path / "other").touch()
    with pytest.raises(StoreNotFoundError, match="nothing to read: no segment file in"):
        DefaultMessageStore.open(tmp_path, read_only=True)


# ---- what the system refuses


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_full_disk_is_told_and_passes(flush: str, tmp_path: Path, disk: FaultyFileSystem) -> None:
    with DefaultMessageStore.open(tmp_path, config(flush_disk_type=flush), file_system=disk) as store:
        disk.free_blocks = 0
        assert PutMessageStatus.UNKNOWN_ERROR is store.put_message(message()).status
        disk.heal()

        assert PutMessageStatus.PUT_OK is store.put_message(message()).status
        store.dispatch_now()
        assert 1 == store.get_max_offset_in_queue("orders", 0)


def test_a_flush_that_found_no_room_ends_the_writing_until_the_store_is_opened_again(
    tmp_path: Path, disk: FaultyFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ counts the bytes as flushed and goes on; what the system dropped is then lost without a word."""
    synchronous = config(flush_disk_type="SYNC_FLUSH")
    with DefaultMessageStore.open(tmp_path, synchronous, file_system=disk) as store:
        disk.fail("sync", errno.ENOSPC)
        assert PutMessageStatus.FLUSH_DISK_TIMEOUT is store.put_message(message(b"unsure")).status
        disk.heal()
        assert PutMessageStatus.SERVICE_NOT_AVAILABLE is store.put_message(message()).status
    assert "Make room, or mend the disk, then close the store and open it again" in caplog.text

    with DefaultMessageStore.open(tmp_path, synchronous, file_system=disk) as store:
        assert PutMessageStatus.PUT_OK is store.put_message(message(b"next")).status
    assert [b"unsure", b"next"] == bodies(tmp_path)


def test_a_failed_sync_of_the_log_s_directory_for_the_index_ends_the_writing(
    tmp_path: Path, disk: FaultyFileSystem
) -> None:
    few = config(flush_disk_type="SYNC_FLUSH", max_index_num=4)
    store = DefaultMessageStore.open(tmp_path, few, file_system=disk)
    assert store.put_message(message()).is_ok  # the log's first file is in its directory

    def fail_for_the_log() -> None:
        if disk.calls[-1] == ("sync_directory", "commitlog"):
            raise OSError(errno.EIO, "Input/output error")

    disk.before["sync_directory"] = fail_for_the_log
    for number in range(6):  # more than an index file holds
        store.put_message(message(keys=f"key-{number}"))
    store.dispatch_now()
    disk.before.clear()
    refused = store.put_message(message())
    store.close()

    assert ("sync_directory", "commitlog") in disk.calls
    assert PutMessageStatus.SERVICE_NOT_AVAILABLE is refused.status
    assert (tmp_path / "abort").exists()


def test_page_cache_is_busy_between_two_borders(store: DefaultMessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_700_000_000_000
    monkeypatch.setattr(store, "now_ms", lambda: now)
    appender = store.commit_log._appender
    answers = []
    for held in (0, 1000, 1001, 9_999_999, 10_000_000):
        monkeypatch.setattr(appender, "begin_time_in_lock", now - held)
        answers.append(store.is_os_page_cache_busy)
    monkeypatch.setattr(appender, "begin_time_in_lock", 0)

    assert [False, False, True, True, False] == answers
    assert not store.is_os_page_cache_busy


# ---- what is found


def test_blank_record_at_the_end_is_written_anew(tmp_path: Path) -> None:
    with DefaultMessageStore.open(tmp_path, config()) as store:
        store.put_message(message(b"x" * 3000))
        store.put_message(message(b"y" * 3000))
    (tmp_path / "commitlog" / f"{FILE_SIZE:020d}").unlink()
    with DefaultMessageStore.open(tmp_path, config()) as store:
        assert 3097 == store.max_physical_offset
        store.put_message(message(b"z"))

    assert [b"x" * 3000, b"z"] == bodies(tmp_path)


@pytest.mark.parametrize("rounds", [1, 40])
def test_light_queues_and_inner_batches_go_on_in_whatever_file_they_are(tmp_path: Path, rounds: int) -> None:
    settings: dict[str, Any] = {"enable_lmq": True, "enable_multi_dispatch": True}
    inner = Message("bq", b"", sys_flag=0xC0, properties={"INNER_NUM": "3"})
    with DefaultMessageStore.open(tmp_path, config(**settings), batch_topics=["bq"]) as store:
        for _ in range(rounds):
            for names in ("%LMQ%a", "%LMQ%a,%LMQ%b"):
                store.put_message(message(properties={"INNER_MULTI_DISPATCH": names}))
            assert store.put_message(inner).is_ok
        assert (store.max_physical_offset > FILE_SIZE) is (rounds > 1)
    with DefaultMessageStore.open(tmp_path, config(**settings), batch_topics=["bq"]) as store:
        assert {"%LMQ%a": 2 * rounds, "%LMQ%b": rounds} == store.commit_log.queue_offsets.lmq_queues()
        assert 3 * rounds == store.get_max_offset_in_queue("bq", 0)


def test_write_buffers_hold_back_what_is_not_committed(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"transient_store_pool_enable": True, "transient_store_pool_size": 2}
    with DefaultMessageStore.open(tmp_path, config(**settings)) as store:
        results = [store.put_message(message(bytes([number]) * 1000)) for number in range(10)]
        assert store.max_physical_offset <= store.commit_log.mapped_file_queue.max_wrote_position

    assert all(result.is_ok for result in results)
    assert [bytes([number]) * 1000 for number in range(10)] == bodies(tmp_path)


def test_log_may_lie_in_several_directories(tmp_path: Path) -> None:
    paths = f"{tmp_path}/one,{tmp_path}/two"
    with DefaultMessageStore.open(tmp_path / "store", config(store_path_commit_log=paths)) as store:
        for number in range(10):
            store.put_message(message(bytes([number]) * 1000))
    with DefaultMessageStore.open(tmp_path / "store", config(store_path_commit_log=paths)) as store:
        assert (4, 3 * FILE_SIZE + 1097) == (store.recovery_report.files, store.max_physical_offset)

    assert (2, 2) == (len(list((tmp_path / "one").iterdir())), len(list((tmp_path / "two").iterdir())))


def test_empty_log_is_opened(tmp_path: Path) -> None:
    DefaultMessageStore.open(tmp_path, config()).close()
    with DefaultMessageStore.open(tmp_path, config()) as store:
        assert (0, None) == (store.recovery_report.files, store.recovery_report.reason)
        assert np.array_equal([0], store.append_batch(pa.table({"topic": ["a"], "body": [b""]})).physical_offsets)


def test_a_store_that_cleans_deletes_old_segments_and_what_pointed_at_them(
    tmp_path: Path, disk: FaultyFileSystem
) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=20 * 8)
    with DefaultMessageStore.open(tmp_path, config, cleans=True, file_system=disk) as store:
        for number in range(60):
            assert store.put_message(Message(topic="t", body=bytes(300), keys=[f"k{number}"])).is_ok
        store.dispatch_now()
        first = store.min_physical_offset
        for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
            os.utime(path, (0, 0))
        store.clean_services.execute_delete_files_manually()
        store.clean_services.run_once()
        assert first == 0
        assert store.min_physical_offset == 2 * 4096
        start = store.get_min_offset_in_queue("t", 0)
        assert start > 0
        result = store.get_message("g", "t", 0, start, 1)
        assert result is not None
        assert result.messages[0].physical_offset >= 2 * 4096


def test_a_store_keeps_what_is_old_unless_it_is_told_to_clean(tmp_path: Path) -> None:
    with DefaultMessageStore.open(tmp_path, MessageStoreConfig(mapped_file_size_commit_log=4096)) as store:
        assert not store.clean_services.commit_log_service.is_running
