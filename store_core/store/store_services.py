# SPDX-License-Identifier: Apache-2.0
"""The services of an open store: log, derived structures, checkpoint and cleaning, started and stopped in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.files.allocate import AllocateMappedFileService
from store_core.files.store_parts import CONSUME_QUEUE
from store_core.files.transient_store_pool import TransientStorePool
from store_core.store.clean.disk_space import DiskSpace
from store_core.store.clean.services import CleanServices
from store_core.store.derived import DerivedStructures
from store_core.store.put.commit_log import CommitLog
from store_core.store.put.log_flusher import uses_pool
from store_core.store.state.store_checkpoint import StoreCheckpoint
from store_core.store.store_layout import log_paths

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.store.config.message_store_config import MessageStoreConfig
    from store_core.store.recovery.recovery_report import RecoveryReport
    from store_core.store.store_setup import StoreSetup

__all__ = ["StoreServices", "disk_space"]


class StoreServices:
    """Loads, starts, shuts down and closes a store's services, in an order that is safe to interrupt at any point.

    Raises
    ------
    InvalidOptionError
        If the configured deletion times are invalid, see `CleanServices`.
    """

    def __init__(self, setup: StoreSetup) -> None:
        path, config, clock, file_system = setup.path, setup.config, setup.clock, setup.file_system
        self._cleans = setup.cleans
        self._allocate = allocate_service(config, clock, file_system)
        self.checkpoint = StoreCheckpoint(path, file_system, config.release)
        space = disk_space(path, config, file_system)
        self.commit_log = CommitLog(
            log_paths(path, config, file_system, space.full_paths),
            config,
            file_system,
            clock,
            broker=setup.broker,
            allocate=self._allocate,
            checkpoint=self.checkpoint,
            replicas=setup.replicas,
            is_batch_topic=setup.is_batch_topic,
        )
        self.commit_log.mapped_file_queue.takes_twins = setup.is_read_only
        self.derived = DerivedStructures(
            path,
            self.commit_log,
            self.checkpoint,
            config.queue_rules(setup.batch_topics),
            file_system,
            clock,
            is_master=setup.broker.broker_id == 0,
            notifies=setup.notifies,
            filter_bit_map=setup.filter_bit_map if setup.broker.enable_calc_filter_bit_map else None,
            reads_rocksdb=setup.is_read_only,
        )
        self.clean = CleanServices(config, self.commit_log, space, self.derived.queues, self.derived.index, clock)

    def load(self, *, last_exit_ok: bool) -> RecoveryReport:
        """Load log, queues, checkpoint and index, and make them consistent, as `store_recovery` describes."""
        return self.derived.recover(last_exit_ok=last_exit_ok)

    def start(self) -> None:
        """Start the threads."""
        self._allocate.start()
        self.commit_log.start()
        self.derived.start()
        if self._cleans:
            self.clean.start()

    def shutdown(self) -> bool:
        """Flush everything, and stop the threads.

        Steps: 1. stop cleaning; 2. flush the log; 3. dispatch what is left, and flush queues and index; 4. delete
        preallocated files; 5. write the checkpoint.

        Returns
        -------
        bool
            Whether all that succeeded, and everything is on disk and dispatched.
        """
        ended = self.clean.shutdown()
        ended = self.commit_log.shutdown() and ended
        ended = self.derived.shutdown() and ended
        ended = self._allocate.shutdown() and ended
        self.checkpoint.flush()
        return ended and self.commit_log.is_flushed and self.derived.dispatch_behind_bytes == 0

    def close(self) -> None:
        """Close the files without flushing."""
        self.checkpoint.close()
        self.derived.close()
        self.commit_log.close()


def disk_space(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> DiskSpace:
    """Create the `DiskSpace` that measures the disks of commit log and queues."""
    return DiskSpace(config, log_paths(root, config, file_system).paths, root / CONSUME_QUEUE, file_system)


def allocate_service(config: MessageStoreConfig, clock: Clock, file_system: FileSystem) -> AllocateMappedFileService:
    """Create the service that preallocates segments, with write buffers if configured."""
    size = config.mapped_file_size_commit_log
    pool = TransientStorePool(config.transient_store_pool_size, size) if uses_pool(config) else None
    return AllocateMappedFileService(
        file_system,
        clock,
        pool,
        fail_fast_without_buffer=config.fast_fail_if_no_buffer_in_store_pool,
        reserve_from_size=size if config.warm_maped_file_enable else None,
    )
