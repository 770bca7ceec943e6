# SPDX-License-Identifier: Apache-2.0
"""Finding the message that was stored at a time."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.queue.consume_queue.consume_queue import PutUnits
from store_core.queue.consume_queue.queue_search import BoundaryType, LogTimes
from tests.store_core.queue.consume_queues import FILE_SIZE, UNITS, QueueMaker, put_all, records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store_core.format.release import Release

LOWER, UPPER = BoundaryType.LOWER, BoundaryType.UPPER


def log_of(times: Sequence[int]) -> Callable[[int, int], int]:
    """Return a log in which the record at 1000 + 100 * i was stored at the i-th time."""

    def store_time(physical_offset: int, size: int) -> int:
        index, rest = divmod(physical_offset - 1000, 100)
        return times[index] if rest == 0 and size == 100 and 0 <= index < len(times) else -1

    return store_time


class Asked:
    """A queue of records with given store times."""

    def __init__(self, directory: Path, times: Sequence[int], release: Release = "5.3", first: int = 0) -> None:
        self.maker = QueueMaker(directory, release)
        self.queue = self.maker.new()
        put_all(self.queue, records(len(times), first))
        self.store_time = log_of([0] * first + list(times))

    def find(self, timestamp: int, boundary: BoundaryType = LOWER, min_physical_offset: int = 0) -> int:
        return self.queue.get_offset_in_queue_by_time(
            timestamp, boundary, LogTimes(self.store_time, min_physical_offset)
        )


# ---- 5.3


GONE = dict.fromkeys((-5, -1, 0, 7), 5)


@pytest.mark.parametrize(
    ("times", "first", "log_begin", "lower", "upper"),
    [
        (
            [10, 10, 10, 30, 30],
            0,
            0,
            {-1: 0, 0: 0, 10: 0, 20: 3, 30: 3, 40: 5},
            {-1: 0, 0: 0, 10: 2, 20: 2, 30: 4, 40: 4},
        ),
        # equal times are searched in one file only
        ([5] * 3 + [7] * 17 + [9] * 5, 0, 0, {7: 3}, {7: 19}),
        ([5] * 3 + [7] * 27 + [9] * 5, 0, 0, {7: 3}, {7: 29}),
        # answers lie between the bounds of the queue
        ([10, 20, 30], 13, 0, {1: 13, 10: 13, 25: 15, 99: 16}, {1: 13, 10: 13, 25: 14, 99: 15}),
        # units below the log are too early
        ([-1] * 4 + [50, 60], 0, 1400, {1: 4, 50: 4, 55: 5, 99: 6}, {}),
        ([-1] * 5, 0, 10**6, GONE, GONE),
        # a record that can't be read ends the search, and the last one is earlier than any time
        ([10, 20, -1, 40, 50], 0, 0, {30: 0, 45: 0, 55: 5}, {}),
        ([10, 20, 30, 40, -1], 0, 0, {20: 5}, {20: 4}),
        ([], 0, 0, {5: 0}, {5: 0}),
    ],
)
def test_a_time_is_found_by_either_boundary(
    tmp_path: Path, times: list[int], first: int, log_begin: int, lower: dict[int, int], upper: dict[int, int]
) -> None:
    asked = Asked(tmp_path, times, first=first)
    if log_begin:
        asked.queue.correct_min_offset(log_begin)

    assert lower == {time: asked.find(time, LOWER, log_begin) for time in lower}
    assert upper == {time: asked.find(time, UPPER, log_begin) for time in upper}


@given(st.lists(st.integers(1, 60), min_size=1, max_size=45, unique=True), st.integers(0, 70))
def test_times_that_grow_are_found_in_every_file(times: list[int], timestamp: int) -> None:
    times.sort()
    with tempfile.TemporaryDirectory() as directory:
        asked = Asked(Path(directory), times)

        assert sum(time < timestamp for time in times) == asked.find(timestamp, LOWER)
        assert max(0, sum(time <= timestamp for time in times) - 1) == asked.find(timestamp, UPPER)


def test_times_of_files_are_remembered_once_they_could_be_read(tmp_path: Path) -> None:
    times = [10 * (index + 1) for index in range(25)]
    asked = Asked(tmp_path, times)
    calls: list[int] = []
    store_time = asked.store_time

    def counted(physical_offset: int, size: int) -> int:
        calls.append(physical_offset)
        return store_time(physical_offset, size)

    asked.store_time = counted
    asked.find(215)
    first = len(calls)
    calls.clear()
    asked.find(215)

    assert 5 == first - len(calls)  # three first times, two last ones


def test_a_search_among_ten_million_units_looks_at_few(tmp_path: Path) -> None:
    """A binary search of one file, and two times for each of 34 files."""
    maker = QueueMaker(tmp_path)
    maker.rules = replace(maker.rules, consume_queue_file_size=300_000 * 20)
    queue = maker.new()
    count = 10_000_000
    asked: list[int] = []

    def store_time(physical_offset: int, size: int) -> int:
        assert 100 == size
        asked.append(physical_offset)
        return physical_offset // 100

    indexes = np.arange(count)
    units = PutUnits.of(indexes * 100, np.full(count, 100), indexes, indexes, queue.rules.features)
    assert queue.put(units, 0, count)
    assert 7_654_321 == queue.get_offset_in_queue_by_time(7_654_321, LOWER, LogTimes(store_time, 0))
    assert 67 + 2 + 19 + 1 >= len(asked)


# ---- before 5.1.1


@pytest.mark.parametrize("release", ["4.3", "4.9"])
@pytest.mark.parametrize(
    ("times", "log_begin", "found"),
    [
        ([10, 20, 30], 0, {1: 0, 10: 0, 14: 0, 15: 0, 16: 1, 20: 1, 29: 2, 30: 2, 31: 2, 10**6: 2}),
        ([-1, -1, 30, 40], 1200, {1: 2, 99: 3}),
        ([10, -1, 30], 0, {20: 0}),  # it looks at the one that can't be read
        ([-1, -1, -1], 10**6, {20: 0}),  # nothing to look at
        ([], 0, {5: 0}),
    ],
)
def test_the_nearest_message_that_can_be_read_is_found(
    tmp_path: Path, release: Release, times: list[int], log_begin: int, found: dict[int, int]
) -> None:
    asked = Asked(tmp_path, times, release)

    assert [found, found] == [{time: asked.find(time, each, log_begin) for time in found} for each in BoundaryType]


@pytest.mark.parametrize(
    ("changed", "timestamp", "expected"),
    [
        ((1000, 2000, 3000), 40, 3),
        ((1000, 2000, 3000), 1000, 9),  # the first file was changed at that time: its last message
        ((1000, 2000, 3000), 1001, 19),
        ((1000, 2000, 3000), 3001, 22),  # later than all: the last file
        ((9000, 9000, 9000), 150, 9),  # a copy that did not keep the times: never after the first file
    ],
)
def test_the_file_is_chosen_by_its_time_of_change(
    tmp_path: Path, changed: tuple[int, int, int], timestamp: int, expected: int
) -> None:
    asked = Asked(tmp_path, [10 * (index + 1) for index in range(23)], "4.9")
    for number, milliseconds in enumerate(changed):
        path = tmp_path / f"{number * FILE_SIZE:020d}"
        os.utime(path, ns=(0, milliseconds * 1_000_000))

    assert expected == asked.find(timestamp)


def test_a_file_whose_units_all_expired_gives_the_last_of_the_file_before(tmp_path: Path) -> None:
    """RocketMQ divides the byte before the file by the size of a unit."""
    asked = Asked(tmp_path, [-1] * UNITS + [-1] * 3, "4.9")
    first = tmp_path / f"{0:020d}"
    os.utime(first, ns=(0, 0))

    assert UNITS - 1 == asked.find(5, LOWER, 10**6)
