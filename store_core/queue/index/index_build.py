# SPDX-License-Identifier: Apache-2.0
"""Bulk construction of index entries, as arithmetic on arrays without a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from store_core.format.columnar.java_hashes import positive_hashes
from store_core.format.layout import INDEX_UNIT, unit_dtype
from store_core.queue.index.index_header import INDEX_HEADER_SIZE, java_long, unit_struct
from store_core.queue.index.index_slots import SLOT_SIZE

if TYPE_CHECKING:
    from store_core.queue.index.index_header import IndexHeader
    from store_core.queue.index.index_slots import IndexSlots
    from store_core.queue.queue_rules import QueueRules

__all__ = [
    "INDEX_DTYPE",
    "INDEX_STRUCT",
    "accepted_entries",
    "build_entries",
    "time_diff",
]

INDEX_DTYPE: Final = unit_dtype(INDEX_UNIT)
"""A stored entry, as array element type."""

INDEX_STRUCT: Final = unit_struct(INDEX_UNIT)
"""The same, for one at a time."""

_MAX_INT: Final = 2**31 - 1
_MS: Final = 1000

Longs = npt.NDArray[np.int64]


def index_file_size(rules: QueueRules) -> int:
    """Return the size of an index file: header, slots and entries; bytes."""
    return INDEX_HEADER_SIZE + SLOT_SIZE * rules.max_hash_slot_num + INDEX_DTYPE.itemsize * rules.max_index_num


def time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """Return the seconds from a file's begin to a message, as stored in an entry (``IndexFile.putKey``).

    Both arguments are in ms. 0 if the file has no begin yet, or the message is older.
    """
    if begin_timestamp <= 0:
        return 0
    return min(max(java_long(store_timestamp - begin_timestamp), 0) // _MS, _MAX_INT)


def _time_diffs(store_timestamps: Longs, begin_timestamp: int) -> Longs:
    if begin_timestamp <= 0:
        return np.zeros(store_timestamps.size, np.int64)
    seconds = (store_timestamps - begin_timestamp) // _MS  # wraps, as in Java
    np.maximum(seconds, 0, out=seconds)
    return np.minimum(seconds, _MAX_INT, out=seconds)


def accepted_entries(physical_offsets: Longs, end_physical_offset: int) -> npt.NDArray[np.intp] | None:
    """Find the entries whose message is not before the end of what is indexed (``IndexService.buildIndex``).

    Parameters
    ----------
    physical_offsets : numpy.ndarray
        Shape (n,): of each entry's message, in dispatch order. Each accepted entry moves the end.
    end_physical_offset : int
        The last file's. An equal offset is accepted. A value below 0, where no message can be, counts as 0.

    Returns
    -------
    numpy.ndarray or None
        Their positions; None for all, which is the usual case.
    """
    if physical_offsets.size and physical_offsets[0] >= max(0, end_physical_offset) and _ascends(physical_offsets):
        return None
    reached = np.empty(physical_offsets.size, np.int64)
    reached[:1] = max(0, end_physical_offset)
    np.maximum(np.maximum.accumulate(physical_offsets[:-1]), reached[:1], out=reached[1:])
    is_accepted = physical_offsets >= reached
    return None if is_accepted.all() else np.flatnonzero(is_accepted)


def _ascends(numbers: Longs) -> bool:
    return bool((numbers[1:] >= numbers[:-1]).all())


def build_entries(  # noqa: PLR0913 -- the three columns, and the three things they are built into
    header: IndexHeader,
    slots: IndexSlots,
    slot_count: int,
    hash_codes: npt.NDArray[np.int32],
    physical_offsets: Longs,
    store_timestamps: Longs,
    *,
    counts_puts: bool,
) -> npt.NDArray[np.void]:
    """Build the next entries of an index file; equivalent to `IndexFile.put_key` for one after the other.

    Only memory is changed: `header` and `slots` are updated, and a file made of these two and the entries is what
    RocketMQ would have written.

    Parameters
    ----------
    header : IndexHeader
        Its count is the number of the next entry; there must be room for all.
    slots : IndexSlots
        The values in the file's slots.
    slot_count : int
        ``maxHashSlotNum``.
    hash_codes : numpy.ndarray
        int32, shape (n,): Java's hash of each ``topic#key``. n is at least 1; about 32,768 are fastest, because the
        slots that they change stay in the processor's cache.
    physical_offsets, store_timestamps : numpy.ndarray
        int64, shape (n,): of each entry's message.
    counts_puts : bool
        Release 4.3: ``hashSlotCount`` counts entries, not used slots.

    Returns
    -------
    numpy.ndarray
        Of `INDEX_DTYPE`, shape (n,).
    """
    entries = np.empty(hash_codes.size, INDEX_DTYPE)
    entries["key_hash"] = hashes = positive_hashes(hash_codes)
    entries["physical_offset"] = physical_offsets
    entries["time_diff"] = seconds = _time_diffs(store_timestamps, header.begin_timestamp)
    if (
        header.index_count <= 1
    ):  # the first entry is measured from the begin of before, and sets the begin of the others
        first = int(store_timestamps[0])
        entries["time_diff"][1:] = _time_diffs(store_timestamps[1:], first)
        del seconds
    entries["previous_index"] = previous = slots.link((hashes % slot_count).astype(np.intp), header.index_count)
    header.add_slots(hash_codes.size if counts_puts else int(np.count_nonzero(previous == 0)))
    first_put, last_put = ((int(physical_offsets[i]), int(store_timestamps[i])) for i in (0, -1))
    header.add(first_put, last_put, hash_codes.size)
    return entries
