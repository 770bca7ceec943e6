# SPDX-License-Identifier: Apache-2.0
"""What Java does with the texts that RocketMQ stores: hash codes, the order of a ``HashMap``, and numbers.

A Python dict keeps insertion order; a ``HashMap`` iterates over its buckets, and within a bucket in insertion order.
That order determines the bytes of every properties string.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


DEFAULT_CAPACITY: Final = 16
"""Initial number of buckets of a ``HashMap``."""

_CROWDED_BUCKET: Final = 8
_TREE_CAPACITY: Final = 64

_MOST_NAMES: Final = 64
_MOST_CHARACTERS: Final = 1024
"""Names of a map, and their characters, up to which results are kept: real maps have less. All results together would
take a gigabyte where messages have thousands of properties."""


def spread_hash(name: str) -> int:
    """Return a key's hash as ``HashMap`` spreads it: the upper half folded into the lower."""
    return _known_hash(name) if len(name) <= _MOST_CHARACTERS else _spread_hash(name)


def _spread_hash(name: str) -> int:
    code = hash_code(name) & 0xFFFFFFFF
    return code ^ (code >> 16)


_known_hash: Final = lru_cache(maxsize=8192)(_spread_hash)


def hash_map_capacity(names: Sequence[str], capacity: int = DEFAULT_CAPACITY) -> int:
    """Return the number of buckets after the names were put into an empty map of `capacity` buckets.

    The map doubles when it is over three quarters full, and when a ninth key enters one of fewer than 64 buckets.
    """
    if len(names) <= _CROWDED_BUCKET or (len(names) <= capacity * 3 // 4 and capacity >= _TREE_CAPACITY):
        return max(capacity, DEFAULT_CAPACITY)
    for size, name in enumerate(names, 1):
        if capacity < _TREE_CAPACITY and _bucket_size(names[:size], name, capacity) > _CROWDED_BUCKET:
            capacity *= 2
        if size > capacity * 3 // 4:
            capacity *= 2
    return capacity


def _bucket_size(names: Sequence[str], name: str, capacity: int) -> int:
    bucket = spread_hash(name) & (capacity - 1)
    return sum(spread_hash(other) & (capacity - 1) == bucket for other in names)


def hash_map_order(names: tuple[str, ...], capacity: int = DEFAULT_CAPACITY) -> tuple[str, ...]:
    """Return distinct names, given in insertion order, in the iteration order of a map of `capacity` buckets.

    * `names`: In the order in which they were put; a replaced value keeps its key's position.
    * `capacity`: Final number of buckets, see `hash_map_capacity`; a power of two.

    With 64 buckets or more, one that holds over eight keys becomes a tree in Java, whose first key is its root. That
    one case is not imitated: the keys of such a bucket keep insertion order.

    >>> hash_map_order(("TAGS", "KEYS", "UNIQ_KEY"))
    ('KEYS', 'UNIQ_KEY', 'TAGS')
    """
    is_usual = len(names) <= _MOST_NAMES and len("".join(names)) <= _MOST_CHARACTERS
    return _known_order(names, capacity) if is_usual else _order(names, capacity)


def _order(names: tuple[str, ...], capacity: int) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: spread_hash(name) & (capacity - 1)))


_known_order: Final = lru_cache(maxsize=4096)(_order)

SHORT_BITS: Final = 16
INT_BITS: Final = 32
LONG_BITS: Final = 64

_INTEGER: Final = re.compile(r"[+-]?\d+")
_LAST_UNIT: Final = "\uffff"
_MOST_DIGITS: Final = 4000
"""Python refuses to convert much longer texts; their last digits are read, if all before are zeros."""


def parse_java_int(text: str, bits: int) -> int:
    """Parse a decimal integer as ``Short.parseShort``, ``Integer.parseInt`` and ``Long.parseLong`` do.

    * `text`: An optional sign, then one or more digits of any script; nothing else, and no blanks. Java reads UTF-16
      units, so digits beyond U+FFFF do not count as digits.
    * `bits`: Width of the integer: 16, 32 or 64.

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

    >>> wrap((1 << 31) + 1, 32)
    -2147483647
    """
    limit = 1 << (bits - 1)
    return (value + limit) % (limit << 1) - limit


_WORD: Final = 1 << 32
_SIGN: Final = 1 << 31


def hash_code(text: str) -> int:
    """Hash a string as Java does: over its UTF-16 code units, in 32 bits, signed.

    >>> hash_code("TagA"), hash_code("中文"), hash_code("😀")
    (2598919, 646394, 1772899)
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) % _WORD
    return value - _WORD if value >= _SIGN else value


def tags_code(tags: str | None) -> int:
    """Return the tags code of a message: the hash of its TAGS, 0 without tags.

    RocketMQ: ``MessageExtBrokerInner.tagsString2tagsCode``; the whole string is hashed, multi-tag topics included.
    """
    return hash_code(tags) if tags else 0


def positive_hash(hash_code: int) -> int:
    """Make a key's hash positive; -2**31, which has no positive, becomes 0 (``IndexFile.indexKeyHashMethod``).

    >>> positive_hash(-3), positive_hash(-(2**31))
    (3, 0)
    """
    return abs(hash_code) if hash_code != -_SIGN else 0
