# SPDX-License-Identifier: Apache-2.0
"""Times of records as values of reports, whatever a damaged record claims."""

from __future__ import annotations

from store_core.store.diff.record_rows import in_microseconds

__all__ = ["table_time"]


def table_time(milliseconds: int | None) -> int | None:
    """Return a time as the microseconds that a table holds; None if there is none.

    Examples
    --------
    >>> table_time(1_700_000_299_500), table_time(None)
    (1700000299500000, None)
    """
    return None if milliseconds is None else in_microseconds(milliseconds)
