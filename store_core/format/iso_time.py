# SPDX-License-Identifier: Apache-2.0
"""Times as readable text: ISO 8601 in UTC, to the millisecond."""

from __future__ import annotations

from typing import Final

import numpy as np

__all__ = ["iso_time"]

_NOT_A_TIME: Final = np.iinfo(np.int64).min
"""The one 64-bit number that numpy treats as not a time (NaT)."""


def iso_time(milliseconds: int) -> str:
    """Return a time as text, such as ``2023-11-14T22:18:19.500Z``.

    Parameters
    ----------
    milliseconds : int
        Since 1970, as stores hold times; any 64-bit number, since a store's bytes may hold any.

    Examples
    --------
    >>> iso_time(1_700_000_299_500)
    '2023-11-14T22:18:19.500Z'
    """
    if milliseconds == _NOT_A_TIME:
        return f"{milliseconds} ms"
    return str(np.datetime_as_string(np.datetime64(milliseconds, "ms"), timezone="UTC"))
