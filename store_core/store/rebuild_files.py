# SPDX-License-Identifier: Apache-2.0
"""Writes the queues and the index of a rebuild, each by one process, beside what is there.

A queue is written under a name of its own and moved to its place when it is whole and on disk. So a task that fails,
or is run twice, leaves a queue as it should be or none; which task was first makes no difference, as all write the
same bytes.
"""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.index_files import INDEX_DIRECTORY
from store_core.queue.index_service import IndexService
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, queue_path
from store_core.store.unit_gaps import UnitGap, UnitGaps

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.queue.consume_queue_table import Queue
    from store_core.queue.index_pieces import IndexEntries
    from store_core.queue.unit_rows import UnitRows
    from store_core.store.rebuild_scan import RebuildRules

__all__ = ["IndexReport", "IndexWriter", "QueueReport", "QueueWriter"]

_KINDS: Final = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE)
_ALREADY_THERE: Final = (errno.ENOTEMPTY, errno.EEXIST)


@dataclass(frozen=True, slots=True)
class QueueReport:
    """A queue that was rebuilt.

    Attributes
    ----------
    topic : str
    queue_id : int
    units : int
        Records that were indexed in it.
    min_offset, max_offset : int
        Its bounds now.
    gap_count : int
        Where the queue offsets of the log do not go on by one; a broker files such records as is done here.
    gaps : tuple of UnitGap
        The first of them.
    """

    topic: str
    queue_id: int
    units: int
    min_offset: int
    max_offset: int
    gap_count: int = 0
    gaps: tuple[UnitGap, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexReport:
    """An index that was rebuilt.

    Attributes
    ----------
    files, entries : int
    full_timestamp : int
        End time of the last full file, ms, as the checkpoint notes it; 0 without one.
    """

    files: int
    entries: int
    full_timestamp: int


class QueueWriter:
    """Writes one queue: `add` its units in log order, then `finish`.

    Parameters
    ----------
    store_root : Path
        The store; with `since_offset` its queue is taken over up to there.
    target_root : Path
        Below it the queue gets its place.
    attempt_root : Path
        This attempt's own directory, on the same file system.
    """

    def __init__(  # noqa: PLR0913 -- which queue, by what rules, and where
        self,
        topic: str,
        queue_id: int,
        rules: RebuildRules,
        store_root: Path,
        target_root: Path,
        attempt_root: Path,
        file_system: FileSystem,
        clock: Clock,
    ) -> None:
        self._topic = topic
        self._queue_id = queue_id
        self._rules = rules
        self._target_root = target_root
        self._attempt_root = attempt_root
        self._file_system = file_system
        if rules.since_offset:
            self._copy_from(store_root)
        self._failed = False
        self._queues = ConsumeQueueStore(
            attempt_root, rules.queue_rules, file_system, clock, on_put=_ignore, on_error=self._fail, max_queues=1
        )
        if rules.since_offset:
            self._queues.load()
            self._queues.recover()
            self._queues.truncate_dirty(rules.since_offset)
        self._units = 0
        self._gaps = UnitGaps(None if rules.since_offset == 0 else self._queue.max_offset_in_queue)

    def _fail(self) -> None:
        self._failed = True

    @property
    def _queue(self) -> Queue:
        return self._queues.find_or_create(self._topic, self._queue_id)

    def _copy_from(self, store_root: Path) -> None:
        for kind in _KINDS:
            source = queue_path(store_root / kind, self._topic, self._queue_id)
            if source.is_dir():
                target = queue_path(self._attempt_root / kind, self._topic, self._queue_id)
                self._file_system.make_directories(target.parent)
                shutil.copytree(source, target)

    def add(self, units: UnitRows) -> None:
        """Put units behind those before."""
        self._units += len(units.row)
        if not isinstance(self._queue, BatchConsumeQueue):
            self._gaps.look_at(units)
        self._queues.put_units(self._topic, self._queue_id, units)

    def finish(self) -> QueueReport:
        """Bring the queue to disk and to its place.

        Raises
        ------
        OSError
            If it can't be written; then nothing is in its place.
        """
        queue = self._queue
        while not queue.flush(0):
            pass
        if self._failed:
            raise OSError(
                errno.EIO, f"queue {self._topic}-{self._queue_id} could not be written", str(self._target_root)
            )
        report = QueueReport(
            self._topic,
            self._queue_id,
            self._units,
            queue.min_offset_in_queue,
            queue.max_offset_in_queue,
            self._gaps.count,
            tuple(self._gaps.first),
        )
        self._queues.close()
        for kind in _KINDS:
            self._move(kind)
        return report

    def _move(self, kind: str) -> None:
        source = queue_path(self._attempt_root / kind, self._topic, self._queue_id)
        if self._file_system.status(source) is None:
            return
        target = queue_path(self._target_root / kind, self._topic, self._queue_id)
        self._file_system.sync_directory(source)
        self._file_system.make_directories(target.parent)
        try:
            self._file_system.rename(source, target)
        except OSError as error:
            if error.errno not in _ALREADY_THERE:
                raise
            shutil.rmtree(source)  # another run of this task was first, with the same bytes
        self._file_system.sync_directory(target.parent)


def _ignore(_store_timestamp: int) -> None:
    """Nobody keeps a checkpoint while queues are rebuilt."""


class IndexWriter:
    """Writes the index: `add` entries in log order, then `finish`; parameters as of `QueueWriter`."""

    def __init__(  # noqa: PLR0913 -- by what rules, and where
        self,
        rules: RebuildRules,
        target_root: Path,
        attempt_root: Path,
        file_system: FileSystem,
        clock: Clock,
        time_zone: tzinfo | None = None,
    ) -> None:
        self._source = attempt_root / INDEX_DIRECTORY
        self._target = target_root / INDEX_DIRECTORY
        self._file_system = file_system
        self._entries = 0
        self._full_timestamp = 0
        self._index = IndexService(
            self._source, rules.queue_rules, file_system, clock, on_full=self._note_full, time_zone=time_zone
        )

    def _note_full(self, end_timestamp: int) -> None:
        self._full_timestamp = end_timestamp

    def add(self, entries: IndexEntries) -> None:
        """Put entries behind those before."""
        self._entries += entries.rows.size
        self._index.put_entries(
            entries.physical_offsets, entries.store_timestamps, entries.rows, entries.hashes, write_back=False
        )

    def finish(self) -> IndexReport:
        """Bring the index to disk and to its place.

        Raises
        ------
        OSError
            If it can't be written; then nothing is in its place.
        """
        if self._index.failure is not None:
            raise self._index.failure
        self._index.flush()
        files = len(self._index.files)
        self._index.close()
        if files:
            self._file_system.sync_directory(self._source)
            self._file_system.make_directories(self._target.parent)
            try:
                self._file_system.rename(self._source, self._target)
            except OSError as error:
                if error.errno not in _ALREADY_THERE:
                    raise
                shutil.rmtree(self._source)
            self._file_system.sync_directory(self._target.parent)
        return IndexReport(files, self._entries, self._full_timestamp)
