# SPDX-License-Identifier: Apache-2.0
"""Times of records as values of tables, whatever a damaged record claims."""

from __future__ import annotations

from typing import Final

import numpy as np

__all__ = ["in_microseconds", "table_time"]

_MICROSECONDS: Final = 1000
_LAST_MILLISECOND: Final = np.iinfo(np.int64).max // _MICROSECONDS


def in_microseconds(milliseconds: int) -> int:
    """Return a time as Arrow has it; one beyond Arrow's range is clamped to it."""
    return max(min(milliseconds, _LAST_MILLISECOND), -_LAST_MILLISECOND) * _MICROSECONDS


def table_time(milliseconds: int | None) -> int | None:
    """Return a time as the microseconds that a table holds; None if there is none.

    Examples
    --------
    >>> table_time(1_700_000_299_500), table_time(None)
    (1700000299500000, None)
    """
    return None if milliseconds is None else in_microseconds(milliseconds)
