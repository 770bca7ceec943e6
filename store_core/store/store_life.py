# SPDX-License-Identifier: Apache-2.0
"""What an open store is made of: its services, from loading to closing, and records that another writer has put."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from store_core.errors import StoreError
from store_core.files.file_system import FileSystem, OsFileSystem, write_all
from store_core.files.machine import Clock, SystemClock
from store_core.files.mapped_file import TransientStorePool, file_name_of
from store_core.files.mapped_file_queue import AllocateMappedFileService
from store_core.files.names import CONSUME_QUEUE, INDEX_DIRECTORY
from store_core.format.record.encode import blank_head, has_room
from store_core.queue.consume_queue.consume_queue import QueueServices
from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.index_service import IndexService
from store_core.snapshot.config import REWOUND
from store_core.store.clean import CleanServices, DiskSpace
from store_core.store.message_store_config import BrokerConfig, MessageStoreConfig
from store_core.store.put.commit_log import CommitLog, uses_pool
from store_core.store.recovery.store_recovery import StoreRecovery, complete_index
from store_core.store.reput import (
    Dispatcher,
    FilterBitMap,
    FlushCheckpointService,
    FlushConsumeQueueService,
    ReputMessageService,
)
from store_core.store.store_layout import log_paths
from store_core.store.store_state import RunningFlag, RunningFlags, StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.queue.dispatch.stored_batch import KnownColumns
    from store_core.store.put.put_preparation import ReplicaService
    from store_core.store.recovery.log_recovery import RecoveryReport


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


@dataclass(frozen=True, slots=True)
class StoreSetup:
    """The arguments of `DefaultMessageStore.open`, which explains them, with their defaults in place.

    Attributes
    ----------
    path : Path
        The store's root.
    config : MessageStoreConfig
        Checked against the existing files.
    is_read_only : bool
    broker : BrokerConfig
    broker_hooks : bool
    batch_topics : frozenset of str
    replicas : ReplicaService, optional
    clock : Clock
    file_system : FileSystem
    cleans : bool
    filter_bit_map : FilterBitMap, optional
    cuts_messages : bool
    """

    path: Path
    config: MessageStoreConfig
    is_read_only: bool = False
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    broker_hooks: bool = True
    batch_topics: frozenset[str] = frozenset()
    replicas: ReplicaService | None = None
    clock: Clock = field(default_factory=SystemClock)
    file_system: FileSystem = field(default_factory=OsFileSystem)
    cleans: bool = False
    filter_bit_map: FilterBitMap | None = None
    cuts_messages: bool = True

    def is_batch_topic(self, topic: str) -> bool:
        """Whether a topic has the attribute ``queue.type=BatchCQ``."""
        return topic in self.batch_topics

    @property
    def notifies(self) -> bool:
        """Whether listeners are notified of messages (``ReputMessageService.doReput``); in 4.x not on a slave."""
        config = self.config
        return self.broker.long_polling_enable and (config.features.notifies_on_slave or config.broker_role != "SLAVE")


class StoreServices:
    """What an open store is made of: loaded, started, shut down and closed in an order that may be interrupted."""

    def __init__(self, setup: StoreSetup) -> None:
        path, config, clock, file_system = setup.path, setup.config, setup.clock, setup.file_system
        self._config, self._cleans = config, setup.cleans
        self._log_on_disk = 0
        pool = None
        if uses_pool(config):
            pool = TransientStorePool(config.transient_store_pool_size, config.mapped_file_size_commit_log)
        self._allocate = AllocateMappedFileService(
            file_system, clock, pool,
            fail_fast_without_buffer=config.fast_fail_if_no_buffer_in_store_pool,
            reserve=config.warm_maped_file_enable,
        )  # fmt: skip
        self.checkpoint = StoreCheckpoint(path, file_system, config.release)
        space = disk_space(path, config, file_system)
        log = self.commit_log = CommitLog(
            replace(log_paths(path, config, file_system), full_paths=space.full_paths),
            config,
            file_system,
            clock,
            broker=setup.broker,
            allocate=self._allocate,
            checkpoint=self.checkpoint,
            replicas=setup.replicas,
            is_batch_topic=setup.is_batch_topic,
        )
        log.mapped_file_queue.takes_twins = setup.is_read_only
        rules, flags = config.queue_rules(setup.batch_topics), log.running_flags
        self.rules = rules
        services = QueueServices(
            rules, file_system, clock,
            can_write=lambda: flags.is_cq_writeable,
            on_error=lambda: _set(flags, RunningFlag.WRITE_LOGICS_QUEUE_ERROR),
            reads_rocksdb=setup.is_read_only,
        )  # fmt: skip
        self.queues = ConsumeQueueStore(path, services, self._note_put)
        self.index = IndexService(
            path / INDEX_DIRECTORY, rules, file_system, clock,
            on_full=self._note_full_index, on_error=lambda: _set(flags, RunningFlag.WRITE_INDEX_FILE_ERROR),
        )  # fmt: skip
        bit_map = setup.filter_bit_map if setup.broker.enable_calc_filter_bit_map else None
        dispatcher = Dispatcher(self.queues, self.index, bit_map)
        self.reput = ReputMessageService(
            log.mapped_file_queue, dispatcher, rules, clock, self._dispatch_end,
            is_master=setup.broker.broker_id == 0, notifies=setup.notifies,
        )  # fmt: skip
        log.on_moved = self.reput.wakeup
        self.recovery = StoreRecovery(log, self.checkpoint, dispatcher, rules)
        self.recovery.cuts_messages = setup.cuts_messages
        self.flush_service = FlushConsumeQueueService(config, self.queues, self.checkpoint, clock)
        self._checkpoint_service = FlushCheckpointService(self.checkpoint, clock)
        self.clean = CleanServices(config, log, space, self.queues, self.index, clock)

    def _note_put(self, store_timestamp: int, physical_offset: int) -> None:
        """Note up to where queues have units; not after one that couldn't be written, which a restart has to add."""
        if not self.commit_log.running_flags.is_cq_writeable:
            return
        self.checkpoint.last_put = store_timestamp, physical_offset
        if self._config.broker_role == "SLAVE":
            self.checkpoint.physic_msg_timestamp = store_timestamp

    def _note_full_index(self, end_timestamp: int) -> None:
        """Record that a full index file is on disk, after the log that it points into.

        Otherwise the log could end before the index after a power failure, and what is put then would not be indexed.
        """
        log, end = self.commit_log.mapped_file_queue, self.commit_log.max_offset
        try:
            log.force(max(self.commit_log.flushed_where, self._log_on_disk))
        except OSError as error:
            _LOG.error("the log could not be flushed, and the checkpoint does not cover the index yet: %s", error)
            self.commit_log.note_error(error)
            return
        self._log_on_disk = end
        self.checkpoint.index_msg_timestamp = end_timestamp
        self.checkpoint.flush()

    def _dispatch_end(self) -> int:
        return self.commit_log.max_offset if self._config.read_un_committed else self.commit_log.confirm_offset

    # ---- life

    def recover(self, *, last_exit_ok: bool) -> RecoveryReport:
        """Load and recover (`StoreRecovery.run`), then dispatch what is due (`StoreRecovery.catch_up`)."""
        self.recovery.run(last_exit_ok=last_exit_ok)
        return self.recovery.catch_up(self.reput)

    def complete_index(self, begin: int) -> bool:
        """Index the records from an offset up to the log's end; result and errors as of `complete_index`."""
        with self.reput.paused():
            return complete_index(self.index, self.commit_log.mapped_file_queue.mapped_files, begin, self.rules)

    def start(self) -> None:
        """Start the threads."""
        self._allocate.start()
        self.commit_log.start()
        self.reput.start()
        self.flush_service.start()
        if self.rules.features.flushes_checkpoint_by_timer:
            self._checkpoint_service.start()
        if self._cleans:
            self.clean.start()

    def shutdown(self) -> bool:
        """Flush everything, and stop the threads.

        Steps: 1. stop cleaning; 2. flush the log; 3. dispatch what is left, and flush queues and index; 4. delete
        preallocated files; 5. write the checkpoint.

        Returns: Whether all that succeeded, and everything is on disk and dispatched.
        """
        ended = self.clean.shutdown()
        ended = self.commit_log.shutdown() and ended
        ended = self.reput.shutdown() and ended
        try:
            self.index.close()
        except OSError as error:
            self.reput.report(error)
            ended = False
        ended = self._checkpoint_service.shutdown() and ended
        ended = self.flush_service.shutdown() and self.flush_service.error is None and ended
        ended = self._allocate.shutdown() and ended
        self.checkpoint.flush()
        return ended and self.commit_log.is_flushed and self.dispatch_behind_bytes == 0

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log not yet dispatched (``dispatchBehindBytes``)."""
        return self.commit_log.confirm_offset - self.reput.reput_from_offset

    def close(self) -> None:
        """Close the files without flushing."""
        self.checkpoint.close()
        self.queues.close()
        for file in self.index.files:
            file.close()
        self.commit_log.close()


def _set(flags: RunningFlags, flag: RunningFlag) -> None:
    flags.set(flag)


def disk_space(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> DiskSpace:
    """Create the `DiskSpace` that measures the disks of commit log and queues."""
    return DiskSpace(config, log_paths(root, config, file_system).paths, root / CONSUME_QUEUE, file_system)
