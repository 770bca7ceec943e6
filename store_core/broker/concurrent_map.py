# SPDX-License-Identifier: Apache-2.0
"""Iteration order of Java's ``ConcurrentHashMap``, which decides the bytes of configuration files."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from store_core.format.java import DEFAULT_CAPACITY, spread_hash

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["DEFAULT_CAPACITY", "concurrent_map_order", "initial_capacity"]

Key = TypeVar("Key", str, int)


def initial_capacity(size: int) -> int:
    """Return the number of buckets of ``new ConcurrentHashMap(size)``: the next power of two above 1.5 * `size`.

    Examples
    --------
    >>> initial_capacity(32), initial_capacity(512), initial_capacity(1024)
    (64, 1024, 2048)
    """
    return 1 << (size + (size >> 1)).bit_length()


def concurrent_map_order(keys: Collection[Key], capacity: int) -> list[Key]:
    """Return distinct keys, given in insertion order, in the iteration order of the map.

    * `keys`: Java's ``String`` or ``Integer``.
    * `capacity`: Buckets of the empty map; it doubles when three quarters full.

    Notes
    -----
    In Java a bucket of more than eight keys becomes a tree, or makes a small map double; that is not imitated.

    Examples
    --------
    >>> concurrent_map_order([17, 3, 16, 1], 16)
    [16, 17, 1, 3]
    """
    buckets: dict[int, list[Key]] = {}
    for size, key in enumerate(keys, 1):
        buckets.setdefault(_spread(key) & (capacity - 1), []).append(key)
        if size >= capacity - capacity // 4:
            buckets = _transferred(buckets, capacity)
            capacity *= 2
    return [key for bucket in sorted(buckets) for key in buckets[bucket]]


def _transferred(buckets: dict[int, list[Key]], capacity: int) -> dict[int, list[Key]]:
    """Double a map (``ConcurrentHashMap.transfer``): of a bucket's keys only the last run keeps its order."""
    doubled: dict[int, list[Key]] = {}
    for bucket, keys in buckets.items():
        run = len(keys) - 1
        while run > 0 and not (_spread(keys[run - 1]) ^ _spread(keys[run])) & capacity:
            run -= 1
        doubled[bucket | (_spread(keys[run]) & capacity)] = keys[run:]
        for key in keys[:run]:
            doubled.setdefault(bucket | (_spread(key) & capacity), []).insert(0, key)
    return doubled


def _spread(key: str | int) -> int:
    if isinstance(key, str):
        return spread_hash(key)
    code = key & 0xFFFFFFFF
    return code ^ (code >> 16)
