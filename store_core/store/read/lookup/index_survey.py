# SPDX-License-Identifier: Apache-2.0
"""What the entries of an index file say: which records they name, and that each is in the chain of its own slot.

A file is read once from its first entry to its last, not only along the chains that lead to a key: an entry that is
missing, or in no chain, shows only in what all entries name, and in how they and the chains agree. So the proof holds
for every key, and what a key's records are needs only the chain of its slot.

**Chains.** A link is a pair: the slot in whose chain it is, and the number of the entry that it leads to. Slots have
one each, and every entry has one to the entry before it in its slot. Each entry is in exactly one chain, that of its
own slot, if and only if no entry leads to itself or to a later one, so that there are no circles, and the links are the
pairs of all entries: slot and number. Both are compared by a sum over pairs of a weight of the slot times a polynomial
of the number, modulo 2^64, in one pass and without sorting.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from store_core.store.read.lookup.index_entries import IndexDoubtError, IndexEntries, offsets_of
from store_core.store.read.lookup.survey import digest, digest_of_distinct, mixed, overlapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.store.config.index_listing import ListedIndexFile
    from store_core.store.read.lookup.file_state import FileState
    from store_core.store.read.lookup.proofs import ProofsOfStore
    from store_core.store.read.lookup.survey import Span

__all__ = ["IndexFileInStore", "IndexSurvey", "Stretch", "survey_index"]

_WORD: Final = 2**64
_LARGEST: Final = 2**63 - 2**32
"""Positions above it, which no log reaches, could overflow."""

_THREADS: Final = 2
"""As for queues: numpy converts and adds without the interpreter's lock."""

_ODD: Final = np.uint64(0xD1B54A32D192ED03)
"""Makes the polynomial of a number differ from its square, so that both sums of numbers and of squares count."""


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


class IndexFileInStore(NamedTuple):
    """An index file, its state before its header was read, and whether a broker may append to it."""

    listed: ListedIndexFile
    state: FileState | None
    is_last: bool


@dataclass(frozen=True, slots=True, eq=False)
class IndexSurvey:
    """What one index file says, whatever key is asked for.

    Attributes
    ----------
    file : ListedIndexFile
    stretches : dict of Span to Stretch
        Its entries, by segment.
    first, last : int
        Physical offsets that its first and last entry name. Entries of these records may be in other files.
    samples : numpy.ndarray
        Of `INDEX_DTYPE`: all entries of a few records from all over the file, in order.
    covered : tuple of Span
        The segments from the first record to the last.
    """

    file: ListedIndexFile
    stretches: dict[Span, Stretch]
    first: int
    last: int
    samples: npt.NDArray[np.void]
    covered: tuple[Span, ...]

    def holds_for(self, spans: Sequence[Span]) -> bool:
        """Return whether the file says the same of other segments."""
        return self.covered == overlapping(spans, self.first, self.last + 1)

    @property
    def count(self) -> int:
        """Number of entries."""
        return self.file.header.index_count - 1

    def named(self, span: Span) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the physical offsets that its entries name in a segment, again."""
        stretch = self.stretches.get(span)
        if stretch is not None:
            for _, entries in IndexEntries(self.file).blocks(stretch.begin, stretch.stop):
                yield offsets_of(entries)


def survey_index(file: IndexFileInStore, spans: Sequence[Span], proofs: ProofsOfStore) -> IndexSurvey:
    """Read an index file, unless what it says is known.

    Parameters
    ----------
    file : IndexFileInStore
        With entries.
    spans : sequence of Span
        The segments, in order.
    proofs : ProofsOfStore

    Raises
    ------
    IndexDoubtError
        If it contradicts itself, or is shorter than its header says.
    OSError
        As raised by the system.
    """
    name, state, is_last = str(file.listed.path), file.state, file.is_last
    known = None if state is None else proofs.recall(IndexSurvey, name, state, is_last=is_last)
    if known is not None and known.holds_for(spans):
        return known
    stored = IndexEntries(file.listed)
    found = _read(stored, spans)
    if state is not None and stored.state == state:
        proofs.keep(name, state, found, is_last=is_last)
    return found


def _read(stored: IndexEntries, spans: Sequence[Span]) -> IndexSurvey:
    """Read an index file in parts, each in a thread."""
    file, count = stored.file, stored.file.header.index_count
    cuts = np.linspace(1, count, _THREADS + 1).astype(np.int64).tolist()
    with ThreadPoolExecutor(_THREADS) as pool:
        links = pool.submit(_slot_links, stored)
        found = pool.map(partial(_Pass, stored, spans), cuts[:-1], cuts[1:])
        parts = [part for part in found if part.numbers]
    stretches = parts[0].stretches
    for before, part in pairwise(parts):
        _check_order(before.last, part.first, file)
        for span, stretch in part.stretches.items():
            stretches[span] = stretches[span].and_then(stretch) if span in stretches else stretch
    if (links.result() - sum(part.unled for part in parts)) % _WORD:
        raise IndexDoubtError(f"not every entry of {file.path} is in the chain of its slot")
    first, last = parts[0].first, parts[-1].last
    return IndexSurvey(file, stretches, first, last, stored.samples(), overlapping(spans, first, last + 1))


class _Pass:
    """A pass over the entries of a file from one number to another.

    Attributes
    ----------
    numbers : int
        How many entries there are.
    first, last : int
        Physical offsets that the first and the last of them name.
    stretches : dict of Span to Stretch
    unled : int
        The sum of the pairs of the entries, less that of their links: what the links of slots have to add up to.
    """

    def __init__(self, stored: IndexEntries, spans: Sequence[Span], begin: int, stop: int) -> None:
        self.numbers = stop - begin
        self.first = self.last = -1
        self.unled = 0
        self.stretches: dict[Span, Stretch] = {}
        self._spans = spans
        self._ends = np.array([end for _, end in spans], np.int64)
        for number, entries in stored.blocks(begin, stop):
            offsets = offsets_of(entries)
            if (offsets[1:] < offsets[:-1]).any() or offsets[-1] > _LARGEST:
                raise IndexDoubtError(f"the entries of {stored.file.path} are not in the order of the log")
            _check_order(self.last, int(offsets[0]), stored.file)
            self.unled += _unled(entries, number, stored.file)
            self.first = int(offsets[0]) if self.first < 0 else self.first
            self.last = int(offsets[-1])
            self._take(offsets, number)

    def _take(self, offsets: npt.NDArray[np.int64], number: int) -> None:
        """Add the entries of a block to the segments that they are of."""
        low, high = np.searchsorted(self._ends, (offsets[0], offsets[-1]), "right").tolist()
        for span in self._spans[low : high + 1]:
            begin, stop = np.searchsorted(offsets, span).tolist()
            if begin < stop:
                stretch = Stretch.of(offsets[begin:stop], number + begin)
                known = self.stretches.get(span)
                self.stretches[span] = stretch if known is None else known.and_then(stretch)


def _unled(entries: npt.NDArray[np.void], number: int, file: ListedIndexFile) -> int:
    """Return the sum of the pairs of entries, the first of which has a number, less that of their links.

    It is that of weight * (p(number) - p(previous)), where p(x) = x * (x + c), so that the second factor is
    (number - previous) * (number + previous + c).

    Raises
    ------
    IndexDoubtError
        If an entry leads to itself, or to a later one.
    """
    slots, hashes = np.uint32(file.slots), entries["key_hash"].astype(np.uint32)
    quotients = hashes // slots  # a remainder takes ten times as long
    quotients *= slots
    hashes -= quotients
    hashes += np.uint32(1)
    previous = entries["previous_index"].astype(np.uint64)
    numbers = np.arange(number, number + len(entries), dtype=np.uint64)
    if (previous >= numbers).any():
        raise IndexDoubtError(f"an entry of {file.path} leads to itself, or to a later one")
    terms = numbers - previous
    numbers += previous
    numbers += _ODD
    terms *= numbers
    terms *= _weights(hashes.astype(np.uint64))
    return int(np.add.reduce(terms))


def _slot_links(stored: IndexEntries) -> int:
    """Return the sum of the links of slots."""
    total = 0
    for slot, found in stored.slots():
        numbers = found.view(np.uint64)
        terms = numbers + _ODD
        terms *= numbers
        terms *= _weights(np.arange(slot + 1, slot + 1 + numbers.size, dtype=np.uint64))
        total += int(np.add.reduce(terms))
    return total


def _weights(slots: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the weights of slots, counted from 1: odd, so that a term is lost only if its other factor is 0."""
    weights = mixed(slots)
    weights |= np.uint64(1)
    return weights


def _check_order(before: int, after: int, file: ListedIndexFile) -> None:
    """Check that an entry names no record before that of the entry before it, nor one before the log's first byte."""
    if after < max(before, 0):
        raise IndexDoubtError(f"the entries of {file.path} are not in the order of the log")
