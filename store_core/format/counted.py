# SPDX-License-Identifier: Apache-2.0
"""A count with its noun and its verb, for messages and reports."""

from __future__ import annotations

__all__ = ["agreeing", "counted"]


def counted(count: int, what: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "range"), counted(2000, "range")
    ('1 range', '2,000 ranges')
    """
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def agreeing(count: int, one: str, many: str) -> str:
    """Return the words that go with a count: those for one, or those for any other.

    Examples
    --------
    >>> agreeing(1, "is", "are"), agreeing(0, "is", "are")
    ('is', 'are')
    """
    return one if count == 1 else many
