# SPDX-License-Identifier: Apache-2.0
"""The order in which Java's ``HashMap`` gives its keys, which decides the bytes of every properties string.

A Python dict keeps insertion order; a ``HashMap`` goes through its buckets, and within a bucket in insertion order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from store_core.format.java_hash import hash_code

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEFAULT_CAPACITY", "hash_map_capacity", "hash_map_order", "spread_hash"]

DEFAULT_CAPACITY: Final = 16
"""Of the map that ``MessageDecoder.string2messageProperties`` fills, RocketMQ 5.1 and later."""

_CROWDED_BUCKET: Final = 8
_TREE_CAPACITY: Final = 64


@lru_cache(maxsize=8192)
def spread_hash(name: str) -> int:
    """Hash a key as ``HashMap`` spreads it: the upper half folded into the lower."""
    code = hash_code(name) & 0xFFFFFFFF
    return code ^ (code >> 16)


def hash_map_capacity(names: Sequence[str], capacity: int = DEFAULT_CAPACITY) -> int:
    """Return the number of buckets after the names were put into an empty map of `capacity` buckets.

    The map doubles when it is over three quarters full, and when a ninth key comes to one bucket of fewer than 64.
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


@lru_cache(maxsize=4096)
def hash_map_order(names: tuple[str, ...], capacity: int = DEFAULT_CAPACITY) -> tuple[str, ...]:
    """Put distinct names, given in insertion order, into the iteration order of a map of `capacity` buckets.

    Parameters
    ----------
    names : tuple of str
        In the order in which they were put; a replaced value keeps its key's place.
    capacity : int
        Buckets the map has in the end, see `hash_map_capacity`; a power of two.

    Notes
    -----
    A bucket of 64 or more that holds over eight keys becomes a tree in Java, whose first key is its root. That one
    case is not imitated: the keys of such a bucket come in insertion order.

    Examples
    --------
    >>> hash_map_order(("TAGS", "KEYS", "UNIQ_KEY"))
    ('KEYS', 'UNIQ_KEY', 'TAGS')
    """
    return tuple(sorted(names, key=lambda name: spread_hash(name) & (capacity - 1)))
