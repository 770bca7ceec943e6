# SPDX-License-Identifier: Apache-2.0
"""An index of several files, written by a task per file: which entries each gets, and writing one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.files.deferred_sync import DeferredSyncFileSystem
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.queue.index.index_file import IndexFile
from store_core.queue.index.index_pieces import PACKED_COUNT_SIZE, packed_counts, unpack_entries
from store_core.queue.index.index_service import index_file_name, next_index_file_name
from store_core.store.memory import keep_freed_memory
from store_core.store.rebuild.attempt import RebuildAttempt
from store_core.store.rebuild.files import IndexReport
from store_core.store.rebuild.spill import RunReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.clock import Clock
    from store_core.queue.queue_path import QueueRules
    from store_core.store.rebuild.spill import SpilledRun

__all__ = ["IndexFilesJob", "IndexSlice", "slice_entries"]


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

    * `runs`: All entries in log order, as `pack_entries` encodes them.
    * `capacity`: Entries of a full file: one fewer than ``maxIndexNum``.

    Returns: One for each file with entries.
    """
    heads = [packed_counts(reader.read(run._replace(size=min(run.size, PACKED_COUNT_SIZE))), run.size) for run in runs]
    counts = np.array([entries for _, entries in heads], np.int64)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    slices = []
    for begin in range(0, total, capacity):
        stop = min(begin + capacity, total)
        first, last = np.searchsorted(ends, [max(begin - 1, 0), stop - 1], "right").tolist()
        skipped = begin - int(ends[first] - counts[first])
        is_last = stop == total
        is_followed = is_last and stop - begin == capacity and _is_message_after(runs[last:], heads[last:], reader)
        slices.append(IndexSlice(tuple(runs[first : last + 1]), skipped, stop - begin, is_last, is_followed))
    return slices


def _is_message_after(runs: Sequence[SpilledRun], heads: Sequence[tuple[int, int]], reader: RunReader) -> bool:
    """Return whether a message comes after the last entry, which is in the first of these runs."""
    if any(messages for messages, _ in heads[1:]):
        return True
    return int(unpack_entries(reader.read(runs[0])).rows[-1]) < heads[0][0] - 1


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
        file.put_entries(block.hashes, block.physical_offsets, block.store_timestamps)
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


class _Block(NamedTuple):
    """Consecutive entries: arrays of one length."""

    hashes: npt.NDArray[np.int32]
    physical_offsets: npt.NDArray[np.int64]
    store_timestamps: npt.NDArray[np.int64]

    def part(self, begin: int, stop: int) -> _Block:
        return _Block(self.hashes[begin:stop], self.physical_offsets[begin:stop], self.store_timestamps[begin:stop])


def _blocks(entries: IndexSlice, reader: RunReader) -> Iterator[_Block]:
    """Yield the skipped entries of the first run, then those of the file."""
    left = entries.count
    for number, run in enumerate(entries.runs):
        packed = unpack_entries(reader.read(run))
        block = _Block(packed.hashes, packed.physical_offsets[packed.rows], packed.store_timestamps[packed.rows])
        begin = 0 if number else entries.skipped
        if not number:
            yield block.part(0, begin)
        own = block.part(begin, begin + left)
        left -= own.hashes.size
        yield own
