# SPDX-License-Identifier: Apache-2.0
"""Whatever operations a store goes through, it reports exactly what was put."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings

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
