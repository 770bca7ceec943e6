# SPDX-License-Identifier: Apache-2.0
"""Writing the queues and the index of a rebuild, each by one process into its own directory.

Where queue offsets do not increase by one, records are missing, or a segment is duplicated. A queue's files are
truncated before the first unit of a record that will be put again.
"""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from store_core.files.access import naming
from store_core.files.clock import WaitlessClock
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue
from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.index.index_service import IndexService
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, queue_path
from store_core.queue.units.batch_consume_queue_unit import BATCH_UNIT_DTYPE
from store_core.queue.units.consume_queue_unit import UNIT_DTYPE
from store_core.snapshot.index import Index
from store_core.store.rebuild.lost_ranges import GapFiller

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.queue.consume_queue.consume_queue_table import Queue
    from store_core.queue.index.index_pieces import IndexEntries
    from store_core.queue.queue_path import QueueRules
    from store_core.queue.units.queue_assignment import RefusedUnit
    from store_core.queue.units.unit_rows import UnitRows
    from store_core.snapshot.index import KeyFile
    from store_core.store.rebuild.lost_ranges import FillBudget, MissingOffsets
    from store_core.store.rebuild.options import RebuildRules

__all__ = [
    "QUEUE_KINDS",
    "IndexReport",
    "IndexWriter",
    "KeptIndex",
    "QueueReport",
    "QueueWriter",
    "UnitGap",
    "UnitGaps",
    "cut_queue",
]

_BLANK_SIZE: Final = 2**31 - 1


def cut_queue(directory: Path, since_offset: int, *, is_batch: bool) -> None:
    """Zero everything after the units of records before `since_offset`, and delete files without any.

    A queue's units are in log order, so the ones kept are at its beginning. A broker's own truncation
    (``truncateDirtyLogicFiles``) is not usable here: it takes whatever a file begins with for a unit.

    * `directory`: The queue's directory, not in use.
    * `since_offset`: Physical offset.
    * `is_batch`: Whether it is a batch queue.
    """
    dtype = BATCH_UNIT_DTYPE if is_batch else UNIT_DTYPE
    is_over = False
    for path in sorted(
        (path for path in directory.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name)
    ):
        units = np.fromfile(path, dtype)
        size = units["store_size"]
        is_blank = (size == _BLANK_SIZE) & (units["physical_offset"] == 0)
        is_kept = (size > 0) & (units["physical_offset"] >= 0) & (is_blank | (units["physical_offset"] < since_offset))
        kept = 0 if is_over else len(units) if is_kept.all() else int(is_kept.argmin())
        if not kept or is_blank[:kept].all():
            path.unlink()
        elif kept < len(units):
            units[kept:] = np.zeros(1, dtype)
            with naming(path), path.open("r+b") as file:
                file.write(units.tobytes())
        is_over |= kept < len(units)


_KEPT: Final = 20


class UnitGap(NamedTuple):
    """A record whose queue offset is not the next."""

    physical_offset: int
    queue_offset: int  # the record's queue offset
    expected: int  # one more than that of the previous record in this queue

    @property
    def kind(self) -> str:
        """``"jump"`` forward, ``"duplicate"`` of the previous one, or ``"back"``."""
        if self.queue_offset > self.expected:
            return "jump"
        return "duplicate" if self.queue_offset == self.expected - 1 else "back"


class UnitGaps:
    """Finds gaps between the units of one queue, in log order.

    * `expected`: The expected first index; None for any.

    * `first`: The first few.
    """

    def __init__(self, expected: int | None = None) -> None:
        self._expected = expected
        self.count = 0
        self.first: list[UnitGap] = []

    def expect(self, queue_offset: int) -> None:
        """Expect this offset next; earlier ones are known to be missing."""
        self._expected = queue_offset

    def look_at(self, units: UnitRows) -> None:
        """Examine the next units."""
        offsets = units.queue_offset
        if not len(offsets):
            return
        first = int(offsets[0]) if self._expected is None else self._expected
        expected = np.concatenate(([first], offsets[:-1] + 1))
        places = np.flatnonzero(offsets != expected)
        self.count += len(places)
        for place in places[: _KEPT - len(self.first)].tolist():
            self.first.append(UnitGap(int(units.physical_offset[place]), int(offsets[place]), int(expected[place])))
        self._expected = int(offsets[-1]) + 1


_REFUSED_KEPT: Final = 100

QUEUE_KINDS: Final = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE)
"""Directories with queues below a store's root."""


@dataclass(frozen=True, slots=True)
class QueueReport:
    """Result of rebuilding a queue.

    * `min_offset`, `max_offset`: Its bounds after the rebuild.
    """

    topic: str
    queue_id: int
    units: int  # number of records indexed in it
    min_offset: int
    max_offset: int
    gap_count: int = 0
    """Places where the log's queue offsets do not increase by one; such records are queued as a broker does."""
    gaps: tuple[UnitGap, ...] = ()  # the first of these
    missing_count: int = 0  # number of queue offsets whose records are lost to damage
    missing: tuple[MissingOffsets, ...] = ()  # the first ranges of these
    refused_count: int = 0
    """Number of records that did not fit, because the queue ends in the last file that a queue can have."""
    refused: tuple[RefusedUnit, ...] = ()  # the first of these


@dataclass(frozen=True, slots=True)
class IndexReport:
    """Result of rebuilding the index.

    * `files`, `entries`: Number of files, and of entries put.
    """

    files: int
    entries: int
    full_timestamp: int  # end time of the last full file, ms, as noted in the checkpoint; 0 if there is none


class QueueWriter:
    """Writes one queue: `add` its units in log order, then `finish`.

    * `store_root`: The store; with `since_offset` its queue is copied up to there.
    * `root`: Where the queue is written, below ``consumequeue`` and so on; with `since_offset`, used by no other
      writer.
    * `budget`: For a log read across damage: what is lost of it. If not given, a unit after a gap is put at the end of
      the queue, as in a broker.
    """

    def __init__(  # noqa: PLR0913 -- which queue, by which rules, and where
        self,
        topic: str,
        queue_id: int,
        rules: RebuildRules,
        store_root: Path,
        root: Path,
        file_system: FileSystem,
        clock: Clock,
        budget: FillBudget | None = None,
    ) -> None:
        self._topic = topic
        self._queue_id = queue_id
        self._root = root
        self._units = 0
        self._failed = False
        hasty = WaitlessClock(clock)  # who waits for room on the disk is the broker: a job is run again
        self._queues = ConsumeQueueStore(
            root, rules.queue_rules, file_system, hasty, on_put=_ignore, on_error=self._fail, max_queues=1
        )
        if rules.since_offset:
            self._take_over(store_root, file_system, rules.since_offset)
        expected = self._queue.max_offset_in_queue if rules.since_offset else 0
        self._gaps = UnitGaps(expected or None)
        queue = self._queue
        self._filler: GapFiller | None = None
        if budget is not None and isinstance(queue, ConsumeQueue):  # units of batch queues hold their own index
            self._filler = GapFiller(queue, budget)

    def _fail(self) -> None:
        self._failed = True

    @property
    def _queue(self) -> Queue:
        return self._queues.find_or_create(self._topic, self._queue_id)

    def _take_over(self, store_root: Path, file_system: FileSystem, since_offset: int) -> None:
        """Copy the existing queue, truncated before the first record that is put again."""
        for kind in QUEUE_KINDS:
            source = queue_path(store_root / kind, self._topic, self._queue_id)
            if source.is_dir():
                target = queue_path(self._root / kind, self._topic, self._queue_id)
                file_system.make_directories(target.parent)
                shutil.copytree(source, target)
                if kind != CONSUME_QUEUE_EXT:
                    cut_queue(target, since_offset, is_batch=kind == BATCH_CONSUME_QUEUE)
        self._queues.load()
        self._queues.recover()
        self._queues.clear_tails()

    def add(self, units: UnitRows) -> None:
        """Append units."""
        self._units += len(units.row)
        begin = 0
        for place in self._filler.places(units) if self._filler is not None else ():
            self._put(units.slice(begin, place))
            self._bridge(int(units.queue_offset[place]), int(units.physical_offset[place]))
            begin = place
        self._put(units.slice(begin, len(units.row)))

    def _put(self, units: UnitRows) -> None:
        if not isinstance(self._queue, BatchConsumeQueue):
            self._gaps.look_at(units)
        self._queues.put_units(self._topic, self._queue_id, units)

    def _bridge(self, queue_offset: int, physical_offset: int) -> None:
        if self._filler is not None and self._filler.bridge(queue_offset, physical_offset):
            self._gaps.expect(queue_offset)

    def finish(self) -> QueueReport:
        """Close the completed files of the queue, and report what is in them."""
        if self._failed:
            raise OSError(errno.EIO, f"queue {self._topic}-{self._queue_id} could not be written", str(self._root))
        queue = self._queue
        bounds = queue.min_offset_in_queue, queue.max_offset_in_queue
        self._queues.close()
        gaps, filler = self._gaps, self._filler
        refused, count = tuple(self._queues.refused[:_REFUSED_KEPT]), self._queues.refused_count
        report = QueueReport(
            self._topic, self._queue_id, self._units - count, *bounds, gaps.count, tuple(gaps.first),
            refused_count=count, refused=refused,
        )  # fmt: skip
        if filler is None:
            return report
        return replace(report, missing_count=filler.count, missing=tuple(filler.first))


def _ignore(_store_timestamp: int, _physical_offset: int) -> None:
    """Ignore the time: no checkpoint is kept while queues are rebuilt."""


class IndexWriter:
    """Writes the index: `add` entries in log order, then `finish`; parameters as of `QueueWriter`."""

    def __init__(  # noqa: PLR0913 -- by which rules, and where
        self,
        rules: RebuildRules,
        store_root: Path,
        root: Path,
        file_system: FileSystem,
        clock: Clock,
        time_zone: tzinfo | None = None,
    ) -> None:
        directory = root / INDEX_DIRECTORY
        self._entries = 0
        self._full_timestamp = 0
        kept = KeptIndex.find(store_root, rules.queue_rules, rules.index_since_offset, file_system)
        kept.copy_to(directory, file_system)
        self._full_timestamp = kept.end_timestamp
        self._kept_end = kept.end_physical_offset
        self._skipped = kept.end_entries
        self._index = IndexService(
            directory, rules.queue_rules, file_system, clock, on_full=self._note_full, time_zone=time_zone
        )
        self._index.load(last_exit_ok=True, index_msg_timestamp=0)

    def _note_full(self, end_timestamp: int) -> None:
        self._full_timestamp = end_timestamp

    def add(self, entries: IndexEntries) -> None:
        """Append entries."""
        rows, hashes = entries.rows, entries.hashes
        if self._skipped:
            again = np.flatnonzero(entries.physical_offsets[rows] == self._kept_end)[: self._skipped]
            self._skipped -= len(again)
            rows, hashes = np.delete(rows, again), np.delete(hashes, again)
        self._entries += rows.size
        self._index.put_entries(entries.physical_offsets, entries.store_timestamps, rows, hashes, write_back=False)

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
