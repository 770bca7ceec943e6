# SPDX-License-Identifier: Apache-2.0
"""Placing records in segments: the definition, the same for many at once, and the limits at which a segment ends."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core.errors import InvalidOptionError
from store_core.format.segment_room import blank_head, fill_segments, has_room, place_records, room_for_records

if TYPE_CHECKING:
    from collections.abc import Callable

SEGMENT = 100
HEAD = 8


def filled(sizes: list[int], room: int, segment_size: int = SEGMENT) -> list[tuple[int, int]]:
    """Place records as `place_records` does, by `fill_segments`."""
    starts = np.array([0, *accumulate(sizes)], np.int64)
    return [
        (segment, int(starts[row] - starts[rows.start]))
        for segment, rows in enumerate(fill_segments(starts, room, segment_size))
        for row in range(rows.start, rows.stop)
    ]


def refusal(place: Callable[[list[int], int, int], object], sizes: list[int], room: int) -> str | None:
    try:
        place(sizes, room, SEGMENT)
    except InvalidOptionError as error:
        return str(error)
    return None


@given(st.lists(st.integers(1, SEGMENT - HEAD), max_size=30), st.integers(0, 2 * SEGMENT))
@example([20], 28)
@example([20], 27)
@example([20], 0)
@example([1], HEAD)
@example([1], HEAD + 1)
@example([92, 92], 100)
@example([], 5)
def test_many_records_at_once_have_the_places_of_one_after_the_other(sizes: list[int], room: int) -> None:
    assert place_records(sizes, room, SEGMENT) == filled(sizes, room)


@given(st.lists(st.integers(1, SEGMENT - HEAD), max_size=30), st.integers(0, SEGMENT))
def test_behind_the_last_record_of_a_segment_there_is_room_for_a_blank_record_and_not_for_the_next(
    sizes: list[int], room: int
) -> None:
    left, used = room, 0
    for size, (segment, position) in zip(sizes, place_records(sizes, room, SEGMENT), strict=True):
        if segment != used:
            assert size + HEAD > left
            assert (used + 1, 0) == (segment, position)
            used, left = segment, SEGMENT
        left -= size
        assert left >= HEAD


@given(st.lists(st.integers(1, SEGMENT + HEAD), max_size=12), st.integers(0, SEGMENT))
def test_both_refuse_the_same_record_that_no_segment_has_room_for(sizes: list[int], room: int) -> None:
    by_one, by_many = (refusal(place, sizes, room) for place in (place_records, filled))

    assert by_one == by_many
    assert any(size + HEAD > SEGMENT for size in sizes) == (by_one is not None)


def test_a_record_that_no_segment_has_room_for_is_named_with_what_has_room() -> None:
    with pytest.raises(InvalidOptionError, match="record 1 has 93 bytes: expected at most 92, for which a segment of"):
        place_records([50, 93], 60, SEGMENT)


@pytest.mark.parametrize(("size", "fits"), [(91, True), (92, True), (93, False), (100, False)])
def test_eight_bytes_stay_free_behind_a_record(size: int, fits: bool) -> None:
    assert fits == has_room(size, SEGMENT) == (size <= room_for_records(SEGMENT))


@pytest.mark.parametrize("room", [8, 9, 4096, 1 << 30])
def test_a_segment_is_closed_by_its_room_and_a_magic_code(room: int) -> None:
    assert room.to_bytes(4) + bytes.fromhex("cbd43194") == blank_head(room)


@pytest.mark.parametrize("room", range(8))
def test_where_no_blank_record_has_room_there_are_zeros(room: int) -> None:
    assert bytes(room) == blank_head(room)
