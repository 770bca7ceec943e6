# SPDX-License-Identifier: Apache-2.0
"""Putting many units at once has the same result as putting them one by one."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from tests.budgets import budget
from tests.store_core.queue.consume_queues import (
    RELEASES,
    QueueMaker,
    Unit,
    put_all,
    put_bulk,
    records,
    state_of,
    units_in,
)

if TYPE_CHECKING:
    from store_core.format.release import Release
    from store_core.queue.consume_queue.consume_queue import ConsumeQueue


def put_one_by_one(queue: ConsumeQueue, units: list[Unit]) -> bool:
    """Do what `put_bulk` does, by one call of the wrapper per unit."""
    answers = []
    for unit in units:
        request = DispatchRequest("T", 0, unit.physical_offset, unit.size, unit.tags_code, 1, unit.queue_offset)
        is_refused = queue.refusal_of(unit.queue_offset) is not None
        answers.append(queue.put_message_position_info_wrapper(request))
        if not answers[-1] and not is_refused:
            break
    return all(answers)


def odd_units(physical: int, index: int) -> st.SearchStrategy[Unit]:
    """Units with index 0, with damaged positions, and with indexes that have no position."""
    offsets = st.sampled_from([physical, -1, 2**62, 2**63 - 1])
    indexes = st.sampled_from([index, 0, -1, 2**62, 2**63 - 1, -(2**63)])
    return st.builds(Unit, offsets, st.just(100), st.just(-(2**63)), indexes)


@st.composite
def journeys(draw: st.DrawFn) -> list[Unit]:
    """Draw units mostly in order, with repetitions, gaps, jumps, and values from hostile records."""
    units: list[Unit] = []
    physical, index = draw(st.sampled_from([0, 500, 2**40])), draw(st.sampled_from([0, 0, 3, 10, 17, 2**40]))
    for step in draw(st.lists(st.sampled_from(["next"] * 6 + ["again", "odd", "gap", "back", "far"]), max_size=30)):
        if step == "next":
            size = draw(st.sampled_from([91, 100, 250]))
            for _ in range(draw(st.sampled_from([1, 1, 5, 23, 80]))):
                units.append(Unit(physical, size, index % 7 - 3, index))
                physical, index = physical + size, index + 1
        elif step == "again":
            units += units[-draw(st.integers(1, 150)) :]
        elif step == "odd":
            units.append(draw(odd_units(physical, index)))
        elif step == "gap":
            index += draw(st.integers(1, 30))
        elif step == "back":  # of the two, one usually goes back alone
            index = max(0, index - draw(st.integers(0, 30)))
            physical = max(0, physical - draw(st.sampled_from([0, 0, 91, 500])))
        else:
            index = draw(st.sampled_from([2**31, 2**58]))
    return units


@pytest.mark.parametrize("release", RELEASES)
@budget(0.3)
@given(journeys(), st.integers(1, 40))
@example([*records(5), Unit(9000, 100, 0, 2), Unit(9100, 100, 0, 0), Unit(9200, 100, 0, 6)], 40)
def test_bulk_equals_one_by_one(release: Release, units: list[Unit], pieces: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        plain, bulk = QueueMaker(Path(directory, "plain"), release), QueueMaker(Path(directory, "bulk"), release)
        queues = plain.new(), bulk.new()
        border = len(units) * pieces // 40
        for part in (units[:border], units[border:]):
            assert put_one_by_one(queues[0], part) == put_bulk(queues[1], part)
            assert state_of(queues[0]) == state_of(queues[1])
        assert plain.file_bytes() == bulk.file_bytes()
        for queue in queues:
            queue.close()


@given(journeys(), st.integers(0, 6), st.integers(1, 40))
def test_bulk_equals_one_by_one_on_a_failing_disk(units: list[Unit], after: int, times: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        plain, bulk = QueueMaker(Path(directory, "plain")), QueueMaker(Path(directory, "bulk"))
        queues = plain.new(), bulk.new()
        bulk.disk.fail("write", errno.ENOSPC, times=times, after=after)
        done = put_bulk(queues[1], units)
        if bulk.errors:
            # What was put is a beginning of what should have been.
            whole = [unit[1:] for unit in units_in(queues[1], queues[1].min_offset_in_queue)]
            put_one_by_one(queues[0], units)
            expected = [unit[1:] for unit in units_in(queues[0], queues[0].min_offset_in_queue)]
            assert not done
            assert expected[: len(whole)] == whole
            assert 30 <= len(bulk.clock.slept)
        else:
            assert put_one_by_one(queues[0], units) == done
            assert state_of(queues[0]) == state_of(queues[1])
            assert plain.file_bytes() == bulk.file_bytes()
        for queue in queues:  # a search opens too many of them otherwise
            queue.close()


def test_nothing_is_put_while_queues_must_not_be_written(tmp_path: Path) -> None:
    maker = QueueMaker(tmp_path)
    queue = maker.new()
    put_all(queue, records(3))
    maker.is_writable = False

    assert not put_bulk(queue, records(5))
    assert (3, 1, []) == (queue.max_offset_in_queue, maker.errors, maker.clock.slept)


@pytest.mark.parametrize("release", RELEASES)
def test_a_log_that_is_dispatched_again_writes_nothing(tmp_path: Path, release: Release) -> None:
    maker = QueueMaker(tmp_path, release)
    put_bulk(maker.new(), records(1000))
    queue = maker.opened()
    maker.disk.calls.clear()

    assert put_bulk(queue, records(1000))
    assert 0 == maker.disk.count("write")
    assert put_bulk(queue, records(1003))
    assert 1003 == queue.max_offset_in_queue
