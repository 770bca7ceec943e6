# SPDX-License-Identifier: Apache-2.0
"""In-memory hash slots of the index file being written, which track what the file does not have yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SLOT_SIZE", "IndexSlots"]

_STORED: Final = np.dtype(">i4")

SLOT_SIZE: Final = _STORED.itemsize
"""Bytes of a slot (RocketMQ: ``IndexFile.hashSlotSize``)."""

_PAGE_SLOTS: Final = 1024
"""Slots written together: 4 KiB."""

Indexes = npt.NDArray[np.int32]


class IndexSlots:
    """For each slot the number of the last entry put into it; 0 if there is none.

    Values are kept in stored byte order, so that they can be written unchanged.

    Parameters
    ----------
    stored : bytes-like, optional
        The slots as the file has them; by default all are empty.
    count : int
        Number of slots.
    """

    def __init__(self, count: int, stored: bytes | None = None) -> None:
        self._raw = np.zeros(count, np.int32) if stored is None else np.frombuffer(bytearray(stored), np.int32, count)
        self._is_dirty = np.zeros(-(-count // _PAGE_SLOTS), np.bool_)
        self._undo: tuple[npt.NDArray[np.intp], npt.NDArray[np.int32]] | None = None

    def __getitem__(self, slot: int) -> int:
        return int(self._raw[slot : slot + 1].view(_STORED)[0])

    def __setitem__(self, slot: int, index: int) -> None:
        self._raw[slot : slot + 1].view(_STORED)[0] = index
        self._is_dirty[slot // _PAGE_SLOTS] = True

    def link(self, slots: npt.NDArray[np.intp], first: int) -> Indexes:
        """Put entries `first`, `first` + 1, ... into these slots; return the entry that was in each before.

        Equivalent to reading and setting one slot after the other. A value that is not an existing entry (stale or
        damaged) counts as 0, as in ``IndexFile.putKey``.

        Parameters
        ----------
        slots : numpy.ndarray
            Shape (n,), slot numbers in the order of the entries.
        first : int
            Number of the first entry, at least 1.

        Returns
        -------
        numpy.ndarray
            int32, shape (n,).
        """
        indexes = np.arange(first, first + slots.size, dtype=np.int32)
        stored = indexes.astype(_STORED).view(np.int32)
        before = self._raw[slots]
        previous = before.view(_STORED).astype(np.int32)
        previous[(previous < 0) | (previous > indexes)] = 0
        self._undo = slots, before
        self._raw[slots] = stored
        beaten = np.flatnonzero(self._raw[slots] != stored)
        if beaten.size:
            self._link_shared(slots, beaten, indexes, previous)
        self._is_dirty[slots // _PAGE_SLOTS] = True
        return previous

    def _link_shared(
        self, slots: npt.NDArray[np.intp], beaten: npt.NDArray[np.intp], indexes: Indexes, previous: Indexes
    ) -> None:
        """Link the entries of slots that got several; `beaten` are those that are not left in their slot."""
        self._raw[slots[beaten]] = 0  # no entry has this number, so it marks the slots
        members = np.flatnonzero(self._raw[slots] == 0)
        members = members[np.argsort(slots[members], kind="stable")]
        own = slots[members]
        later = np.flatnonzero(own[1:] == own[:-1]) + 1
        previous[members[later]] = indexes[members[later - 1]]
        is_last = np.ones(members.size, np.bool_)
        is_last[later - 1] = False
        self._raw[own[is_last]] = indexes[members[is_last]].astype(_STORED).view(np.int32)

    def equals(self, stored: npt.NDArray[np.int32]) -> bool:
        """Return whether these are the slots of a file, given in stored byte order."""
        return np.array_equal(self._raw, stored.view(np.int32))

    def undo(self) -> None:
        """Revert the last `link`."""
        if self._undo is not None:
            slots, before = self._undo
            self._raw[slots] = before
            self._undo = None

    def dirty(self) -> Iterator[tuple[int, memoryview]]:
        """Yield what the file does not have yet, as runs of whole pages: the first slot's number and the bytes."""
        pages = np.flatnonzero(self._is_dirty)
        if not pages.size:
            return
        data = self._raw.view(np.uint8).data
        ends = np.flatnonzero(pages[1:] - pages[:-1] > 1).tolist()
        for begin, end in zip([0, *(end + 1 for end in ends)], [*ends, pages.size - 1], strict=True):
            start, stop = int(pages[begin]) * _PAGE_SLOTS, (int(pages[end]) + 1) * _PAGE_SLOTS
            yield start, data[start * SLOT_SIZE : stop * SLOT_SIZE]

    def mark_clean(self) -> None:
        """Mark everything as written to the file."""
        self._is_dirty[:] = False
        self._undo = None
