# SPDX-License-Identifier: Apache-2.0
"""Times as text, as columns and as days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from store_core.format.columns import TIMESTAMP_TYPE

if TYPE_CHECKING:
    import numpy.typing as npt


_NOT_A_TIME: Final = np.iinfo(np.int64).min
"""The one 64-bit number that numpy treats as not a time (NaT)."""


def iso_time(milliseconds: int) -> str:
    """Return a time as text, such as ``2023-11-14T22:18:19.500Z``.

    * `milliseconds`: Since 1970, as stores hold times; any 64-bit number, since a store's bytes may hold any.

    >>> iso_time(1_700_000_299_500)
    '2023-11-14T22:18:19.500Z'
    """
    if milliseconds == _NOT_A_TIME:
        return f"{milliseconds} ms"
    return str(np.datetime_as_string(np.datetime64(milliseconds, "ms"), timezone="UTC"))


TIME_RANGE: Final = range(-62_135_596_800_000, 253_402_300_800_000)
"""Milliseconds since 1970 of the times that a table holds; a store may hold any 64-bit number, such as nanoseconds."""

_MICROSECONDS: Final = 1000
_LAST_MILLISECOND: Final = np.iinfo(np.int64).max // _MICROSECONDS


def known_time(milliseconds: int | None) -> str | None:
    """Return a time as `iso_time` does; None if it is not known."""
    return None if milliseconds is None else iso_time(milliseconds)


def table_time(milliseconds: int | None) -> int | None:
    """Return a time as the microseconds that a table holds; None if there is none, or no table holds it.

    >>> table_time(1_700_000_299_500), table_time(None), table_time(1_700_000_299_500_000)
    (1700000299500000, None, None)
    """
    return None if milliseconds is None or milliseconds not in TIME_RANGE else milliseconds * _MICROSECONDS


def table_times(milliseconds: npt.NDArray[np.int64], *, is_nearest: bool = False) -> pa.TimestampArray:
    """Return times as a column: `table_time` of each.

    * `milliseconds`: int64, shape (n,).
    * `is_nearest`: Whether there are no nulls, but the nearest times that Arrow has: for what calculates with them.
    """
    if is_nearest:
        nearest = np.clip(milliseconds, -_LAST_MILLISECOND, _LAST_MILLISECOND)
        return _times(nearest)
    is_outside = (milliseconds < TIME_RANGE.start) | (milliseconds >= TIME_RANGE.stop)
    if not is_outside.any():
        return _times(milliseconds)
    return pa.array(np.where(is_outside, 0, milliseconds) * _MICROSECONDS, mask=is_outside).view(TIMESTAMP_TYPE)


def _times(milliseconds: npt.NDArray[np.int64]) -> pa.TimestampArray:
    """Return times that Arrow has, without ``pa.array``, which imports pandas."""
    return pa.Array.from_buffers(TIMESTAMP_TYPE, milliseconds.size, [None, pa.py_buffer(milliseconds * _MICROSECONDS)])


DAY_MS: Final = 86_400_000
_DAY_US: Final = DAY_MS * 1000


def utc_days(times: pa.Array) -> npt.NDArray[np.int64]:
    """Return the day of each time, rounded down: times before 1970 are of negative days.

    * `times`: Timestamps in microseconds, without nulls.

    >>> utc_days(pa.array([-1, 0, 1_700_000_299_500_000], pa.timestamp("us"))).tolist()
    [-1, 0, 19675]
    """
    days: npt.NDArray[np.int64] = times.cast(pa.int64()).to_numpy() // _DAY_US
    return days


def iso_day(day: int) -> str:
    """Return a day as text.

    >>> iso_day(19675)
    '2023-11-14'
    """
    return iso_time(day * DAY_MS).partition("T")[0]
