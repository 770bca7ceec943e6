# SPDX-License-Identifier: Apache-2.0
"""The index of a rebuild: its entries compared with those of a store, or written into files.

One process writes all files, or, if there are several, a task writes each.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from store_core.errors import UnsafeSizeError
from store_core.files.file_sync import DeferredSyncFileSystem
from store_core.files.machine import keep_freed_memory
from store_core.files.names import INDEX_DIRECTORY
from store_core.format.columnar.java_hashes import positive_hashes
from store_core.queue.index_file import IndexFile
from store_core.queue.index_format import IndexEntries, MessageKeys
from store_core.queue.index_service import IndexService, index_file_name, next_index_file_name
from store_core.snapshot.index import Index, KeyFile, LoadedIndex
from store_core.store.parts import RunReader, SpilledRun, unpacked
from store_core.store.rebuild.swap import RebuildAttempt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.file_system import FileSystem
    from store_core.files.machine import Clock
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.queue_path import QueueRules
    from store_core.store.rebuild.findings import LostRanges


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
        offsets = batch.physical_offset
        numbers = (offsets - self._begin << _HASH_BITS).take(rows) | keys.hashes
        if not _all_between(offsets, self._begin, self._end):
            inside = ((offsets >= self._begin) & (offsets < self._end)).take(rows)
            numbers, is_tag = numbers[inside], is_tag[inside]
        self._ours.append(numbers)
        self._is_tag.append(is_tag)

    def finish(self, end: int, lost: LostRanges) -> IndexDifferences:
        """Return how many entries are missing from the store's index, and how many extra ones are in it.

        * `end`: Physical offset where the log ended here; extra entries after it do not count, as they may be newer
          than what was read.
        * `lost`: Of the range.
        """
        every = np.concatenate([np.empty(0, np.int64), *self._ours])
        is_tag = np.concatenate([np.empty(0, np.bool_), *self._is_tag])
        theirs = np.concatenate([np.empty(0, np.int64), *self._stored(min(end, self._end))])
        if np.array_equal(every, theirs):  # a broker puts them in the order of the log
            return IndexDifferences(has_tags=bool(is_tag.any()))
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
        wrong = _by_kind(lacking[~is_unread], other[unknown & ~is_lost])
        return IndexDifferences(
            len(ours) - shared,
            len(theirs) - shared,
            len(theirs) - shared - int(other_counts[unknown].sum()),
            int(other_counts[is_lost].sum()),
            int(np.count_nonzero(is_unread)),
            len(wrong["hash"]),
            tuple(chain.from_iterable(self._first(kind, numbers) for kind, numbers in wrong.items())),
        )

    def _first(self, kind: str, numbers: npt.NDArray[np.int64]) -> Iterator[IndexDifference]:
        for number in numbers[:_KEPT].tolist():
            yield IndexDifference(kind, self._begin + (number >> _HASH_BITS), number & (1 << _HASH_BITS) - 1)

    def _stored(self, end: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the entries of this range; one that leads out of its file's bounds is left to who checks the files."""
        for file in self._index.used:
            first, stop = max(file.reach[0], self._begin), min(file.reach[1] + 1, end)
            for entries in file.between(first, stop):
                offsets, hashes = entries["physical_offset"].astype(np.int64), entries["key_hash"].astype(np.int32)
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


def _by_kind(missing: npt.NDArray[np.int64], extra: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.int64]]:
    """Return numbers that only one side has by `IndexDifference.kind`.

    The n-th extra entry of a record stands for its n-th missing one, with another hash: then the missing one is left
    out.
    """
    mine, other = _ranked(missing >> _HASH_BITS), _ranked(extra >> _HASH_BITS)
    is_there, stands = np.isin(mine, other, assume_unique=True), np.isin(other, mine, assume_unique=True)
    return {"missing": missing[~is_there], "extra": extra[~stands], "hash": extra[stands]}


def _ranked(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Make ascending offsets distinct, by their ranks among equal ones."""
    ranks = np.arange(len(offsets)) - np.searchsorted(offsets, offsets)
    ranked: npt.NDArray[np.int64] = (offsets << _RANK_BITS) | np.minimum(ranks, (1 << _RANK_BITS) - 1)
    return ranked


@dataclass(frozen=True, slots=True)
class IndexReport:
    """Result of rebuilding the index."""

    files: int
    entries: int
    full_timestamp: int  # end time of the last full file, ms, as noted in the checkpoint; 0 if there is none


class IndexWriter:
    """Writes the index below a root, after the files that are kept: `add` keys in log order, then `finish`."""

    def __init__(self, rules: QueueRules, kept: KeptIndex, root: Path, clock: Clock) -> None:
        directory, file_system = root / INDEX_DIRECTORY, DeferredSyncFileSystem()
        self._entries = 0
        kept.copy_to(directory, file_system)
        self._full_timestamp = kept.end_timestamp
        self._kept_end = kept.end_physical_offset
        self._skipped = kept.end_entries
        self._index = IndexService(directory, rules, file_system, clock, on_full=self._note_full)
        self._index.load(last_exit_ok=True, index_msg_timestamp=0)

    def _note_full(self, end_timestamp: int) -> None:
        self._full_timestamp = end_timestamp

    def add(self, keys: MessageKeys) -> None:
        """Append the keys of some messages."""
        if self._skipped:
            again = np.flatnonzero(keys.physical_offsets[keys.rows] == self._kept_end)[: self._skipped]
            self._skipped -= len(again)
            keys = keys._replace(rows=np.delete(keys.rows, again), hashes=np.delete(keys.hashes, again))
        self._entries += keys.rows.size
        self._index.put_keys(keys)

    def finish(self) -> IndexReport:
        """Close the completed files, and report what is in them."""
        self._index.flush()
        if self._index.failure is not None:
            raise self._index.failure
        files = len(self._index.files)
        self._index.close()
        return IndexReport(files, self._entries, self._full_timestamp)


@dataclass(frozen=True, slots=True)
class KeptIndex:
    """Leading index files that are full, and end before the offset from which records are put again.

    An entry can't be removed from a file, so a file is kept whole or not at all.
    """

    paths: tuple[Path, ...] = ()
    end_physical_offset: int = 0
    """Offset of the last entry's record; the index continues with this record, because more keys of it may be missing.
    0 if there are no files."""
    end_timestamp: int = 0  # store time of that record, ms
    end_entries: int = 0  # number of entries of that record

    @classmethod
    def find(cls, store_root: Path, rules: QueueRules, last_offset: int, file_system: FileSystem) -> Self:
        """Find the files of which no record starts after `last_offset`."""
        if last_offset <= 0:
            return cls()
        kept: list[KeyFile] = []
        for file in Index(store_root, file_system).loaded(rules).files:
            if not file.is_full or file.header.end_physical_offset > last_offset:
                break
            kept.append(file)
        if not kept:
            return cls()
        last = kept[-1].header
        of_last = (file for file in kept if file.header.end_physical_offset == last.end_physical_offset)
        windows = (entries for file in of_last for _, entries in file.windows())
        entries = sum(int(np.count_nonzero(some["physical_offset"] == last.end_physical_offset)) for some in windows)
        return cls(tuple(file.path for file in kept), last.end_physical_offset, last.end_timestamp, entries)

    def copy_to(self, directory: Path, file_system: FileSystem) -> None:
        """Copy the files."""
        if self.paths:
            file_system.make_directories(directory)
        for path in self.paths:
            shutil.copy2(path, directory / path.name)


@dataclass(frozen=True, slots=True)
class IndexSlice:
    """The entries of one index file."""

    runs: tuple[SpilledRun, ...]
    """Consecutive runs of entries. The first holds the entry before those of this file, if there is one."""
    skipped: int  # entries of the first run that belong to earlier files; 0 only for the first file
    count: int  # entries of this file
    is_last: bool  # whether no other file has entries
    is_followed: bool
    """Whether this file is the last, and full, and a message without keys comes after its last entry: a store then has
    created another file, which is empty."""


def slice_entries(runs: Sequence[SpilledRun], reader: RunReader, capacity: int) -> list[IndexSlice]:
    """Divide entries among index files.

    * `runs`: All entries in log order; runs without a message are left out.
    * `capacity`: Entries of a full file: one fewer than ``maxIndexNum``.

    Returns: One for each file with entries; none at all if offsets descend: an index has no entry of a message that
    claims an offset before one that it has, so only who puts all of them can count them.
    """
    if any(run.reach is None for run in runs):
        return []
    reaches = [run.reach for run in runs if run.reach is not None]
    if any(after[0] < before[1] for before, after in pairwise([(0, 0), *reaches])):
        return []
    counts = np.array([run.entries for run in runs], np.int64)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    slices = []
    for begin in range(0, total, capacity):
        stop = min(begin + capacity, total)
        first, last = np.searchsorted(ends, [max(begin - 1, 0), stop - 1], "right").tolist()
        skipped = begin - int(ends[first] - counts[first])
        is_last = stop == total
        is_followed = is_last and stop - begin == capacity and _is_message_after(runs[last:], reader)
        slices.append(IndexSlice(tuple(runs[first : last + 1]), skipped, stop - begin, is_last, is_followed))
    return slices


def _is_message_after(runs: Sequence[SpilledRun], reader: RunReader) -> bool:
    """Return whether a message comes after the last entry, which is in the first of these runs."""
    return len(runs) > 1 or MessageKeys.of_table(unpacked(reader.read(runs[0]))).ends_without_key


class _FileTask(NamedTuple):
    """All that one task needs, so that a task is not sent the entries of all others with the job."""

    target_root: Path
    rules: QueueRules
    name: str
    entries: IndexSlice


@dataclass(frozen=True)
class IndexFilesJob:
    """Writes the files of an index, each in a task of its own; see `store_core.store.parts.Job`.

    The files are those that `IndexWriter` makes of the same entries, but for their names.
    """

    slices: tuple[IndexSlice, ...]  # one for each file
    rules: QueueRules
    target_root: Path  # the files are written below ``index`` here
    clock: Clock
    """Names the first file; each later one is named a millisecond later, so that names are unique and in order."""

    def plan(self) -> Sequence[_FileTask]:
        """Return the tasks, in the order of the files."""
        tasks, name = [], index_file_name(self.clock.now_ms())
        for each in self.slices:
            tasks.append(_FileTask(self.target_root, self.rules, name, each))
            name = next_index_file_name(name)
        return tasks

    @staticmethod
    def run(task: _FileTask, /) -> IndexReport:
        """Write one file."""
        keep_freed_memory()
        with RebuildAttempt(task.target_root) as attempt, RunReader() as reader:
            report = _write(attempt.root / INDEX_DIRECTORY / task.name, task.rules, task.entries, reader)
            attempt.settle_index_files()
        return report

    def merge(self, partials: Iterable[IndexReport], /) -> IndexReport:
        """Make one report."""
        reports = list(partials)
        full = [report.full_timestamp for report in reports if report.full_timestamp > 0]
        return IndexReport(
            sum(report.files for report in reports), sum(report.entries for report in reports), full[-1] if full else 0
        )


def _write(path: Path, rules: QueueRules, entries: IndexSlice, reader: RunReader) -> IndexReport:
    blocks = _blocks(entries, reader)
    before = next(blocks)
    ends = (int(before.physical_offsets[-1]), int(before.store_timestamps[-1])) if entries.skipped else (0, 0)
    file = IndexFile.create(path, rules, DeferredSyncFileSystem(), *ends)
    for block in blocks:
        file.put_entries(block)
    file.flush()
    if entries.is_followed:
        ends = file.end_physical_offset, file.end_timestamp
        empty = IndexFile.create(
            path.with_name(next_index_file_name(path.name)), rules, DeferredSyncFileSystem(), *ends
        )
        empty.flush(with_header=rules.features.writes_header_of_unused_index)
        empty.close()
    file.close()
    is_noted = not entries.is_last or entries.is_followed
    return IndexReport(1 + entries.is_followed, entries.count, file.end_timestamp if is_noted else 0)


def _blocks(entries: IndexSlice, reader: RunReader) -> Iterator[IndexEntries]:
    """Yield the skipped entries of the first run, then those of the file."""
    left = entries.count
    for number, run in enumerate(entries.runs):
        block = MessageKeys.of_table(unpacked(reader.read(run))).entries
        begin = 0 if number else entries.skipped
        if not number:
            yield block.part(0, begin)
        own = block.part(begin, begin + left)
        left -= own.hashes.size
        yield own
