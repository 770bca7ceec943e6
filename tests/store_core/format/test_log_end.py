# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from store_core.format.columnar.chain import Place
from store_core.format.log_end import LogEnd, find_log_end, find_tail_end
from store_core.format.record.scan import StopReason
from store_core.format.segment_view import SegmentView
from tests.builders import BODY_AT, FIRST_STORE_TIMESTAMP, MAGIC_AT, LogBuilder
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


def test_a_log_ends_where_zeros_begin(log: LogBuilder) -> None:
    assert log_end(log) == LogEnd(log.end - START, StopReason.UNWRITTEN)


def test_a_log_ends_before_a_batch_whose_first_record_has_no_size_yet(log: LogBuilder) -> None:
    batch = log.append_all(
        *(b"put at once %d" % number for number in range(5)), store_timestamp=log.records[-1].store_timestamp + 9
    )
    log.patch(batch[0].physical_offset, bytes(4))
    end = batch[0].physical_offset - START

    assert log_end(log) == LogEnd(end, StopReason.BAD_SIZE, is_unfinished=True)
    log.truncate(batch[3].physical_offset + 30)  # a kill between two pages
    assert log_end(log) == LogEnd(end, StopReason.BAD_SIZE, is_unfinished=True)


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


def test_a_log_ends_at_the_blank_record(log: LogBuilder) -> None:
    end = log.end - START
    log.roll()

    assert log_end(log) == LogEnd(end, StopReason.END_OF_FILE)


def test_a_segment_of_zeros_has_no_record() -> None:
    assert log_end(LogBuilder(4096, START)) == LogEnd(0, StopReason.UNWRITTEN)


@pytest.mark.parametrize("missing", [9, 20, 60, 90])
def test_a_record_that_was_not_finished_is_no_data(log: LogBuilder, missing: int) -> None:
    log.patch(log.end - missing, bytes(missing))

    assert log_end(log).position == place(log, 7)


def test_last_records_with_wrong_bodies_are_torn(log: LogBuilder) -> None:
    break_body(log, 5, 6, 7)

    assert log_end(log) == LogEnd(place(log, 5), StopReason.BAD_CRC)


def test_bodies_are_not_looked_at_unless_they_are_to_be_verified(log: LogBuilder) -> None:
    break_body(log, 5, 6, 7)

    assert log_end(log, verify_crc=False) == LogEnd(log.end - START, StopReason.UNWRITTEN)


def test_a_wrong_body_before_a_sound_one_is_not_the_end(log: LogBuilder) -> None:
    break_body(log, 5, 6)

    assert log_end(log).position == log.end - START


def test_damage_before_a_sound_record_is_not_the_end(log: LogBuilder) -> None:
    break_magic(log, 3, 4)

    assert log_end(log).position == log.end - START


def test_damage_that_only_records_with_wrong_bodies_follow_is_the_end(log: LogBuilder) -> None:
    break_magic(log, 3, 5)
    break_body(log, 4, 6, 7)

    assert log_end(log) == LogEnd(place(log, 3), StopReason.BAD_MAGIC)


def test_a_torn_tail_reaches_back_to_the_first_record(log: LogBuilder) -> None:
    break_body(log, *range(8))

    assert log_end(log) == LogEnd(0, StopReason.BAD_CRC)


def test_older_records_behind_the_end_are_told_and_no_data(log: LogBuilder) -> None:
    stale = log.truncate(log.records[2].physical_offset)
    log.append(b"new", store_timestamp=FIRST_STORE_TIMESTAMP + 60_000)
    end = log.end - START
    log.append_raw(bytes(10))
    log.append_raw(stale[log.end - START - end + log.records[-1].size :])
    found = log_end(log)

    assert (found.position, found.reason) == (end, StopReason.UNWRITTEN)
    assert found.stale > end


def test_newer_records_behind_zeros_move_the_end(log: LogBuilder) -> None:
    log.append_raw(bytes(100))
    record = log.append(b"behind a hole")

    assert log_end(log).position == record.end - START


def test_a_record_that_runs_past_the_file_is_torn(log: LogBuilder) -> None:
    log.patch(log.records[7].physical_offset, struct.pack(">i", 1 << 20))

    assert log_end(log) == LogEnd(place(log, 7), StopReason.TORN)
