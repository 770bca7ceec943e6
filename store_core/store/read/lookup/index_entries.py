# SPDX-License-Identifier: Apache-2.0
"""The entries and slots of an index file, read without trusting them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_header import INDEX_HEADER_SIZE
from store_core.queue.index.index_slots import SLOT_SIZE
from store_core.store.read.lookup.file_bytes import open_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.store.config.index_listing import ListedIndexFile
    from store_core.store.read.lookup.file_bytes import FileBytes

__all__ = ["MOST_OTHERS", "SAMPLES", "IndexDoubtError", "IndexEntries", "offsets_of"]

MOST_OTHERS: Final = 1 << 12
"""Entries of other keys that a slot's chain may have; a slot of a full file has four entries on average."""

_BLOCK: Final = 1 << 17
"""Entries or slots read at once: so many that threads seldom wait for one another, although they no longer fit into the
processor's second cache. A first question about 13 million entries took 0.18 s, with a quarter at once 0.21 s."""

_MOST_UNCOUNTED: Final = 1 << 14
"""Links of entries that the header does not count which are followed for a block of slots, one by one."""

SAMPLES: Final = 32
"""Records of a file that are compared with all of their entries."""

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
    state : FileState or None
        Of the open file, as of `FileBytes`.
    """

    def __init__(self, file: ListedIndexFile) -> None:
        self.file = file
        self._bytes = open_bytes(file.path)
        self.state = self._bytes.state

    def read(self, number: int, count: int) -> npt.NDArray[np.void]:
        """Return entries from a number on; the first has number 1.

        Raises
        ------
        IndexDoubtError
            If the file ends before them.
        """
        entries = np.empty(count, INDEX_DTYPE)
        self._fill(self._bytes, entries, self.file.position(number))
        return entries

    def blocks(self, begin: int, stop: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """Yield the entries between two numbers, in blocks, each with the number of its first entry.

        All blocks lie in the same memory, one after the other, since new memory costs as much as reading into it.
        """
        memory = np.empty(min(_BLOCK, stop - begin), INDEX_DTYPE)
        with self._bytes.forwards(self.file.position(begin), self.file.position(stop)) as stored:
            for number in range(begin, stop, _BLOCK):
                block = memory[: stop - number]
                self._fill(stored, block, self.file.position(number))
                yield number, block

    def slots(self) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Yield the numbers that all slots lead to, in blocks, each with the number of its first slot.

        Entries that were put since the header was read are passed over.
        """
        memory = np.empty(_BLOCK, ">i4")
        with self._bytes.forwards(INDEX_HEADER_SIZE, INDEX_HEADER_SIZE + SLOT_SIZE * self.file.slots) as stored:
            for slot in range(0, self.file.slots, _BLOCK):
                block = memory[: self.file.slots - slot]
                self._fill(stored, block, INDEX_HEADER_SIZE + SLOT_SIZE * slot)
                yield slot, self._counted(block.astype(np.int64))

    def _counted(self, found: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Replace the numbers of entries that the header does not count by those of entries before them."""
        newer, followed = np.flatnonzero(found >= self.file.header.index_count), 0
        while newer.size:
            followed += newer.size
            if followed > _MOST_UNCOUNTED or int(found[newer].max()) >= self.file.most_entries:
                raise IndexDoubtError(f"slots of {self.file.path} lead to entries that its header does not count")
            found[newer] = [self._before(number) for number in found[newer].tolist()]
            newer = newer[found[newer] >= self.file.header.index_count]
        return found

    def in_chains(self, hashes: Iterable[int], most: int) -> npt.NDArray[np.void]:
        """Return all entries of the slots of hashes; entries of other keys may be among them.

        Parameters
        ----------
        hashes : iterable of int
            Positive hashes.
        most : int
            Most entries of a slot that are worth following.
        """
        slots = sorted({code % self.file.slots for code in hashes})
        self._load_chains(slots)
        chains = [self._chain(slot, most) for slot in slots]
        pieces = [self.read(number, 1) for chain in chains for number in chain]
        return np.concatenate([np.empty(0, INDEX_DTYPE), *pieces])

    def samples(self) -> npt.NDArray[np.void]:
        """Return all entries of a few records: of each window those of the records that it has completely."""
        count = self.file.header.index_count
        pieces = [np.empty(0, INDEX_DTYPE)]
        firsts = np.unique(np.linspace(1, count - 1, SAMPLES).astype(np.int64)).tolist()
        windows = [(number, min(number + _SAMPLE_ENTRIES, count)) for number in firsts]
        self._bytes.load_many([(self.file.position(first), self.file.position(stop)) for first, stop in windows])
        for number in firsts:
            window = self.read(number, min(_SAMPLE_ENTRIES, count - number))
            offsets = offsets_of(window)
            starts = np.flatnonzero(offsets[1:] != offsets[:-1]) + 1
            if starts.size > 1:
                pieces.append(window[starts[0] : starts[1]])
        samples = np.concatenate(pieces)
        return samples[np.argsort(offsets_of(samples), kind="stable")]

    def _load_chains(self, slots: Sequence[int]) -> None:
        """Get the chains of slots from another machine, an entry of each at a time, for who follows them one by one."""
        if not self._bytes.is_far:
            return
        places = [INDEX_HEADER_SIZE + SLOT_SIZE * slot for slot in slots]
        self._bytes.load_many([(place, place + SLOT_SIZE) for place in places])
        numbers = {self._slot(slot) for slot in slots}
        seen: set[int] = set()
        while numbers := {each for each in numbers if 0 < each < self.file.most_entries} - seen:
            seen |= numbers
            if len(seen) > MOST_OTHERS * len(slots):
                return
            begins = [self.file.position(number) for number in numbers]
            self._bytes.load_many([(begin, begin + INDEX_DTYPE.itemsize) for begin in begins])
            numbers = {self._before(number) for number in numbers}

    def _slot(self, slot: int) -> int:
        """Return the number of the entry that a slot leads to."""
        stored = np.empty(1, ">i4")
        self._fill(self._bytes, stored, INDEX_HEADER_SIZE + SLOT_SIZE * slot)
        return int(stored[0])

    def _chain(self, slot: int, most: int) -> list[int]:
        """Return the numbers of a slot's entries, newest first, without those after the header's count."""
        number, before = self._slot(slot), self.file.most_entries
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

    def _fill(self, stored: FileBytes, memory: npt.NDArray[np.generic], position: int) -> None:
        """Read from a byte on into memory."""
        if not stored.fill(memory.view(np.uint8), position):
            raise IndexDoubtError(f"{self.file.path} ends before the entries that its header counts")
