# SPDX-License-Identifier: Apache-2.0
"""Writing the index from entries: by one process, or, if it has several files, by a task per file."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from store_core.files.file_sync import DeferredSyncFileSystem
from store_core.files.names import INDEX_DIRECTORY
from store_core.queue.index_file import IndexFile
from store_core.queue.index_format import IndexEntries, MessageKeys
from store_core.queue.index_service import IndexService, index_file_name, next_index_file_name
from store_core.snapshot.index import Index, KeyFile
from store_core.store.memory import keep_freed_memory
from store_core.store.rebuild.spill import RunReader, SpilledRun, unpacked
from store_core.store.rebuild.swap import RebuildAttempt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.queue.queue_path import QueueRules
    from store_core.store.rebuild.options import RebuildRules


@dataclass(frozen=True, slots=True)
class IndexReport:
    """Result of rebuilding the index.

    * `files`, `entries`: Number of files, and of entries put.
    """

    files: int
    entries: int
    full_timestamp: int  # end time of the last full file, ms, as noted in the checkpoint; 0 if there is none


class IndexWriter:
    """Writes the index below a root: `add` keys in log order, then `finish`."""

    def __init__(self, rules: RebuildRules, store_root: Path, root: Path, clock: Clock) -> None:
        directory, file_system = root / INDEX_DIRECTORY, DeferredSyncFileSystem()
        self._entries = 0
        self._full_timestamp = 0
        kept = KeptIndex.find(store_root, rules.queue_rules, rules.index_since_offset, file_system)
        kept.copy_to(directory, file_system)
        self._full_timestamp = kept.end_timestamp
        self._kept_end = kept.end_physical_offset
        self._skipped = kept.end_entries
        self._index = IndexService(directory, rules.queue_rules, file_system, clock, on_full=self._note_full)
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
        self._index.put_keys(keys, write_back=False)

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
        _write_empty(path.with_name(next_index_file_name(path.name)), rules, file)
    file.close()
    is_noted = not entries.is_last or entries.is_followed
    return IndexReport(1 + entries.is_followed, entries.count, file.end_timestamp if is_noted else 0)


def _write_empty(path: Path, rules: QueueRules, before: IndexFile) -> None:
    ends = before.end_physical_offset, before.end_timestamp
    file = IndexFile.create(path, rules, DeferredSyncFileSystem(), *ends)
    file.flush(with_header=rules.features.writes_header_of_unused_index)
    file.close()


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
