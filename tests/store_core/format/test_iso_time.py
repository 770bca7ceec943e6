# SPDX-License-Identifier: Apache-2.0
"""Times in a readable form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from store_core.format.times import iso_time

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
