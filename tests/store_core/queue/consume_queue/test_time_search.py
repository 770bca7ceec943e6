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


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"), [(0, 0, 0), (10, 0, 2), (20, 3, 2), (30, 3, 4), (40, 5, 4), (-1, 0, 0)]
)
def test_the_two_boundaries(tmp_path: Path, timestamp: int, lower: int, upper: int) -> None:
    asked = Asked(tmp_path, [10, 10, 10, 30, 30])

    assert (lower, upper) == (asked.find(timestamp, LOWER), asked.find(timestamp, UPPER))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=45, unique=True), st.integers(0, 70))
def test_times_that_grow_are_found_in_every_file(times: list[int], timestamp: int) -> None:
    times.sort()
    with tempfile.TemporaryDirectory() as directory:
        asked = Asked(Path(directory), times)

        assert sum(time < timestamp for time in times) == asked.find(timestamp, LOWER)
        assert max(0, sum(time <= timestamp for time in times) - 1) == asked.find(timestamp, UPPER)


def test_equal_times_are_searched_in_one_file_only(tmp_path: Path) -> None:
    asked = Asked(tmp_path, [5] * 3 + [7] * 17 + [9] * 5)

    assert (3, 19) == (asked.find(7, LOWER), asked.find(7, UPPER))
    asked = Asked(tmp_path / "more", [5] * 3 + [7] * 27 + [9] * 5)
    assert (3, 29) == (asked.find(7, LOWER), asked.find(7, UPPER))


def test_answers_lie_between_the_bounds(tmp_path: Path) -> None:
    asked = Asked(tmp_path, [10, 20, 30], first=13)

    assert [13, 13, 15, 16] == [asked.find(time, LOWER) for time in (1, 10, 25, 99)]
    assert [13, 13, 14, 15] == [asked.find(time, UPPER) for time in (1, 10, 25, 99)]


def test_units_below_the_log_are_too_early(tmp_path: Path) -> None:
    asked = Asked(tmp_path, [-1] * 4 + [50, 60])
    asked.queue.correct_min_offset(1400)

    assert [4, 4, 5, 6] == [asked.find(time, LOWER, 1400) for time in (1, 50, 55, 99)]


def test_a_record_that_cannot_be_read_ends_the_search(tmp_path: Path) -> None:
    asked = Asked(tmp_path, [10, 20, -1, 40, 50])

    assert 0 == asked.find(30)
    assert 0 == asked.find(45)
    assert 5 == asked.find(55)


def test_a_last_record_that_cannot_be_read_is_earlier_than_any_time(tmp_path: Path) -> None:
    asked = Asked(tmp_path, [10, 20, 30, 40, -1])

    assert (5, 4) == (asked.find(20, LOWER), asked.find(20, UPPER))


@pytest.mark.parametrize("release", ["4.3", "5.3"])
def test_a_queue_without_units_answers_0(tmp_path: Path, release: Release) -> None:
    asked = Asked(tmp_path, [], release)

    assert (0, 0) == (asked.find(5, LOWER), asked.find(5, UPPER))


def test_a_queue_whose_units_all_expired_answers_its_minimum(tmp_path: Path) -> None:
    asked = Asked(tmp_path, [-1] * 5)
    asked.queue.correct_min_offset(10**6)

    assert {5} == {asked.find(time, boundary, 10**6) for time in (-5, -1, 0, 7) for boundary in BoundaryType}


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
    ("timestamp", "expected"),
    [(1, 0), (10, 0), (14, 0), (15, 0), (16, 1), (20, 1), (29, 2), (30, 2), (31, 2), (10**6, 2)],
)
def test_the_nearest_message_is_found(tmp_path: Path, release: Release, timestamp: int, expected: int) -> None:
    asked = Asked(tmp_path, [10, 20, 30], release)

    assert {expected} == {asked.find(timestamp, boundary) for boundary in BoundaryType}


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


@pytest.mark.parametrize(
    ("times", "min_physical_offset", "timestamp", "expected"),
    [
        ([-1, -1, 30, 40], 1200, 1, 2),
        ([-1, -1, 30, 40], 1200, 99, 3),
        ([10, -1, 30], 0, 20, 0),  # it looks at the one that can't be read
        ([-1, -1, -1], 10**6, 20, 0),  # nothing to look at
    ],
)
def test_what_cannot_be_read_is_too_early_or_ends_the_search(
    tmp_path: Path, times: list[int], min_physical_offset: int, timestamp: int, expected: int
) -> None:
    asked = Asked(tmp_path, times, "4.9")

    assert expected == asked.find(timestamp, LOWER, min_physical_offset)


def test_a_file_whose_units_all_expired_gives_the_last_of_the_file_before(tmp_path: Path) -> None:
    """RocketMQ divides the byte before the file by the size of a unit."""
    asked = Asked(tmp_path, [-1] * UNITS + [-1] * 3, "4.9")
    first = tmp_path / f"{0:020d}"
    os.utime(first, ns=(0, 0))

    assert UNITS - 1 == asked.find(5, LOWER, 10**6)
