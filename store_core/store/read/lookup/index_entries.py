# SPDX-License-Identifier: Apache-2.0
"""The entries and slots of an index file, read without trusting them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.file_system import OsFileSystem
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_header import INDEX_HEADER_SIZE
from store_core.queue.index.index_slots import SLOT_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from store_core.store.config.index_listing import ListedIndexFile

__all__ = ["MOST_OTHERS", "IndexDoubtError", "IndexEntries", "offsets_of"]

MOST_OTHERS: Final = 1 << 12
"""Entries of other keys that a slot's chain may have; a slot of a full file has four entries on average."""

_BLOCK: Final = 1 << 15
"""Entries or slots read at once: few enough to stay in the processor's cache."""

_SAMPLES: Final = 32
_SAMPLE_ENTRIES: Final = 64


class IndexDoubtError(Exception):
    """An index file contradicts itself or the log, so that it is not used."""


def offsets_of(entries: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Return the physical offsets that entries name."""
    return entries["physical_offset"].astype(np.int64)


class IndexEntries:
    """The entries and slots of an open index file, as far as its header counts them.

    Parameters
    ----------
    file : ListedIndexFile
        With entries.

    Attributes
    ----------
    file : ListedIndexFile
    """

    def __init__(self, file: ListedIndexFile) -> None:
        self.file = file
        self._opened = OsFileSystem().open(file.path, writable=False)

    def status(self) -> os.stat_result:
        """Return what the system says of the open file."""
        return os.fstat(self._opened.fileno())

    def read(self, number: int, count: int) -> npt.NDArray[np.void]:
        """Return entries from a number on; the first has number 1.

        Raises
        ------
        IndexDoubtError
            If the file ends before them.
        """
        entries = np.empty(count, INDEX_DTYPE)
        self._fill(entries, self.file.position(number))
        return entries

    def blocks(self, begin: int, stop: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """Yield the entries between two numbers, in blocks, each with the number of its first entry.

        All blocks lie in the same memory, one after the other, since new memory costs as much as reading into it.
        """
        memory = np.empty(min(_BLOCK, stop - begin), INDEX_DTYPE)
        for number in range(begin, stop, _BLOCK):
            block = memory[: stop - number]
            self._fill(block, self.file.position(number))
            yield number, block

    def slots(self) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Yield the numbers that all slots lead to, in blocks, each with the number of its first slot.

        Entries that were put since the header was read are passed over.
        """
        memory = np.empty(_BLOCK, ">i4")
        for slot in range(0, self.file.slots, _BLOCK):
            block = memory[: self.file.slots - slot]
            self._fill(block, INDEX_HEADER_SIZE + SLOT_SIZE * slot)
            yield slot, self._counted(block.astype(np.int64))

    def _counted(self, found: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Replace the numbers of entries that the header does not count by those of entries before them."""
        newer = np.flatnonzero(found >= self.file.header.index_count)
        for _ in range(MOST_OTHERS):
            if not newer.size:
                return found
            if newer.size > MOST_OTHERS or int(found[newer].max()) >= self.file.most_entries:
                break
            found[newer] = [self._before(number) for number in found[newer].tolist()]
            newer = newer[found[newer] >= self.file.header.index_count]
        raise IndexDoubtError(f"slots of {self.file.path} lead to entries that its header does not count")

    def in_chains(self, hashes: Iterable[int], most: int) -> npt.NDArray[np.void]:
        """Return all entries of the slots of hashes; entries of other keys may be among them.

        Parameters
        ----------
        hashes : iterable of int
            Positive hashes.
        most : int
            Most entries of a slot that are worth following.
        """
        chains = [self._chain(slot, most) for slot in sorted({code % self.file.slots for code in hashes})]
        pieces = [self.read(number, 1) for chain in chains for number in chain]
        return np.concatenate([np.empty(0, INDEX_DTYPE), *pieces])

    def samples(self) -> npt.NDArray[np.void]:
        """Return all entries of a few records: of each window those of the records that it has completely."""
        count = self.file.header.index_count
        pieces = [np.empty(0, INDEX_DTYPE)]
        for number in np.unique(np.linspace(1, count - 1, _SAMPLES).astype(np.int64)).tolist():
            window = self.read(number, min(_SAMPLE_ENTRIES, count - number))
            offsets = offsets_of(window)
            starts = np.flatnonzero(offsets[1:] != offsets[:-1]) + 1
            if starts.size > 1:
                pieces.append(window[starts[0] : starts[1]])
        samples = np.concatenate(pieces)
        return samples[np.argsort(offsets_of(samples), kind="stable")]

    def _chain(self, slot: int, most: int) -> list[int]:
        """Return the numbers of a slot's entries, newest first, without those after the header's count."""
        stored = self._opened.read(SLOT_SIZE, INDEX_HEADER_SIZE + SLOT_SIZE * slot)
        number, before = int.from_bytes(stored, "big", signed=True), self.file.most_entries
        found: list[int] = []
        while 0 < number < before and len(found) <= most:
            if number < self.file.header.index_count:
                found.append(number)
            before, number = number, self._before(number)
        if number > 0:
            raise IndexDoubtError(f"a slot of {self.file.path} leads in circles, or to too many entries")
        return found

    def _before(self, number: int) -> int:
        """Return the number of the entry that an entry leads to."""
        return int(self.read(number, 1)["previous_index"][0])

    def _fill(self, memory: npt.NDArray[np.generic], position: int) -> None:
        """Read from a byte on into memory."""
        stored = memory.view(np.uint8)
        if os.preadv(self._opened.fileno(), [stored.data], position) < stored.size:
            raise IndexDoubtError(f"{self.file.path} ends before the entries that its header counts")
