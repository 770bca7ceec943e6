# SPDX-License-Identifier: Apache-2.0
"""Adopting records that another writer has appended to the segments of an open store."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.errors import StoreError
from store_core.files.file_system import FileSystem, write_all
from store_core.files.mapped_file import file_name_of
from store_core.format.record.encode import blank_head, has_room
from store_core.snapshot.config import REWOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.queue.dispatch.stored_batch import KnownColumns
    from store_core.store.put.commit_log import CommitLog
    from store_core.store.reput import ReputMessageService
    from store_core.store.store_state import StoreCheckpoint


_LOG: Final = logging.getLogger("store_core")


@dataclass(frozen=True, slots=True)
class AppendPlace:
    """Where a log ends."""

    directory: Path  # directory of the segments
    file_size: int  # bytes of a segment
    last_path: Path | None = None  # file of the last segment; None if there is none
    last_start: int = 0  # its physical offset
    position: int = 0  # where the log ends in the last segment, in bytes from its start

    @property
    def room(self) -> int:
        """Bytes left in the last segment."""
        return self.file_size - self.position if self.last_path is not None else 0

    @property
    def end_offset(self) -> int:
        """Physical offset of the log's end."""
        return self.last_start + self.position

    @property
    def next_start(self) -> int:
        """Physical offset of the next new segment."""
        return self.last_start + self.file_size if self.last_path is not None else 0


def make_place(queue: MappedFileQueue, file_system: FileSystem) -> AppendPlace:
    """Return where the next record of a log goes, in a segment that can still be closed with a blank record.

    If the last segment has less room than a blank record needs, it is closed and an empty next one is created. Both are
    on disk on return, and neither changes which records the log holds.
    """
    directory, size = queue.paths.paths[0], queue.file_size
    last = queue.last_mapped_file
    if last is None:
        return AppendPlace(directory, size)
    position = last.wrote_position
    if has_room(0, size - position):
        return AppendPlace(directory, size, last.path, last.file_from_offset, position)
    file = file_system.open(last.path)
    write_all(file, memoryview(blank_head(size - position)), position)
    file.sync()
    path = directory / file_name_of(last.end_offset)
    file_system.make(path, size).close()
    file_system.sync_directory(directory)
    return AppendPlace(directory, size, path, last.end_offset)


class LogAdoption:
    """Makes an open store adopt records that were written to its segments by another writer.

    Made by `DefaultMessageStore.prepare_adoption` before the first record is written. The writer starts at `place`,
    with queue offsets from `offsets`, which it advances. Then call one of:

    * `adopt`, once they are on disk and part of the log;
    * `restore_checkpoint`, if none of them is part of the log after all;
    * `leave_to_recovery`, if that is unknown, or if the next opening of the store is to update queues and index.

    Parameters
    ----------
    commit_log : CommitLog
    checkpoint : StoreCheckpoint
    reput : ReputMessageService
        Dispatches the records to queues and index.
    file_system : FileSystem
    complete_index : callable
        As the attribute.

    Attributes
    ----------
    place : AppendPlace
        Where the records must begin.
    offsets : QueueOffsets
        The next index of every queue: a copy of the store's own.
    complete_index : callable
        Indexes what earlier appends left out, see `StoreServices.complete_index`.

    Raises
    ------
    OSError
        If a system call fails.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        checkpoint: StoreCheckpoint,
        reput: ReputMessageService,
        file_system: FileSystem,
        complete_index: Callable[[int], bool],
    ) -> None:
        self._commit_log = commit_log
        self._checkpoint = checkpoint
        self._reput = reput
        self._end = commit_log.append_offset
        self._times_before = checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp
        self._queues_before = checkpoint.logics_physical_offset, checkpoint.last_put
        self.place = make_place(commit_log.mapped_file_queue, file_system)
        self.complete_index = complete_index
        self.offsets = commit_log.queue_offsets.copy()

    def rewind_checkpoint(self) -> None:
        """Make every recovery from now on start at the first segment, whatever that holds; durable on return.

        Needed before several new segments become part of the log: only a recovery that starts before them sees whether
        the segment that leads to them was closed.

        Raises
        ------
        OSError
            If a system call fails.
        """
        self._set_checkpoint_times(REWOUND, REWOUND)
        self._checkpoint.logics_physical_offset, self._checkpoint.last_put = 0, (0, 0)
        self._checkpoint.flush()

    def restore_checkpoint(self) -> None:
        """Restore the checkpoint's old values; they are written when the store next writes it."""
        self._set_checkpoint_times(*self._times_before)
        self._checkpoint.logics_physical_offset, self._checkpoint.last_put = self._queues_before

    def leave_to_recovery(self) -> None:
        """Refuse further messages and keep the ``abort`` file, so that the next opening recovers the store.

        A rewound checkpoint stays rewound.
        """
        self._commit_log.refuse_puts()

    def adopt(
        self, begin_offset: int, end_offset: int, store_timestamp: int, known: Iterable[KnownColumns] = ()
    ) -> None:
        """Extend the log over the records, dispatch them, and advance the checkpoint over them, in this order.

        Nothing else is dispatched meanwhile, so `known` is for the records that are dispatched next. The records are
        part of the log in any case. If one of the steps fails, or queues or index can't be written, the error is
        logged, the store refuses further messages, and the checkpoint is left as it is for the next recovery.

        Parameters
        ----------
        begin_offset, end_offset : int
            Physical offsets at which the first record begins and the last one ends. All of them are on disk.
        store_timestamp : int
            Store time of the last record, ms.
        known : iterable of KnownColumns
            Columns of the first of these records, which then need not be read.
        """
        try:
            with self._reput.paused():
                is_next = self._reput.reput_from_offset in (self._end, begin_offset)
                self._commit_log.adopt(self._end, end_offset, store_timestamp, self.offsets)
                self._reput.run_once(gather=True, known=known if is_next else ())
        except (OSError, StoreError) as error:
            self.leave_to_recovery()
            _LOG.error(
                "the records from %d to %d are in the log, but not all are in queues and index yet: %s",
                begin_offset,
                end_offset,
                error,
            )
        if self._commit_log.running_flags.is_writeable:
            log_time, queue_time = self._times_before
            self._set_checkpoint_times(
                max(log_time, store_timestamp), max(queue_time, self._checkpoint.logics_msg_timestamp)
            )
            flushed, _ = self._queues_before
            self._checkpoint.logics_physical_offset = max(flushed, self._checkpoint.logics_physical_offset)

    def _set_checkpoint_times(self, log_time: int, queue_time: int) -> None:
        self._checkpoint.physic_msg_timestamp, self._checkpoint.logics_msg_timestamp = log_time, queue_time
