# SPDX-License-Identifier: Apache-2.0
"""Days in UTC by which messages are grouped, numbered since 1970."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from store_core.format.iso_time import iso_time

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["DAY_MS", "iso_day", "utc_days"]

DAY_MS: Final = 86_400_000
_DAY_US: Final = DAY_MS * 1000


def utc_days(times: pa.Array) -> npt.NDArray[np.int64]:
    """Return the day of each time, rounded down: times before 1970 are of negative days.

    Parameters
    ----------
    times : pyarrow.Array
        Timestamps in microseconds, without nulls.

    Examples
    --------
    >>> utc_days(pa.array([-1, 0, 1_700_000_299_500_000], pa.timestamp("us"))).tolist()
    [-1, 0, 19675]
    """
    days: npt.NDArray[np.int64] = times.cast(pa.int64()).to_numpy() // _DAY_US
    return days


def iso_day(day: int) -> str:
    """Return a day as text.

    Examples
    --------
    >>> iso_day(19675)
    '2023-11-14'
    """
    return iso_time(day * DAY_MS).partition("T")[0]
