# SPDX-License-Identifier: Apache-2.0
"""Chains of timers are the same, however much of their log is read at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_core.snapshot.timers import CANCELS, TIMER_DTYPE, SlotChains, followed_slots
from tests.budgets import budget

SIZE = TIMER_DTYPE.itemsize
_GAP = 40
"""Bytes at the end of a file that are no unit."""


def units_of(drawn: list[tuple[int, int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and units of two files: the unit before each, its time, and whether it cancels."""
    units = np.zeros(len(drawn), TIMER_DTYPE)
    positions = SIZE * np.arange(len(drawn)) + _GAP * (np.arange(len(drawn)) >= len(drawn) // 2)
    for number, (before, time, cancels) in enumerate(drawn):
        known = {-1: -1, -2: 7, -3: 1 << 40}  # none; between units; far away
        units["previous_position"][number] = known.get(before, int(positions[before % len(drawn)]))
        units["write_timestamp"][number] = time
        units["magic"][number] = 1 + CANCELS * cancels
    return positions, units


def plainly_followed(last: int, positions: np.ndarray, units: np.ndarray) -> tuple[object, ...]:
    """Follow one chain from unit to unit."""
    numbers = {position: number for number, position in enumerate(positions.tolist())}
    if last not in numbers:
        return (False,)
    due, first, length, timers, is_whole = int(units["write_timestamp"][numbers[last]]), last, 0, 0, True
    while last in numbers:
        unit, first = units[numbers[last]], last
        length, timers = length + 1, timers + (-1 if unit["magic"] & CANCELS else 1)
        is_whole &= int(unit["write_timestamp"]) == due
        previous = int(unit["previous_position"])
        last = previous if 0 <= previous < last else -1
        is_whole &= last in numbers or previous == -1
    return True, due, first, length, timers, is_whole


def shown(chains: SlotChains, row: int) -> tuple[object, ...]:
    if not chains.is_there[row]:
        return (False,)
    numbers = (chains.due, chains.first, chains.units, chains.timers)
    return (True, *(int(each[row]) for each in numbers), bool(chains.is_whole[row]))


@given(
    st.lists(st.tuples(st.integers(-3, 30), st.integers(1, 2), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 40),
)
@budget(1)
def test_chains_are_followed_in_parts_as_unit_by_unit(drawn: list[tuple[int, int, bool]], at_once: int) -> None:
    positions, units = units_of(drawn)
    last = np.concatenate([positions, [-1, 7, 1 << 40]])
    starts = range((len(drawn) - 1) // at_once * at_once, -1, -at_once)
    found = followed_slots(last, ((positions[at : at + at_once], units[at : at + at_once]) for at in starts))

    assert [plainly_followed(each, positions, units) for each in last.tolist()] == [
        shown(found, row) for row in range(len(last))
    ]
