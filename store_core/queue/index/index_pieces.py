# SPDX-License-Identifier: Apache-2.0
"""Index entries as bytes, for transport from the process that reads the log to the one that writes the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["PACKED_COUNT_SIZE", "IndexEntries", "pack_entries", "packed_counts", "unpack_entries"]

_LONG: Final = np.dtype("<i8")
_INT: Final = np.dtype("<i4")
PACKED_COUNT_SIZE: Final = _LONG.itemsize
"""First bytes of packed entries that tell, with their size, how many they are."""

_MESSAGE_SIZE: Final = 2 * _LONG.itemsize
_ENTRY_SIZE: Final = 2 * _INT.itemsize


class IndexEntries(NamedTuple):
    """Keys of consecutive messages; the arguments of `IndexService.put_entries`.

    * `physical_offsets`, `store_timestamps`: int64, shape (n,): of each message.
    """

    physical_offsets: npt.NDArray[np.int64]
    store_timestamps: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]  # int64, shape (k,), ascending: the message of each key
    hashes: npt.NDArray[np.int32]  # int32, shape (k,)


def pack_entries(entries: IndexEntries) -> bytes:
    """Encode some entries.

    Messages without keys are left out, except the last, which can still make the index begin a new file.
    """
    count = entries.physical_offsets.size
    has_keys = np.zeros(count, np.bool_)
    has_keys[entries.rows] = True
    has_keys[-1:] = True
    places = np.cumsum(has_keys) - 1
    kept = np.flatnonzero(has_keys)
    parts = (
        np.array([kept.size], _LONG),
        entries.physical_offsets[kept].astype(_LONG, copy=False),
        entries.store_timestamps[kept].astype(_LONG, copy=False),
        places[entries.rows].astype(_INT),
        entries.hashes.astype(_INT, copy=False),
    )
    return b"".join(part.tobytes() for part in parts)


def packed_counts(head: bytes | memoryview, size: int) -> tuple[int, int]:
    """Return the number of messages, and of entries, in packed entries.

    * `head`: Their first `PACKED_COUNT_SIZE` bytes, or more.
    * `size`: Their size in bytes.
    """
    messages = int(np.frombuffer(head, _LONG, 1)[0]) if len(head) >= PACKED_COUNT_SIZE else -1
    entries, rest = divmod(size - PACKED_COUNT_SIZE - messages * _MESSAGE_SIZE, _ENTRY_SIZE)
    if messages < 0 or entries < 0 or rest:
        raise ValueError(f"{size} bytes are not index entries")
    return messages, entries


def unpack_entries(packed: bytes | memoryview) -> IndexEntries:
    """Decode entries."""
    messages, entries = packed_counts(packed, len(packed))
    times_at = _LONG.itemsize * (1 + messages)
    rows_at = times_at + _LONG.itemsize * messages
    return IndexEntries(
        np.frombuffer(packed, _LONG, messages, _LONG.itemsize),
        np.frombuffer(packed, _LONG, messages, times_at),
        np.frombuffer(packed, _INT, entries, rows_at).astype(np.int64),
        np.frombuffer(packed, _INT, entries, rows_at + _INT.itemsize * entries),
    )
