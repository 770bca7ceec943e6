# SPDX-License-Identifier: Apache-2.0
"""The iteration order of Java's ``HashMap``, which determines the bytes of every properties string.

A Python dict keeps insertion order; a ``HashMap`` iterates over its buckets, and within a bucket in insertion order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from store_core.format.java_hash import hash_code

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEFAULT_CAPACITY", "hash_map_capacity", "hash_map_order", "spread_hash"]

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

    Parameters
    ----------
    names : tuple of str
        In the order in which they were put; a replaced value keeps its key's position.
    capacity : int
        Final number of buckets, see `hash_map_capacity`; a power of two.

    Notes
    -----
    With 64 buckets or more, one that holds over eight keys becomes a tree in Java, whose first key is its root. That
    one case is not imitated: the keys of such a bucket keep insertion order.

    Examples
    --------
    >>> hash_map_order(("TAGS", "KEYS", "UNIQ_KEY"))
    ('KEYS', 'UNIQ_KEY', 'TAGS')
    """
    is_usual = len(names) <= _MOST_NAMES and len("".join(names)) <= _MOST_CHARACTERS
    return _known_order(names, capacity) if is_usual else _order(names, capacity)


def _order(names: tuple[str, ...], capacity: int) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: spread_hash(name) & (capacity - 1)))


_known_order: Final = lru_cache(maxsize=4096)(_order)
