# SPDX-License-Identifier: Apache-2.0
"""Whatever operations a store goes through, it reports exactly what was put."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings

from store_core.store.store_state import StoreCheckpoint
from tests.budgets import budget
from tests.store_core.store.store_machine import StoreMachine


class Machine43(StoreMachine):
    release = "4.3"


class Machine49(StoreMachine):
    release = "4.9"


class Machine53(StoreMachine):
    release = "5.3"


Test43, Test49, Test53 = Machine43.TestCase, Machine49.TestCase, Machine53.TestCase
Test43.settings = Test49.settings = Test53.settings = settings(budget(0.25), stateful_step_count=25)


# ---- cases that the state machine found


@pytest.mark.parametrize("machine_type", [Machine43, Machine49, Machine53])
@pytest.mark.parametrize("seed", range(4))
def test_what_a_killed_process_left_in_memory_is_on_disk_once_the_store_is_open(
    machine_type: type[StoreMachine], seed: int
) -> None:
    machine = machine_type()
    machine.make(syncs=False)
    for number in range(12):
        machine.put(("orders", 0), 900 + number, 0, None)
    machine.look()
    machine.come_back_from(random.Random(seed), loses_power=False)  # noqa: S311 -- no secret
    machine.safe = len(machine.puts)
    machine.come_back_from(random.Random(seed), loses_power=True)  # noqa: S311 -- no secret
    machine.teardown()


@pytest.mark.parametrize("machine_type", [Machine43, Machine49, Machine53])
@pytest.mark.parametrize("seed", range(4))
def test_units_that_were_cut_off_do_not_come_back_into_a_log_that_has_grown(
    machine_type: type[StoreMachine], seed: int
) -> None:
    machine = machine_type()
    machine.make(syncs=True)
    for number in range(12):
        machine.put(("orders", 0), 300 + number, 0, None)
    machine.look()
    machine.flush_queues()
    machine.truncate(0.3)
    for number in range(12):
        machine.put(("refunds", 0), 290 + number, 0, None)
    machine.come_back_from(random.Random(seed), loses_power=True)  # noqa: S311 -- no secret
    machine.teardown()


_MACHINES = pytest.mark.parametrize("machine_type", [Machine43, Machine49, Machine53])


@_MACHINES
@pytest.mark.parametrize("seed", range(3))
def test_an_index_that_the_checkpoint_covers_does_not_reach_past_the_log(
    machine_type: type[StoreMachine], seed: int
) -> None:
    machine = machine_type()
    machine.make(syncs=False)
    for number in range(26):
        machine.put(("orders", 0), 200 + number, 0, None)
    machine.look()
    machine.come_back_from(random.Random(seed), loses_power=True)  # noqa: S311 -- no secret
    for number in range(12):
        machine.put(("refunds", 0), 300 + number, 0, None)
    machine.look()
    machine.teardown()


@_MACHINES
def test_the_checkpoint_covers_no_unit_that_is_not_on_disk(machine_type: type[StoreMachine]) -> None:
    machine = machine_type()
    machine.make(syncs=True)
    for number in range(26):
        machine.put(("orders", 0), 200 + number, 0, None)
    machine.look()  # it fills an index file, which is noted in the checkpoint
    root, release = machine.root / "store", machine.release
    before = StoreCheckpoint(root, machine.disk, release).load()
    machine.flush_queues()
    after = StoreCheckpoint(root, machine.disk, release).load()

    now = machine.clock.now_ms()
    assert (now, 0) == (before.index_msg_timestamp, before.logics_msg_timestamp)
    assert (now, now) == (after.index_msg_timestamp, after.logics_msg_timestamp)
    machine.teardown()


@_MACHINES
def test_an_index_is_complete_although_the_log_is_checked_from_a_file_after_its_end(
    machine_type: type[StoreMachine],
) -> None:
    machine = machine_type()
    machine.make(syncs=True)
    for number in range(30):
        machine.put(("orders", 0), 600 + number, 0, None)
    machine.look()
    machine.wait(10)
    machine.put(("orders", 0), 600, 0, None)
    machine.look()
    machine.flush_queues()
    checkpoint = machine.opened.checkpoint
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = machine.clock.now_ms()
    checkpoint.flush()
    machine.come_back_from(random.Random(1), loses_power=False)  # noqa: S311 -- no secret
    decisions = machine.opened.recovery_report.decisions

    assert any(each.what.startswith("indexed keys of records from") for each in decisions)
    machine.teardown()
