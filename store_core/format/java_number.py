# SPDX-License-Identifier: Apache-2.0
"""Integers in properties, read as Java reads them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["INT_BITS", "LONG_BITS", "SHORT_BITS", "parse_java_int", "wrap"]

SHORT_BITS: Final = 16
INT_BITS: Final = 32
LONG_BITS: Final = 64

_INTEGER: Final = re.compile(r"[+-]?\d+")
_LAST_UNIT: Final = "\uffff"
_MOST_DIGITS: Final = 4000
"""Python refuses to convert much longer texts; their last digits are read, if all before are zeros."""


def parse_java_int(text: str, bits: int) -> int:
    """Parse a decimal integer as ``Short.parseShort``, ``Integer.parseInt`` and ``Long.parseLong`` do.

    Parameters
    ----------
    text : str
        An optional sign, then one or more digits of any script; nothing else, and no blanks. Java reads UTF-16 units,
        so digits beyond U+FFFF do not count as digits.
    bits : int
        Width of the integer: 16, 32 or 64.

    Raises
    ------
    ValueError
        Where Java throws ``NumberFormatException``.

    Examples
    --------
    >>> parse_java_int("+007", 16)
    7
    """
    if not _INTEGER.fullmatch(text) or max(text) > _LAST_UNIT:
        raise ValueError(f"not a decimal integer: {text[:40]!r}")
    digits = text.lstrip("+-")
    head, tail = digits[:-_MOST_DIGITS], digits[-_MOST_DIGITS:]
    value = int(tail) if not any(map(int, head)) else 1 << bits
    value = -value if text[0] == "-" else value
    if wrap(value, bits) != value:
        raise ValueError(f"not an integer of {bits} bits: {text[:40]!r}")
    return value


def wrap(value: int, bits: int) -> int:
    """Keep the lowest bits of an integer, two's complement, as Java's arithmetic does.

    Examples
    --------
    >>> wrap((1 << 31) + 1, 32)
    -2147483647
    """
    limit = 1 << (bits - 1)
    return (value + limit) % (limit << 1) - limit
