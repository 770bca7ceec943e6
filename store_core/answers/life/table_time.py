# SPDX-License-Identifier: Apache-2.0
"""Times of records as values of reports, whatever a damaged record claims."""

from __future__ import annotations

from typing import Final

__all__ = ["table_time"]

_LARGEST: Final = (2**63 - 1) // 1000
_MICROSECONDS: Final = 1000


def table_time(milliseconds: int | None) -> int | None:
    """Return a time as the microseconds that a table holds; None for one that it can't hold.

    Examples
    --------
    >>> table_time(1_700_000_299_500), table_time(2**62)
    (1700000299500000, None)
    """
    if milliseconds is None or abs(milliseconds) > _LARGEST:
        return None
    return milliseconds * _MICROSECONDS
