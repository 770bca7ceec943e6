# SPDX-License-Identifier: Apache-2.0
"""What a put waits for: the disk, the replicas, or neither."""

from __future__ import annotations

import errno
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from store_core.format.message import PutMessageStatus
from store_core.format.record.decode import client_batch
from store_core.store.message_store_config import BrokerConfig
from store_core.store.put.commit_log import uses_pool
from store_core.store.put.put_preparation import ALL_IN_SYNC, PutMessageResult, ReplicaService, settle, wait_for
from store_core.store.store_state import StoreCheckpoint
from tests.store_core.fakes import FaultyFileSystem
from tests.store_core.store.logs import Log, message

if TYPE_CHECKING:
    from pathlib import Path

OK = PutMessageStatus.PUT_OK
SYNC: dict[str, Any] = {"flush_disk_type": "SYNC_FLUSH"}
MASTER: dict[str, Any] = {"broker_role": "SYNC_MASTER"}
UNWAITED: dict[str, Any] = {"properties": {"WAIT": "false"}}


class StubReplicas(ReplicaService):
    """Replicas with given answers."""

    def __init__(self, answer: PutMessageStatus | None = OK, in_sync: int = 3, alive: int = 3) -> None:
        self.answer = answer
        self.in_sync = in_sync
        self.alive = alive
        self.slave_ok = True
        self.asked: list[tuple[int, int, int]] = []
        self.futures: list[Future[PutMessageStatus]] = []

    def in_sync_replicas(self, offset: int) -> int:
        assert offset >= 0
        return self.in_sync

    def alive_replicas(self) -> int:
        return self.alive

    def is_slave_ok(self, offset: int) -> bool:
        assert offset > 0
        return self.slave_ok

    def replicate(self, next_offset: int, acknowledgements: int, timeout_ms: int) -> Future[PutMessageStatus]:
        self.asked.append((next_offset, acknowledgements, timeout_ms))
        future: Future[PutMessageStatus] = Future()
        if self.answer is not None:
            future.set_result(self.answer)
        self.futures.append(future)
        return future


def replicated(tmp_path: Path, replicas: StubReplicas, broker: BrokerConfig | None = None, **settings: Any) -> Log:  # noqa: ANN401
    return Log(tmp_path, MASTER | settings, {"replicas": replicas, "broker": broker})


# ---- the disk


def test_synchronous_put_is_answered_when_its_bytes_are_on_disk(tmp_path: Path) -> None:
    log = Log(tmp_path, SYNC)
    future = log.put_later(message())
    assert not future.done()
    log.flush()

    result = future.result(0)
    assert (OK, True) == (result.status, result.is_ok)
    assert log.log.max_offset == log.log.flushed_where
    assert log.disk.count("sync") > 0


def test_one_flush_answers_all_that_wait(tmp_path: Path) -> None:
    log = Log(tmp_path, SYNC)
    futures = [log.put_later(message()) for _ in range(5)]
    futures.append(log.put_batch_later(client_batch([message(), message()])))
    log.flush()

    assert {OK} == {future.result(0).status for future in futures}
    assert 1 == log.disk.count("sync")


def test_late_flush_keeps_the_message(tmp_path: Path) -> None:
    log = Log(tmp_path, SYNC)
    future = log.put_later(message())
    log.clock.advance(5.001)
    log.log.flusher._watcher.run_once()

    result = future.result(0)
    assert (PutMessageStatus.FLUSH_DISK_TIMEOUT, True) == (result.status, result.is_ok)
    assert 1 == len(log.messages)
    assert 1 == log.log.queue_offsets.next_offset("orders", 0)


def test_put_that_does_not_wait_only_wakes_the_service(tmp_path: Path) -> None:
    log = Log(tmp_path, SYNC)
    for unwaited in (message(**UNWAITED), message(wait_store_msg_ok=False), message(properties_string="WAIT\x01no")):
        assert log.put_later(unwaited).result(0).is_ok

    assert 0 == log.log.flushed_where
    log.flush()
    assert log.log.max_offset == log.log.flushed_where


@pytest.mark.parametrize(
    ("settings", "is_woken"),
    [
        ({}, False),
        ({"wake_flush_when_put_message": True}, True),
        ({"release": "4.3"}, True),
        ({"release": "4.9"}, True),
    ],
)
def test_asynchronous_put_wakes_the_flush_service_in_4x_or_if_told_to(
    tmp_path: Path, settings: dict[str, Any], is_woken: bool
) -> None:
    log = Log(tmp_path, settings)
    log.put_message(message())

    assert is_woken is log.log.flusher.flush_service._notified.is_set()


def test_put_into_a_write_buffer_wakes_the_commit_service(tmp_path: Path) -> None:
    log = Log(tmp_path, {"transient_store_pool_enable": True})
    log.put_message(message())

    assert log.log.flusher.commit_service._notified.is_set()
    assert not log.log.flusher.flush_service._notified.is_set()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"transient_store_pool_enable": True}, True),
        ({"transient_store_pool_enable": True, "broker_role": "SLAVE"}, False),
        ({"transient_store_pool_enable": True} | SYNC, True),
        ({"transient_store_pool_enable": True, "release": "4.9"} | SYNC, False),
        ({"transient_store_pool_enable": True, "release": "4.9"}, True),
    ],
)
def test_write_buffers_are_for_those_that_may_have_them(
    tmp_path: Path, settings: dict[str, Any], expected: bool
) -> None:
    assert expected is uses_pool(Log(tmp_path, settings).log.config)


def test_flush_that_fails_answers_in_time_and_ends_the_writing(tmp_path: Path) -> None:
    log = Log(tmp_path, SYNC)
    future = log.put_later(message())
    log.disk.fail("sync", errno.EIO)
    service = log.log.flusher.group_commit
    assert service is not None
    service._guarded(service.run_once)

    assert PutMessageStatus.FLUSH_DISK_TIMEOUT is future.result(0).status
    assert not log.log.running_flags.is_writeable


def test_checkpoint_learns_what_is_on_disk(tmp_path: Path) -> None:
    checkpoint = StoreCheckpoint(tmp_path, FaultyFileSystem())
    log = Log(tmp_path / "commitlog", SYNC, {"checkpoint": checkpoint})
    log.put_later(message())
    log.flush()

    assert log.clock.wall_ms == checkpoint.physic_msg_timestamp


# ---- replicas


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({}, {}),
        ({"broker_role": "ASYNC_MASTER", "in_sync_replicas": 2}, {}),
        ({"in_sync_replicas": 2}, UNWAITED),
        ({"in_sync_replicas": 2, "duplication_enable": True}, {}),
    ],
    ids=["by default", "of an asynchronous master", "that does not wait", "of a duplication"],
)
def test_put_of_5x_asks_no_replica(tmp_path: Path, settings: dict[str, Any], sent: dict[str, Any]) -> None:
    replicas = StubReplicas(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
    log = replicated(tmp_path, replicas, **settings)

    assert OK is log.put_message(message(**sent)).status
    assert [] == replicas.asked


@pytest.mark.parametrize(
    ("settings", "timeout"), [({"in_sync_replicas": 2}, 3000), ({"release": "4.3"}, 5000), ({"release": "4.9"}, 3000)]
)
def test_synchronous_master_waits_for_its_copies_and_up_to_4_9_for_one_slave(
    tmp_path: Path, settings: dict[str, Any], timeout: int
) -> None:
    replicas = StubReplicas()
    log = replicated(tmp_path, replicas, **settings)

    assert OK is log.put_message(message()).status
    assert [(log.log.max_offset, 2, timeout)] == replicas.asked


@pytest.mark.parametrize("release", ["4.3", "4.9"])
def test_slave_that_is_not_there_is_its_own_status_in_4x(tmp_path: Path, release: str) -> None:
    replicas = StubReplicas()
    replicas.slave_ok = False
    log = replicated(tmp_path, replicas, release=release)
    result = log.put_message(message())

    assert (PutMessageStatus.SLAVE_NOT_AVAILABLE, True) == (result.status, result.is_ok)
    assert 1 == len(log.messages)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"release": "4.9"}, PutMessageStatus.SLAVE_NOT_AVAILABLE),
        ({"in_sync_replicas": 2}, PutMessageStatus.FLUSH_SLAVE_TIMEOUT),
        ({}, OK),
    ],
)
def test_master_that_stands_alone(tmp_path: Path, settings: dict[str, Any], expected: PutMessageStatus) -> None:
    assert expected is Log(tmp_path, MASTER | settings).put_message(message()).status


@pytest.mark.parametrize(
    ("broker", "settings", "replicas", "acknowledgements"),
    [
        ({"enable_controller_mode": True}, {"min_in_sync_replicas": 4}, {}, None),
        ({"enable_controller_mode": True}, {"min_in_sync_replicas": 3, "in_sync_replicas": 2}, {}, 2),
        ({"enable_controller_mode": True}, {"all_ack_in_sync_state_set": True}, {}, ALL_IN_SYNC),
        ({"enable_slave_acting_master": True}, {"in_sync_replicas": 4}, {}, None),
        ({"enable_slave_acting_master": True}, {"in_sync_replicas": 3}, {"alive": 2}, None),
        ({"enable_slave_acting_master": True}, {"in_sync_replicas": 3}, {}, 3),
        (
            {"enable_slave_acting_master": True},
            {"in_sync_replicas": 3, "enable_auto_in_sync_replicas": True, "min_in_sync_replicas": 2},
            {"in_sync": 2},
            2,
        ),
        (
            {"enable_slave_acting_master": True},
            {"in_sync_replicas": 3, "enable_auto_in_sync_replicas": True, "min_in_sync_replicas": 2},
            {"in_sync": 1},
            None,
        ),
    ],
)
def test_too_few_replicas_refuse_a_put_beforehand(
    tmp_path: Path,
    broker: dict[str, Any],
    settings: dict[str, Any],
    replicas: dict[str, Any],
    acknowledgements: int | None,
) -> None:
    stub = StubReplicas(**replicas)
    log = replicated(tmp_path, stub, BrokerConfig(**broker), **settings)
    single, batch = log.put_message(message()), log.put_messages(client_batch([message()]))

    if acknowledgements is None:
        assert [PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH] * 2 == [single.status, batch.status]
        assert single.append_message_result is None
        assert {} == log.files
    else:
        assert [acknowledgements] * 2 == [asked[1] for asked in stub.asked]


# ---- both


@pytest.mark.parametrize("disk_is_last", [True, False])
def test_replicas_override_the_disk(tmp_path: Path, disk_is_last: bool) -> None:
    replicas = StubReplicas(None)
    log = replicated(tmp_path, replicas, in_sync_replicas=2, **SYNC)
    future = log.put_later(message())
    log.clock.advance(6)
    if not disk_is_last:
        log.log.flusher._watcher.run_once()
    replicas.futures[0].set_result(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
    if disk_is_last:
        assert not future.done()
        log.log.flusher._watcher.run_once()

    assert PutMessageStatus.FLUSH_SLAVE_TIMEOUT is future.result(0).status


def test_service_that_breaks_is_an_unknown_error() -> None:
    broken: Future[PutMessageStatus] = Future()
    broken.set_exception(RuntimeError())
    outcome = settle(PutMessageResult(OK), None, broken)

    assert isinstance(outcome, Future)
    assert PutMessageStatus.UNKNOWN_ERROR is outcome.result(0).status


def test_answer_that_never_comes_is_given_up() -> None:
    given_up = PutMessageResult(PutMessageStatus.UNKNOWN_ERROR)

    assert given_up is wait_for(Future(), 0, given_up)
