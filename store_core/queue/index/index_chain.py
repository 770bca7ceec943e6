# SPDX-License-Identifier: Apache-2.0
"""Search along a slot's chain of index entries, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.queue.index.index_format import INDEX_DTYPE, INDEX_STRUCT, java_long

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["IndexQuery", "walk_chain"]

_MS: Final = 1000
_SHORT_CHAIN: Final = 64
"""Entries that are read one by one before reading windows pays off."""
_WINDOW: Final = 32_768
"""Entries read at once in a long chain: 640 KiB."""


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """A search in one index file.

    Attributes
    ----------
    key_hash : int
        Positive hash of ``topic#key``.
    slot_count : int
        Number of slots in the file.
    max_num : int
        Most offsets to return.
    begin, end : int
        Store times, ms, both included.
    file_begin : int
        The header's begin timestamp, ms: times of entries are relative to it.
    index_count : int
        The header's count: higher numbers are not entries.
    """

    key_hash: int
    slot_count: int
    max_num: int
    begin: int
    end: int
    file_begin: int
    index_count: int


def walk_chain(query: IndexQuery, first: int, read: Callable[[int, int], bytes]) -> list[int]:
    """Follow a chain from entry `first` and collect the matching offsets, newest first (``IndexFile.selectPhyOffset``).

    The walk ends when enough are found, at an entry with a negative time, at one older than `begin`, at one whose link
    is not an entry (0, negative, above the count, itself), and at the end of the file. A link to a later entry ends it,
    too: a put links to an earlier entry, so this is damage, and RocketMQ may loop on it for ever. Keys are not
    compared: the result includes offsets of other keys with the same hash. `read` returns the bytes of entries from a
    number on, fewer if the file ends.
    """
    found: list[int] = []
    index = first if query.index_count > 1 and 0 < first <= query.index_count else 0
    for _ in range(_SHORT_CHAIN):
        if index == 0 or len(found) >= query.max_num:
            return found
        index = _step(query, index, read(index, 1), found)
    while index and len(found) < query.max_num:
        index = _walk_window(query, index, read, found)
    return found


def _step(query: IndexQuery, index: int, stored: bytes, found: list[int]) -> int:
    """Check one entry, and return the number of the next; 0 at the end."""
    if len(stored) < INDEX_STRUCT.size:
        return 0
    key_hash, physical_offset, time_diff, previous = INDEX_STRUCT.unpack(stored)
    if time_diff < 0:
        return 0
    time = java_long(query.file_begin + time_diff * _MS)
    if key_hash == query.key_hash and query.begin <= time <= query.end:
        found.append(physical_offset)
    return previous if 0 < previous < index and time >= query.begin else 0


def _walk_window(query: IndexQuery, index: int, read: Callable[[int, int], bytes], found: list[int]) -> int:
    """Continue the walk through the entries up to `index` that fit into one read."""
    low = max(1, index - _WINDOW + 1)
    stored = read(low, index - low + 1)
    if len(stored) < (index - low + 1) * INDEX_STRUCT.size:
        return 0
    following = _whole_window(query, low, stored, found)
    if following is not None:
        return following
    while index >= low and len(found) < query.max_num:
        position = (index - low) * INDEX_STRUCT.size
        index = _step(query, index, stored[position : position + INDEX_STRUCT.size], found)
    return index


def _whole_window(query: IndexQuery, low: int, stored: bytes, found: list[int]) -> int | None:
    """Walk a window's chain in one step, if it is sound: each of the slot's entries links to the one before it.

    Then only the rules about times can end the walk inside the window. None if the chain is not sound.
    """
    entries = np.frombuffer(stored, INDEX_DTYPE)
    hashes = entries["key_hash"].astype(np.int32)
    members = np.flatnonzero(hashes % np.int32(query.slot_count) == query.key_hash % query.slot_count)[::-1]
    if not members.size or members[0] != entries.size - 1:  # the entry that led here belongs to another slot
        return None
    links = entries["previous_index"][members].astype(np.int64)
    seconds = entries["time_diff"][members].astype(np.int64)
    times = query.file_begin + seconds * _MS
    if (links[:-1] != members[1:] + low).any() or (seconds < 0).any() or (times < query.file_begin).any():
        return None
    is_match = (hashes[members] == query.key_hash) & (times >= query.begin) & (times <= query.end)
    older = np.flatnonzero(times < query.begin)
    stop = int(older[0]) + 1 if older.size else members.size
    matches = members[:stop][is_match[:stop]][: query.max_num - len(found)]
    found.extend(entries["physical_offset"][matches].tolist())
    last = int(links[-1])
    return last if not older.size and 0 < last < members[-1] + low else 0
