# SPDX-License-Identifier: Apache-2.0
"""Where a log ends, found from its whole; where records are placed, and the limits at which a segment ends."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core.errors import InvalidOptionError
from store_core.format.columnar.chain import Place
from store_core.format.record.encode import blank_head, fill_segments, place_records
from store_core.format.record.scan import StopReason
from store_core.format.salvage import LogEnd, find_log_end, find_tail_end
from store_core.format.segment_view import SegmentView
from tests.builders import BODY_AT, MAGIC_AT, LogBuilder, Record
from tests.segment import windowed

if TYPE_CHECKING:
    from collections.abc import Callable


START = 4096


@pytest.fixture
def log() -> LogBuilder:
    log = LogBuilder(4096, START)
    log.append_all(*(b"body %d" % number for number in range(8)))
    return log


def log_end(log: LogBuilder, *, verify_crc: bool = True, after: Place = Place()) -> LogEnd:  # noqa: B008 -- frozen
    (data,) = log.segments().values()
    raw = np.frombuffer(data, np.uint8)
    found = find_log_end(SegmentView.of(raw, START), verify_crc=verify_crc, after=after)
    view = windowed(bytes(data), START)
    assert found == find_log_end(view, verify_crc=verify_crc, after=after)
    assert find_tail_end(SegmentView.of(raw, START), found) == find_tail_end(view, found)
    return found


def place(log: LogBuilder, number: int) -> int:
    return log.records[number].physical_offset - START


def break_body(log: LogBuilder, *numbers: int) -> None:
    for number in numbers:
        log.flip(log.records[number].physical_offset + BODY_AT)


def break_magic(log: LogBuilder, *numbers: int) -> None:
    for number in numbers:
        log.flip(log.records[number].physical_offset + MAGIC_AT)


def test_a_log_ends_before_a_batch_whose_first_record_has_no_size_yet(log: LogBuilder) -> None:
    batch = log.append_all(
        *(b"put at once %d" % number for number in range(5)), store_timestamp=log.records[-1].store_timestamp + 9
    )
    log.patch(batch[0].physical_offset, bytes(4))
    end = batch[0].physical_offset - START

    assert log_end(log) == LogEnd(end, StopReason.BAD_SIZE, is_unfinished=True)
    log.truncate(batch[3].physical_offset + 30)  # a kill between two pages
    assert log_end(log) == LogEnd(end, StopReason.BAD_SIZE, is_unfinished=True)


def test_what_looks_like_a_record_in_the_torn_body_of_such_a_batch_is_none(log: LogBuilder) -> None:
    time = log.records[-1].store_timestamp + 9
    batch = log.append_all(b"one", b"two", store_timestamp=time)
    inner = Record(b"in", physical_offset=log.end + BODY_AT, store_timestamp=time).encode()
    torn = log.append(inner + bytes(100), store_timestamp=time)
    log.patch(batch[0].physical_offset, bytes(4))
    log.truncate(torn.physical_offset + BODY_AT + len(inner) + 9)

    assert log_end(log) == LogEnd(batch[0].physical_offset - START, StopReason.BAD_SIZE, is_unfinished=True)


@pytest.mark.parametrize("later", [1, 60_000])
def test_a_record_without_size_before_later_ones_is_damage(log: LogBuilder, later: int) -> None:
    batch = log.append_all(b"one", b"two", store_timestamp=log.records[-1].store_timestamp + 9)
    log.append(b"later", store_timestamp=batch[0].store_timestamp + later)
    log.patch(batch[0].physical_offset, bytes(4))

    assert log_end(log) == LogEnd(log.end - START, StopReason.UNWRITTEN)


@pytest.mark.parametrize("known", range(7))
@pytest.mark.parametrize("damage", [lambda _: None, lambda log: log.roll(), lambda log: break_body(log, 6, 7)])
def test_a_search_from_an_earlier_end_finds_the_same(
    log: LogBuilder, known: int, damage: Callable[[LogBuilder], None]
) -> None:
    damage(log)
    after = Place(place(log, known), place(log, known - 1)) if known else Place()

    assert log_end(log, after=after) == log_end(log)


def test_a_search_from_an_earlier_end_does_not_walk_what_precedes_it(log: LogBuilder) -> None:
    end = log_end(log)
    break_magic(log, 0, 1, 2)

    assert log_end(log, after=Place(place(log, 4), place(log, 3))) == end


@pytest.mark.parametrize(
    ("magic", "bodies", "end", "reason"),
    [
        ([], [5, 6, 7], 5, StopReason.BAD_CRC),
        ([], [5, 6], None, StopReason.UNWRITTEN),
        ([], range(8), 0, StopReason.BAD_CRC),
        ([3, 4], [], None, StopReason.UNWRITTEN),
        ([3, 5], [4, 6, 7], 3, StopReason.BAD_MAGIC),
    ],
    ids=["torn", "bodies before a sound one", "all torn", "damage before a sound one", "damage before torn ones"],
)
def test_a_log_ends_behind_its_last_sound_record(
    log: LogBuilder, magic: list[int], bodies: list[int], end: int | None, reason: StopReason
) -> None:
    break_magic(log, *magic)
    break_body(log, *bodies)

    assert log_end(log) == LogEnd(log.end - START if end is None else place(log, end), reason)


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


@pytest.mark.parametrize("room", range(8))
def test_where_no_blank_record_has_room_there_are_zeros(room: int) -> None:
    assert bytes(room) == blank_head(room)
