# SPDX-License-Identifier: Apache-2.0
"""Whatever operations a store goes through and whatever its disk fails in, it reports exactly what was put."""

from __future__ import annotations

import errno
import os
import random
import shutil
from enum import Enum
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import DefaultMessageStore, Message, MessageStoreConfig, PutMessageStatus
from store_core.files.segment_listing import SegmentPaths
from store_core.store.put.commit_log import CommitLog
from store_core.store.put.put_preparation import as_future
from store_core.store.store_state import StoreCheckpoint
from tests.budgets import budget
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.store.logs import message, messages_of
from tests.store_core.store.store_machine import StoreMachine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Machine43(StoreMachine):
    release = "4.3"


class Machine49(StoreMachine):
    release = "4.9"


class Machine53(StoreMachine):
    release = "5.3"


Test43, Test49, Test53 = Machine43.TestCase, Machine49.TestCase, Machine53.TestCase
Test43.settings = Test49.settings = Test53.settings = settings(budget(0.25), stateful_step_count=25)


# ---- cases that the state machine found


@pytest.fixture(params=[Machine43, Machine49, Machine53])
def machine(request: pytest.FixtureRequest) -> Iterator[StoreMachine]:
    machine: StoreMachine = request.param()
    yield machine
    machine.teardown()


def put_many(machine: StoreMachine, count: int, size: int, topic: str = "orders") -> None:
    """Put messages, each a byte larger than the one before, and compare all that the store reports."""
    for number in range(count):
        machine.put((topic, 0), size + number, 0, None)
    machine.look()


@pytest.mark.parametrize("seed", range(4))
def test_what_a_killed_process_left_in_memory_is_on_disk_once_the_store_is_open(
    machine: StoreMachine, seed: int
) -> None:
    machine.make(syncs=False)
    put_many(machine, 12, 900)
    machine.come_back_from(random.Random(seed), loses_power=False)  # noqa: S311 -- no secret
    machine.safe = len(machine.puts)
    machine.come_back_from(random.Random(seed), loses_power=True)  # noqa: S311 -- no secret


@pytest.mark.parametrize("seed", range(4))
def test_units_that_were_cut_off_do_not_come_back_into_a_log_that_has_grown(machine: StoreMachine, seed: int) -> None:
    machine.make(syncs=True)
    put_many(machine, 12, 300)
    machine.flush_queues()
    machine.truncate(0.3)
    for number in range(12):
        machine.put(("refunds", 0), 290 + number, 0, None)
    machine.come_back_from(random.Random(seed), loses_power=True)  # noqa: S311 -- no secret


@pytest.mark.parametrize("seed", range(3))
def test_an_index_that_the_checkpoint_covers_does_not_reach_past_the_log(machine: StoreMachine, seed: int) -> None:
    machine.make(syncs=False)
    put_many(machine, 26, 200)
    machine.come_back_from(random.Random(seed), loses_power=True)  # noqa: S311 -- no secret
    put_many(machine, 12, 300, "refunds")


def test_the_checkpoint_covers_no_unit_that_is_not_on_disk(machine: StoreMachine) -> None:
    machine.make(syncs=True)
    put_many(machine, 26, 200)  # it fills an index file, which is noted in the checkpoint
    root, release = machine.root / "store", machine.release
    before = StoreCheckpoint(root, machine.disk, release).load()
    machine.flush_queues()
    after = StoreCheckpoint(root, machine.disk, release).load()

    now = machine.clock.now_ms()
    assert (now, 0) == (before.index_msg_timestamp, before.logics_msg_timestamp)
    assert (now, now) == (after.index_msg_timestamp, after.logics_msg_timestamp)


def test_an_index_is_complete_although_the_log_is_checked_from_a_file_after_its_end(machine: StoreMachine) -> None:
    machine.make(syncs=True)
    put_many(machine, 30, 600)
    machine.wait(10)
    put_many(machine, 1, 600)
    machine.flush_queues()
    checkpoint = machine.opened.checkpoint
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = machine.clock.now_ms()
    checkpoint.flush()
    machine.come_back_from(random.Random(1), loses_power=False)  # noqa: S311 -- no secret
    decisions = machine.opened.recovery_report.decisions

    assert any(each.what.startswith("indexed keys of records from") for each in decisions)


_FILE_SIZE = 1 << 14


def test_no_file_of_a_store_is_ever_seen_half_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill can come after any of these calls, and RocketMQ before 5.1.3 loads no segment of another size."""
    sizes: dict[str, set[int]] = {}

    def watch(name: str) -> None:
        call = getattr(os, name)

        def watched(*given: object, **named: object) -> object:
            result = call(*given, **named)
            for path in (
                path for kind in ("commitlog", "consumequeue", "index") for path in tmp_path.glob(f"{kind}/**/*")
            ):
                if path.is_file():
                    sizes.setdefault(path.relative_to(tmp_path).parts[0], set()).add(path.stat().st_size)
            return result

        monkeypatch.setattr(os, name, watched)

    for name in ("open", "ftruncate", "link", "pwrite"):
        watch(name)
    config = MessageStoreConfig(
        release="4.9",
        mapped_file_size_commit_log=_FILE_SIZE,
        mapped_file_size_consume_queue=200,
        max_hash_slot_num=10,
        max_index_num=20,
    )
    with DefaultMessageStore.open(tmp_path, config) as store:
        for number in range(60):
            store.put_message(Message("orders", bytes(700), keys=f"k{number}"))

    assert {"commitlog": {_FILE_SIZE}, "consumequeue": {200}, "index": {40 + 10 * 4 + 20 * 20}} == sizes


class Trouble(Enum):
    """What is wrong with a disk while a message is put."""

    NONE = "nothing"
    WRITE = "the first write fails"
    SEAL = "the second write fails"
    FULL = "no blocks are left but one"
    FULL_AND_DEAF = "so it is, and what was written can't be erased"
    OPEN = "no file can be opened"
    SYNC = "a sync fails"


def make_trouble(disk: FaultyFileSystem, trouble: Trouble) -> None:
    disk.heal()
    if trouble in (Trouble.WRITE, Trouble.SEAL):
        disk.fail("write", errno.EIO, after=int(trouble is Trouble.SEAL))
    if trouble in (Trouble.FULL, Trouble.FULL_AND_DEAF):
        disk.free_blocks = 1
    if trouble is Trouble.FULL_AND_DEAF:
        disk.fail("read", errno.EIO, times=9)
    if trouble is Trouble.OPEN:
        disk.fail("open", errno.EACCES, times=9)
    if trouble is Trouble.SYNC:
        disk.fail("sync", errno.EIO)


puts = st.tuples(st.integers(1, 6), st.integers(0, 3000), st.booleans(), st.sampled_from(Trouble))


@given(st.lists(puts, max_size=20))
def test_messages_that_a_failing_disk_took_are_there_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool, Trouble]]
) -> None:
    root, disk = tmp_path_factory.mktemp("trouble"), FaultyFileSystem()
    config = MessageStoreConfig(mapped_file_size_commit_log=_FILE_SIZE, flush_disk_type="SYNC_FLUSH")
    log = CommitLog(SegmentPaths((root / "commitlog",)), config, disk, FakeClock())
    group_commit = log.flusher.group_commit
    assert group_commit is not None
    taken: list[bytes] = []
    acknowledged = 0
    for number, (count, size, in_bulk, trouble) in enumerate(steps):
        bodies = [b"%d-%d:" % (number, each) + b"x" * size for each in range(count if in_bulk else 1)]
        make_trouble(disk, trouble)
        if in_bulk:
            table = pa.table({"topic": ["orders"] * count, "body": bodies})
            taken += bodies[: log.append_batch(table, waits=False).msg_num]
            group_commit.step()
        else:
            future = as_future(log.put(message(bodies[0])))
            group_commit.step()
            taken += bodies if future.result(0).is_ok else []
            acknowledged = len(taken) if future.result(0).status is PutMessageStatus.PUT_OK else acknowledged
    shutil.copytree(root / "commitlog", root / "store" / "commitlog") if taken else None

    assert log.flushed_where >= (log_end(root / "commitlog", acknowledged) if acknowledged else 0)
    with DefaultMessageStore.open(root / "store", config, file_system=FaultyFileSystem()) as store:
        store.put_message(message(b"next"))
    found = messages_of(root / "store" / "commitlog")
    assert [*taken, b"next"] == [each.body for each in found]
    assert list(range(len(found))) == [each.queue_offset for each in found]
    shutil.rmtree(root)


def log_end(directory: Path, messages: int) -> int:
    """Return the offset after this number of messages."""
    last = messages_of(directory)[messages - 1]
    return last.physical_offset + last.store_size
