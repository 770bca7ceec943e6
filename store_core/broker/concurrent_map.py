# SPDX-License-Identifier: Apache-2.0
"""The order in which Java's ``ConcurrentHashMap`` gives its keys, which decides the bytes of configuration files."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from store_core.format.java_map import DEFAULT_CAPACITY, spread_hash

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["DEFAULT_CAPACITY", "concurrent_map_order", "initial_capacity"]

Key = TypeVar("Key", str, int)


def initial_capacity(size: int) -> int:
    """Give the number of buckets of ``new ConcurrentHashMap(size)``: the power of two from one and a half `size` on.

    Examples
    --------
    >>> initial_capacity(32), initial_capacity(512), initial_capacity(1024)
    (64, 1024, 2048)
    """
    return 1 << (size + (size >> 1)).bit_length()


def concurrent_map_order(keys: Collection[Key], capacity: int) -> list[Key]:
    """Put distinct keys, given in the order in which they were put, into the order in which the map gives them.

    Parameters
    ----------
    keys : collection of str or of int
        Java's ``String`` or ``Integer``.
    capacity : int
        Buckets of the empty map; it doubles when it is three quarters full.

    Notes
    -----
    Keys that share a bucket come as they were put. In Java doubling may turn them round; that is not imitated.

    Examples
    --------
    >>> concurrent_map_order([17, 3, 16, 1], 16)
    [16, 17, 1, 3]
    """
    while len(keys) >= capacity - capacity // 4:
        capacity *= 2
    return sorted(keys, key=lambda key: _spread(key) & (capacity - 1))


def _spread(key: str | int) -> int:
    if isinstance(key, str):
        return spread_hash(key)
    code = key & 0xFFFFFFFF
    return code ^ (code >> 16)
