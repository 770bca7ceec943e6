# SPDX-License-Identifier: Apache-2.0
"""Comparing the index entries derived from a part of the log with those in a store's index."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from store_core.errors import UnsafeSizeError
from store_core.format.columnar.java_hashes import positive_hashes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.queue_path import QueueRules
    from store_core.snapshot.index import LoadedIndex
    from store_core.store.rebuild.lost_ranges import LostRanges


_HASH_BITS: Final = 31
_RANK_BITS: Final = 30
_KEPT: Final = 1 << 12
"""How many differences of a kind are kept: who judges them looks at each."""

_MOST_BYTES: Final = 1 << 32
"""Maximum bytes of log in one comparison: a position and a hash are packed into one 64-bit number."""


class IndexDifference(NamedTuple):
    """An entry that only the log has, or only the index."""

    kind: str  # ``"missing"`` from the index, ``"extra"`` in it, or ``"hash"``: an entry of the record has another hash
    physical_offset: int
    key_hash: int  # positive hash of ``topic#key``


class IndexDifferences(NamedTuple):
    """How the entries of a part of the log differ from those of the index.

    * `missing`, `extra`: Numbers of entries.
    """

    missing: int = 0
    extra: int = 0
    repeated: int = 0  # how many of the extra ones repeat an entry of the log, as after a crash; they do no harm
    lost: int = 0  # how many of the extra ones are those of records that are damaged now
    unread: int = 0  # how many of the missing ones may be in files that the release does not load
    wrong_hash: int = 0  # how many of the missing ones are there, but with another hash; each is also an extra one
    first: tuple[IndexDifference, ...] = ()  # the first of each kind, without those that the other numbers count
    has_tags: bool = False  # whether the index has the tags of some of the records
    untagged: int = 0
    """How many records before the first of these have tags that are not in the index: none if the release does not
    index tags. They do not count as missing, as releases that do not index tags may have written them."""
    untagged_first: tuple[IndexDifference, ...] = ()  # the first of these

    def plus(self, other: IndexDifferences) -> IndexDifferences:
        """Return the differences of two parts of the log as those of both."""
        pairs: list[tuple[Any, Any]] = list(zip(self, other, strict=True))
        joined = (mine + its for mine, its in pairs)
        return IndexDifferences(*joined)._replace(has_tags=self.has_tags or other.has_tags)

    def after_tags(self) -> IndexDifferences:
        """Return what these are after records that have their tags in the index: tags without an entry are missing."""
        return self._replace(
            missing=self.missing + self.untagged, first=self.first + self.untagged_first, untagged=0, untagged_first=()
        )


NO_DIFFERENCES: Final = IndexDifferences()


class IndexComparison:
    """Compares multisets of (hash, physical offset), whatever the files' sizes; `add` batches, then `finish`.

    The slots and chains that lead to the entries, and the entries' times, are not compared. A broker that indexes tags
    may serve a store in which an earlier release did not, or the other way round. So an entry for tags is right by the
    rules of any release, and one is missing only after a record that has it.

    * `begin`, `end`: Physical offsets of the range in which the compared records start.
    """

    def __init__(self, index: LoadedIndex, rules: QueueRules, begin: int, end: int) -> None:
        if end - begin > _MOST_BYTES:
            most, found = f"at most {_MOST_BYTES} bytes", str(end - begin)
            raise UnsafeSizeError("segment too large", str(index.directory), begin, most, found)
        self._index = index
        self._rules = rules
        self._begin = begin
        self._end = end
        self._ours: list[npt.NDArray[np.int64]] = []
        self._is_tag: list[npt.NDArray[np.bool_]] = []

    def add(self, batch: DispatchBatch) -> None:
        """Add the entries derived from a batch."""
        keys = batch.index_hashes(with_tags=True)
        rows, is_tag = keys.rows, np.zeros(len(keys.rows), np.bool_)
        last = np.cumsum(np.bincount(rows, minlength=len(batch))) - 1
        is_tag[last.take(batch.tagged_rows)] = True
        numbers = (batch.physical_offset - self._begin << _HASH_BITS).take(rows) | keys.hashes
        if not _all_between(batch.physical_offset, self._begin, self._end):
            inside = self._is_inside(batch.physical_offset).take(rows)
            numbers, is_tag = numbers[inside], is_tag[inside]
        self._ours.append(numbers)
        self._is_tag.append(is_tag)

    def _is_inside(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        inside: npt.NDArray[np.bool_] = (offsets >= self._begin) & (offsets < self._end)
        return inside

    def finish(self, end: int, lost: LostRanges) -> IndexDifferences:
        """Return how many entries are missing from the store's index, and how many extra ones are in it.

        * `end`: Physical offset where the log ended here; extra entries after it do not count, as they may be newer
          than what was read.
        * `lost`: Of the range.
        """
        stored = self._stored(min(end, self._end))
        if _are_equal(self._ours, stored):  # a broker puts them in the order of the log
            return IndexDifferences(has_tags=any(bool(piece.any()) for piece in self._is_tag))
        every = np.concatenate([np.empty(0, np.int64), *self._ours])
        is_tag = np.concatenate([np.empty(0, np.bool_), *self._is_tag])
        theirs = np.concatenate([np.empty(0, np.int64), *stored])
        is_expected = _expected(every, is_tag, theirs, indexes_tags=self._rules.features.indexes_tags)
        found = self._compared(every[is_expected], theirs, lost)
        if not self._rules.features.indexes_tags:
            return found
        untagged = every[~is_expected]
        untagged = untagged[~self._index.may_have((untagged >> _HASH_BITS) + self._begin)]
        return found._replace(
            has_tags=bool((is_tag & is_expected).any()),
            untagged=len(untagged),
            untagged_first=tuple(self._first("missing", untagged)),
        )

    def _compared(
        self, ours: npt.NDArray[np.int64], theirs: npt.NDArray[np.int64], lost: LostRanges
    ) -> IndexDifferences:
        if np.array_equal(ours, theirs):
            return IndexDifferences()
        mine, my_counts = np.unique(ours, return_counts=True)
        other, other_counts = np.unique(theirs, return_counts=True)
        common, at, there = np.intersect1d(mine, other, assume_unique=True, return_indices=True)
        shared = int(np.minimum(my_counts[at], other_counts[there]).sum()) if len(common) else 0
        unknown = np.isin(other, mine, assume_unique=True, invert=True)
        is_lost = unknown & lost.holds((other >> _HASH_BITS) + self._begin)
        lacking = mine[np.isin(mine, other, assume_unique=True, invert=True)]
        is_unread = self._index.may_have((lacking >> _HASH_BITS) + self._begin)
        wrong = _Unequal.of(lacking[~is_unread], other[unknown & ~is_lost])
        return IndexDifferences(
            len(ours) - shared,
            len(theirs) - shared,
            len(theirs) - shared - int(other_counts[unknown].sum()),
            int(other_counts[is_lost].sum()),
            int(np.count_nonzero(is_unread)),
            len(wrong.hashes),
            tuple(chain.from_iterable(self._first(kind, numbers) for kind, numbers in wrong.by_kind)),
        )

    def _first(self, kind: str, numbers: npt.NDArray[np.int64]) -> Iterator[IndexDifference]:
        for number in numbers[:_KEPT].tolist():
            yield IndexDifference(kind, self._begin + (number >> _HASH_BITS), number & (1 << _HASH_BITS) - 1)

    def _stored(self, end: int) -> list[npt.NDArray[np.int64]]:
        """Read the entries of this range from files that have some according to their bounds.

        An entry that leads out of its file's bounds is left to who checks the files.
        """
        found: list[npt.NDArray[np.int64]] = []
        for file in self._index.between(self._begin, end):
            least, most = file.reach
            for _, entries in file.windows():
                found += self._between(entries, max(least, self._begin), min(most + 1, end))
        return found

    def _between(self, entries: npt.NDArray[np.void], first: int, stop: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the numbers of those entries whose physical offset is at or after `first`, and below `stop`."""
        offsets = entries["physical_offset"].astype(np.int64)
        if int(offsets.max()) < first or int(offsets.min()) >= stop:
            return
        hashes = entries["key_hash"].astype(np.int32)
        if not _all_between(offsets, first, stop):
            inside = (offsets >= first) & (offsets < stop)
            hashes, offsets = hashes[inside], offsets[inside]
        yield (offsets - self._begin << _HASH_BITS) | positive_hashes(hashes)


def _all_between(offsets: npt.NDArray[np.int64], begin: int, end: int) -> bool:
    return not offsets.size or (int(offsets.min()) >= begin and int(offsets.max()) < end)


def _expected(
    every: npt.NDArray[np.int64], is_tag: npt.NDArray[np.bool_], theirs: npt.NDArray[np.int64], *, indexes_tags: bool
) -> npt.NDArray[np.bool_]:
    """Return which entries of the log the index should have: all, but of those for tags only some.

    If the release indexes tags, those from the first on that is there; an entry in its place, with a hash that the log
    does not have, counts as it; all of them, if there is no entry at all. If not, those that are there.
    """
    if indexes_tags and not theirs.size:
        return np.ones(every.size, np.bool_)
    if np.array_equal(every[~is_tag], theirs):
        return ~is_tag
    tags = every[is_tag]
    is_there = np.isin(tags, theirs)
    if indexes_tags:
        odd = theirs[np.isin(theirs, every, invert=True)]
        is_there |= np.isin(tags >> _HASH_BITS, odd >> _HASH_BITS)
        is_there = np.logical_or.accumulate(is_there)
    expected = ~is_tag
    expected[is_tag] = is_there
    return expected


def _are_equal(first: list[npt.NDArray[np.int64]], second: list[npt.NDArray[np.int64]]) -> bool:
    """Return whether two lists of pieces have the same numbers in the same order, wherever they were cut."""
    ends = [np.cumsum([0, *map(len, pieces)], dtype=np.int64) for pieces in (first, second)]
    if ends[0][-1] != ends[1][-1]:
        return False
    cuts = np.unique(np.concatenate(ends))
    pieces = (_cut(pieces, some, cuts) for pieces, some in zip((first, second), ends, strict=True))
    return all(np.array_equal(mine, its) for mine, its in zip(*pieces, strict=True))


def _cut(
    pieces: list[npt.NDArray[np.int64]], ends: npt.NDArray[np.int64], cuts: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield pieces between places, in ascending order, that include 0 and the ends of all pieces."""
    for begin, stop in pairwise(cuts.tolist()):
        number = int(np.searchsorted(ends, begin, "right")) - 1
        yield pieces[number][begin - int(ends[number]) : stop - int(ends[number])]


class _Unequal(NamedTuple):
    """Numbers that only one side has: of missing and of extra entries, and of extra ones that stand for a missing one.

    These have the physical offset of one, as the n-th extra entry of a record stands for its n-th missing one.
    """

    missing: npt.NDArray[np.int64]
    extra: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.int64]

    @classmethod
    def of(cls, missing: npt.NDArray[np.int64], extra: npt.NDArray[np.int64]) -> _Unequal:
        mine, other = _ranked(missing >> _HASH_BITS), _ranked(extra >> _HASH_BITS)
        is_there, stands = np.isin(mine, other, assume_unique=True), np.isin(other, mine, assume_unique=True)
        return cls(missing[~is_there], extra[~stands], extra[stands])

    @property
    def by_kind(self) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
        yield from zip(("missing", "extra", "hash"), self, strict=True)


def _ranked(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Make ascending offsets distinct, by their ranks among equal ones."""
    ranks = np.arange(len(offsets)) - np.searchsorted(offsets, offsets)
    ranked: npt.NDArray[np.int64] = (offsets << _RANK_BITS) | np.minimum(ranks, (1 << _RANK_BITS) - 1)
    return ranked
