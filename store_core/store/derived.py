# SPDX-License-Identifier: Apache-2.0
"""Queues and index derived from a store's log, and the services that keep them up to date."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.index.index_service import IndexService
from store_core.store.dispatch.dispatcher import Dispatcher
from store_core.store.dispatch.reput import FlushCheckpointService, FlushConsumeQueueService, ReputMessageService
from store_core.store.recovery.store_recovery import StoreRecovery, complete_index
from store_core.store.state.store_stats import RunningFlag

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.queue.queue_path import QueueRules
    from store_core.store.dispatch.dispatcher import FilterBitMap
    from store_core.store.put.commit_log import CommitLog
    from store_core.store.recovery.recovery_report import RecoveryReport
    from store_core.store.state.store_checkpoint import StoreCheckpoint

__all__ = ["DerivedStructures"]

_LOG: Final = logging.getLogger("store_core")


class DerivedStructures:
    """The queues and index of a store, from loading to closing.

    * `root`: The store's root.
    * `is_master`: Whether dispatching skips bytes that are not a record.
    * `notifies`: Whether listeners are notified of dispatched messages.
    * `filter_bit_map`: Returns the bit map of a record, see `Dispatcher`.
    * `reads_rocksdb`: As of `ConsumeQueueStore`.
    """

    def __init__(  # noqa: PLR0913 -- location, inputs, and the services it depends on
        self,
        root: Path,
        log: CommitLog,
        checkpoint: StoreCheckpoint,
        rules: QueueRules,
        file_system: FileSystem,
        clock: Clock,
        *,
        is_master: bool = True,
        notifies: bool = True,
        filter_bit_map: FilterBitMap | None = None,
        reads_rocksdb: bool = False,
    ) -> None:
        self._log = log
        self._checkpoint = checkpoint
        self._log_on_disk = 0
        self.rules = rules
        flags = log.running_flags
        self.queues = ConsumeQueueStore(
            root, rules, file_system, clock, self._note_put, lambda: _set(log, RunningFlag.WRITE_LOGICS_QUEUE_ERROR),
            can_write=lambda: flags.is_cq_writeable, reads_rocksdb=reads_rocksdb,
        )  # fmt: skip
        self.index = IndexService(
            root / INDEX_DIRECTORY, rules, file_system, clock,
            on_full=self._note_full_index, on_error=lambda: _set(log, RunningFlag.WRITE_INDEX_FILE_ERROR),
        )  # fmt: skip
        self.dispatcher = Dispatcher(self.queues, self.index, filter_bit_map)
        queue = log.mapped_file_queue
        self.reput = ReputMessageService(
            queue, self.dispatcher, rules, clock, self._dispatch_end, is_master=is_master, notifies=notifies
        )
        log.on_moved = self.reput.wakeup
        self.recovery = StoreRecovery(log, self.queues, self.index, checkpoint, self.dispatcher, rules)
        self.flush_service = FlushConsumeQueueService(log.config, self.queues, checkpoint, clock)
        self._checkpoint_service = FlushCheckpointService(checkpoint, clock)

    def _note_put(self, store_timestamp: int, physical_offset: int) -> None:
        """Note up to where queues have units; not after one that couldn't be written, which a restart has to add."""
        if not self._log.running_flags.is_cq_writeable:
            return
        self._checkpoint.last_put = store_timestamp, physical_offset
        if self._log.config.broker_role == "SLAVE":
            self._checkpoint.physic_msg_timestamp = store_timestamp

    def _note_full_index(self, end_timestamp: int) -> None:
        """Record that a full index file is on disk, after the log that it points into.

        Otherwise the log could end before the index after a power failure, and what is put then would not be indexed.
        """
        log, end = self._log.mapped_file_queue, self._log.max_offset
        try:
            log.force(max(self._log.flushed_where, self._log_on_disk))
        except OSError as error:
            _LOG.error("the log could not be flushed, and the checkpoint does not cover the index yet: %s", error)
            self._log.note_error(error)
            return
        self._log_on_disk = end
        self._checkpoint.index_msg_timestamp = end_timestamp
        self._checkpoint.flush()

    def _dispatch_end(self) -> int:
        return self._log.max_offset if self._log.config.read_un_committed else self._log.confirm_offset

    # ---- life

    def recover(self, *, last_exit_ok: bool) -> RecoveryReport:
        """Load and recover (`StoreRecovery.run`), then dispatch what is due (`StoreRecovery.catch_up`)."""
        self.recovery.run(last_exit_ok=last_exit_ok)
        return self.recovery.catch_up(self.reput)

    def complete_index(self, begin: int) -> bool:
        """Index the records from an offset up to the log's end; result and errors as of `complete_index`."""
        with self.reput.paused():
            return complete_index(self.index, self._log.mapped_file_queue.mapped_files, begin, self.rules)

    def start(self) -> None:
        """Start the services."""
        self.reput.start()
        self.flush_service.start()
        if self.rules.features.flushes_checkpoint_by_timer:
            self._checkpoint_service.start()

    def shutdown(self) -> bool:
        """Dispatch what is left, stop the services and flush everything; return False if any of that failed."""
        ended = self.reput.shutdown()
        try:
            self.index.close()
        except OSError as error:
            self.reput.report(error)
            ended = False
        ended = self._checkpoint_service.shutdown() and ended
        return self.flush_service.shutdown() and self.flush_service.error is None and ended

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log not yet dispatched (``dispatchBehindBytes``)."""
        return self._log.confirm_offset - self.reput.reput_from_offset

    def close(self) -> None:
        """Close the files without flushing."""
        self.queues.close()
        for file in self.index.files:
            file.close()


def _set(log: CommitLog, flag: RunningFlag) -> None:
    log.running_flags.set(flag)
