# SPDX-License-Identifier: Apache-2.0
"""Times as text, and in tables: those that a calendar has, and null for all other numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.times import TIME_RANGE, iso_time, table_time, table_times

FIRST, LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000 for year in (1, 9999))


@given(st.integers(FIRST, LAST))
def test_a_time_reads_back_as_itself_to_the_millisecond(milliseconds: int) -> None:
    text = iso_time(milliseconds)

    assert text.endswith("Z")
    assert len("2023-11-14T22:18:19.500Z") == len(text)
    since_1970 = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    assert milliseconds == since_1970 // timedelta(milliseconds=1)


def test_what_only_hostile_bytes_say_is_shown_too() -> None:
    assert "292278994-08-17T07:12:55.807Z" == iso_time(2**63 - 1)
    assert "-9223372036854775808 ms" == iso_time(-(2**63))


longs = st.integers(-(1 << 63), (1 << 63) - 1)
near = st.sampled_from([TIME_RANGE.start, TIME_RANGE.stop]).flatmap(lambda bound: st.integers(bound - 2, bound + 2))


def test_the_range_is_that_of_the_calendar() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    first, last = (time.replace(tzinfo=UTC) - epoch for time in (datetime.min, datetime.max))  # noqa: DTZ901 -- as UTC

    assert (TIME_RANGE[0], TIME_RANGE[-1]) == (first // timedelta(milliseconds=1), last // timedelta(milliseconds=1))


@given(st.lists(longs | near))
def test_a_column_of_times_has_the_time_of_each(times: list[int]) -> None:
    column = table_times(np.array(times, np.int64))

    assert column.cast(pa.int64()).to_pylist() == [table_time(time) for time in times]
    assert all(value is None or 1 <= value.year for value in column.to_pylist())


@given(st.lists(longs | near))
def test_for_calculations_no_time_is_null_and_their_order_stays(times: list[int]) -> None:
    column = table_times(np.array(sorted(times), np.int64), is_nearest=True).cast(pa.int64()).to_pylist()

    assert column == sorted(column)
    assert all(
        value == time * 1000 for value, time in zip(column, sorted(times), strict=True) if abs(time) < (1 << 63) // 1000
    )
