# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np

from store_core.files.segment_source import Segment
from store_core.store.read.picks import Picks
from store_core.store.read.ranges import ReadRange, task_groups

MIB = 1 << 20


def picked(number: int, size: int, count: int = 1) -> ReadRange:
    places = number * MIB + np.arange(count)
    picks = Picks(places, np.full(count, size, np.int64), np.zeros(count, np.int32), places)
    return ReadRange(Segment(f"/{number}", number * MIB, MIB), number * MIB, (number + 1) * MIB, 0, picks=picks)


def sizes(*parts: ReadRange) -> list[int]:
    groups = task_groups(parts)
    assert [part for group in groups for part in group] == list(parts)
    return [len(group) for group in groups]


def test_few_records_of_many_segments_are_one_task() -> None:
    assert sizes(*(picked(number, 1000) for number in range(100))) == [100]


def test_a_task_is_bounded() -> None:
    assert sizes(*(picked(number, 10 * MIB) for number in range(7))) == [3, 3, 1]


def test_very_many_small_records_are_tasks_of_their_own() -> None:
    assert sizes(*(picked(number, 100, 20_000) for number in range(4))) == [1, 1, 1, 1]
    assert sizes(*(picked(number, 100, 2_000) for number in range(4))) == [4]


def test_each_scan_is_a_task() -> None:
    scans = [ReadRange(Segment(f"/{number}", 0, MIB), 0, MIB, MIB) for number in range(3)]

    assert sizes(*scans) == [1, 1, 1]
    assert sizes() == []


def test_what_a_look_up_scans_is_read_with_its_records_if_it_is_little() -> None:
    little, much = (ReadRange(Segment("/0", 0, size), 0, size, size) for size in (MIB, 40 * MIB))

    assert sizes(picked(0, 10), little, picked(1, 10), picked(2, 10)) == [4]
    assert sizes(picked(0, 10), much, picked(1, 10), picked(2, 10)) == [1, 1, 2]
