# SPDX-License-Identifier: Apache-2.0
"""A count with its noun, for messages and reports."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, what: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "range"), counted(2000, "range")
    ('1 range', '2,000 ranges')
    """
    return f"{count:,} {what}" + ("" if count == 1 else "s")
