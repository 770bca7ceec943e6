# SPDX-License-Identifier: Apache-2.0
"""What the entries of an index file say: which records they name, and where the keys that are asked for are.

A file is read once from its first entry to its last, not only along the chains that lead to a key: an entry that is
missing, or has another key's hash, shows only in what all entries name, and in how they and the chains agree.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.files.file_system import OsFileSystem
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_header import INDEX_HEADER_SIZE
from store_core.queue.index.index_slots import SLOT_SIZE
from store_core.store.read.lookup.queue_tiling import THREADS
from store_core.store.read.lookup.survey import digest, digest_of_distinct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.store.config.index_listing import ListedIndexFile
    from store_core.store.read.lookup.survey import Span

__all__ = ["IndexDoubtError", "IndexSurvey", "Stretch", "survey_index"]

_BLOCK: Final = 1 << 14
"""Entries read at once: few enough to stay in the processor's cache."""

_FEW_HASHES: Final = 8
"""Up to this many hashes are compared one by one; more are looked up in a table of their last 16 bits."""

_WORD: Final = 2**64
_LOW_BITS: Final = 0xFFFF
_MOST_OTHERS: Final = 1 << 12
"""Entries of other keys that a slot's chain may have; a slot of a full file has four entries on average."""

_SAMPLES: Final = 32
_SAMPLE_ENTRIES: Final = 64
_LARGEST: Final = 2**63 - 2**32
"""Positions above it, which no log reaches, could overflow."""


class IndexDoubtError(Exception):
    """An index file contradicts itself or the log, so that it is not used."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive entries of a file, of records in one segment.

    Attributes
    ----------
    first, last : int
        Physical offsets of the first and the last record that they name.
    digest : int
        Of all positions that they name, each once, modulo 2^64.
    begin, stop : int
        Numbers of the entries; the end is exclusive.
    """

    first: int
    last: int
    digest: int
    begin: int
    stop: int

    @classmethod
    def of(cls, offsets: npt.NDArray[np.int64], begin: int) -> Self:
        """Return the stretch of entries whose offsets do not descend; the first of them has number `begin`."""
        return cls(int(offsets[0]), int(offsets[-1]), digest_of_distinct(offsets), begin, begin + offsets.size)

    def and_then(self, other: Stretch) -> Stretch:
        """Return both as one; `other` begins where this one ends, or later."""
        repeated = digest(np.array([other.first], np.int64)) if other.first == self.last else 0
        value = (self.digest + other.digest - repeated) % _WORD
        return Stretch(self.first, other.last, value, self.begin, other.stop)


@dataclass(frozen=True, slots=True, eq=False)
class IndexSurvey:
    """What one index file says.

    Attributes
    ----------
    file : ListedIndexFile
    stretches : dict of int to Stretch
        Its entries, by the number of the segment.
    first, last : int
        Physical offsets that its first and last entry name. Entries of these records may be in other files.
    hits : numpy.ndarray
        Of `INDEX_DTYPE`: all entries in the slots of the hashes that are asked for.
    samples : numpy.ndarray
        Of `INDEX_DTYPE`: all entries of a few records from all over the file, in order.
    """

    file: ListedIndexFile
    stretches: dict[int, Stretch]
    first: int
    last: int
    hits: npt.NDArray[np.void]
    samples: npt.NDArray[np.void]

    @property
    def count(self) -> int:
        """Number of entries."""
        return self.file.header.index_count - 1

    def named(self, number: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the physical offsets that its entries name in a segment, again."""
        stretch = self.stretches.get(number)
        if stretch is not None:
            for _, entries in _Entries(self.file).blocks(stretch.begin, stretch.stop):
                yield _offsets(entries)


def survey_index(file: ListedIndexFile, spans: Sequence[Span], hashes: Sequence[int], most_hits: int) -> IndexSurvey:
    """Read an index file.

    Parameters
    ----------
    file : ListedIndexFile
        With entries.
    spans : sequence of Span
        The segments, in order.
    hashes : sequence of int
        Positive hashes of the ``topic#key`` that are asked for, each once.
    most_hits : int
        Most entries with such hashes: an answer that is larger is not worth a look-up.

    Raises
    ------
    IndexDoubtError
        If it contradicts itself, or is shorter than its header says.
    OSError
        As raised by the system.
    """
    stored, count = _Entries(file), file.header.index_count
    cuts = np.linspace(1, count, THREADS + 1).astype(np.int64).tolist()
    pass_over = partial(_Pass, stored, spans, np.array(sorted(hashes), np.int32))
    with ThreadPoolExecutor(THREADS) as pool:
        parts = [part for part in pool.map(pass_over, cuts[:-1], cuts[1:]) if part.numbers]
    stretches = parts[0].stretches
    for before, part in pairwise(parts):
        _check_order(before.last, part.first, file)
        for number, stretch in part.stretches.items():
            stretches[number] = stretches[number].and_then(stretch) if number in stretches else stretch
    numbers = np.concatenate([part.hit_numbers for part in parts])
    hits = np.concatenate([part.hits for part in parts])
    if hits.size > most_hits:
        raise IndexDoubtError(f"{file.path} has {hits.size:,} entries of the key, so that a scan is faster")
    _check_links(stored, parts)
    near = _in_chains(stored, numbers, hits, hashes)
    return IndexSurvey(file, stretches, parts[0].first, parts[-1].last, near, _samples(stored))


class _Entries:
    """The entries and slots of an open file."""

    def __init__(self, file: ListedIndexFile) -> None:
        self.file = file
        self._opened = OsFileSystem().open(file.path, writable=False)

    def slot(self, number: int) -> int:
        """Return the number of the entry that a slot leads to."""
        stored = self._opened.read(SLOT_SIZE, INDEX_HEADER_SIZE + SLOT_SIZE * number)
        return int.from_bytes(stored, "big", signed=True)

    def slots(self) -> npt.NDArray[np.int64]:
        """Return the numbers that all slots lead to, without entries that were put since the header was read."""
        size = SLOT_SIZE * self.file.slots
        found = np.frombuffer(self._opened.read(size, INDEX_HEADER_SIZE), ">i4").astype(np.int64)
        newer = np.flatnonzero(found >= self.file.header.index_count)
        for _ in range(_MOST_OTHERS):
            if not newer.size:
                return found
            if newer.size > _MOST_OTHERS or int(found[newer].max()) >= self.file.most_entries:
                break
            found[newer] = [int(self.read(number, 1)["previous_index"][0]) for number in found[newer].tolist()]
            newer = newer[found[newer] >= self.file.header.index_count]
        raise IndexDoubtError(f"slots of {self.file.path} lead to entries that its header does not count")

    def read(self, number: int, count: int) -> npt.NDArray[np.void]:
        """Return entries from a number on."""
        entries = np.empty(count, INDEX_DTYPE)
        self._fill(entries, number)
        return entries

    def blocks(self, begin: int, stop: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """Yield the entries between two numbers, in blocks, each with the number of its first entry.

        All blocks lie in the same memory, one after the other, since new memory costs as much as reading into it.
        """
        memory = np.empty(min(_BLOCK, stop - begin), INDEX_DTYPE)
        for number in range(begin, stop, _BLOCK):
            block = memory[: stop - number]
            self._fill(block, number)
            yield number, block

    def _fill(self, entries: npt.NDArray[np.void], number: int) -> None:
        """Read entries from a number on into memory."""
        stored = entries.view(np.uint8)
        if os.preadv(self._opened.fileno(), [stored.data], self.file.position(number)) < stored.size:
            raise IndexDoubtError(f"{self.file.path} ends before the entries that its header counts")


class _Pass:
    """A pass over the entries of a file from one number to another.

    Attributes
    ----------
    numbers : int
        How many entries there are.
    first, last : int
        Physical offsets that the first and the last of them name.
    stretches : dict of int to Stretch
    links, squares : int
        Sum, and sum of squares, of the numbers of the entries that they lead to, modulo 2^64.
    hits : numpy.ndarray
        Of `INDEX_DTYPE`: entries with a hash that is asked for.
    hit_numbers : numpy.ndarray
        int64: their numbers in the file.
    """

    def __init__(
        self, stored: _Entries, spans: Sequence[Span], hashes: npt.NDArray[np.int32], begin: int, stop: int
    ) -> None:
        self.numbers = stop - begin
        self.first = self.last = -1
        self.links = self.squares = 0
        self.stretches: dict[int, Stretch] = {}
        self._spans = spans
        self._ends = np.array([end for _, end in spans], np.int64)
        self._wanted = _Wanted(hashes)
        hits, numbers = [np.empty(0, INDEX_DTYPE)], [np.empty(0, np.int64)]
        for number, entries in stored.blocks(begin, stop):
            rows = self._wanted.find(entries)
            if rows.size:
                hits.append(entries[rows])
                numbers.append(rows + number)
            offsets = _offsets(entries)
            if (offsets[1:] < offsets[:-1]).any() or offsets[-1] > _LARGEST:
                raise IndexDoubtError(f"the entries of {stored.file.path} are not in the order of the log")
            _check_order(self.last, int(offsets[0]), stored.file)
            links = entries["previous_index"].copy().astype(np.int64)
            self.links += int(links.sum())
            self.squares += int(np.dot(links, links))
            self.first = int(offsets[0]) if self.first < 0 else self.first
            self.last = int(offsets[-1])
            self._take(offsets, number)
        self.hits, self.hit_numbers = np.concatenate(hits), np.concatenate(numbers)

    def _take(self, offsets: npt.NDArray[np.int64], number: int) -> None:
        """Add the entries of a block to the segments that they are of."""
        low, high = np.searchsorted(self._ends, (offsets[0], offsets[-1]), "right").tolist()
        for at in range(low, min(high, len(self._spans) - 1) + 1):
            begin, stop = np.searchsorted(offsets, self._spans[at]).tolist()
            if begin < stop:
                stretch = Stretch.of(offsets[begin:stop], number + begin)
                known = self.stretches.get(at)
                self.stretches[at] = stretch if known is None else known.and_then(stretch)


class _Wanted:
    """The hashes that are asked for, compared as they are stored."""

    def __init__(self, hashes: npt.NDArray[np.int32]) -> None:
        self._hashes = hashes
        self._stored = hashes.astype(INDEX_DTYPE["key_hash"]).view(np.uint32).tolist()
        self._is_likely = np.zeros(_LOW_BITS + 1, np.bool_)
        self._is_likely[hashes & _LOW_BITS] = True

    def find(self, entries: npt.NDArray[np.void]) -> npt.NDArray[np.intp]:
        """Return the rows of entries that have one of the hashes."""
        if len(self._stored) > _FEW_HASHES:
            found = entries["key_hash"].astype(np.int32)
            rows = np.flatnonzero(self._is_likely[found & _LOW_BITS])
            return rows[np.isin(found[rows], self._hashes)]
        words = entries["key_hash"].view(np.uint32)
        masks = [words == word for word in self._stored]
        return np.flatnonzero(np.logical_or.reduce(masks)) if masks else np.empty(0, np.intp)


def _offsets(entries: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Return the physical offsets; copied first, since numpy converts the fields of records one by one."""
    return entries["physical_offset"].copy().astype(np.int64)


def _check_order(before: int, after: int, file: ListedIndexFile) -> None:
    """Check that an entry names no record before that of the entry before it, nor one before the log's first byte."""
    if after < max(before, 0):
        raise IndexDoubtError(f"the entries of {file.path} are not in the order of the log")


def _check_links(stored: _Entries, parts: Sequence[_Pass]) -> None:
    """Check that each entry is in exactly one chain: that one slot or one later entry leads to it, and no more.

    The numbers that slots and entries lead to are then those of all entries, and have their sum and sum of squares.
    """
    slots = stored.slots()
    last = stored.file.header.index_count - 1
    found = [int(slots.sum()), int(np.dot(slots, slots))]
    for part in parts:
        found = [found[0] + part.links, found[1] + part.squares]
    expected = [last * (last + 1) // 2, last * (last + 1) * (2 * last + 1) // 6]
    if any((one - other) % _WORD for one, other in zip(found, expected, strict=True)):
        raise IndexDoubtError(f"not every entry of {stored.file.path} is in the chain of a slot")


def _in_chains(
    stored: _Entries, numbers: npt.NDArray[np.int64], hits: npt.NDArray[np.void], hashes: Sequence[int]
) -> npt.NDArray[np.void]:
    """Return the entries of the hashes' slots, and check that those with the hashes are among them.

    An entry is in two places, as it were: among all others by its hash, and in the chain of its slot. If its hash is
    wrong, it is still in the chain, so that entries of other keys there are compared with their records, too.
    """
    chains = {
        slot: _chain(stored, slot, hits.size + _MOST_OTHERS) for slot in {code % stored.file.slots for code in hashes}
    }
    slots = hits["key_hash"].astype(np.int64) % stored.file.slots
    for slot, chain in chains.items():
        if not np.isin(numbers[slots == slot], chain).all():
            raise IndexDoubtError(f"a slot of {stored.file.path} does not lead to all entries of its keys")
    pieces = [stored.read(number, 1) for chain in chains.values() for number in chain]
    return np.concatenate([np.empty(0, INDEX_DTYPE), *pieces])


def _chain(stored: _Entries, slot: int, most: int) -> list[int]:
    """Return the numbers of a slot's entries, newest first, without those after the header's count."""
    number, before = stored.slot(slot), stored.file.most_entries
    found: list[int] = []
    while 0 < number < before and len(found) <= most:
        if number < stored.file.header.index_count:
            found.append(number)
        before, number = number, int(stored.read(number, 1)["previous_index"][0])
    if number > 0:
        raise IndexDoubtError(f"a slot of {stored.file.path} leads in circles, or to too many entries")
    return found


def _samples(stored: _Entries) -> npt.NDArray[np.void]:
    """Return all entries of a few records: of each window those of the records that it has completely."""
    count = stored.file.header.index_count
    pieces = [np.empty(0, INDEX_DTYPE)]
    for number in np.unique(np.linspace(1, count - 1, _SAMPLES).astype(np.int64)).tolist():
        window = stored.read(number, min(_SAMPLE_ENTRIES, count - number))
        offsets = _offsets(window)
        starts = np.flatnonzero(offsets[1:] != offsets[:-1]) + 1
        if starts.size > 1:
            pieces.append(window[starts[0] : starts[1]])
    samples = np.concatenate(pieces)
    return samples[np.argsort(_offsets(samples), kind="stable")]
