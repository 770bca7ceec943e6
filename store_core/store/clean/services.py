# SPDX-License-Identifier: Apache-2.0
"""The cleaning services of a store open for writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.store.clean.log_cleaner import CleanCommitLogService
from store_core.store.clean.queue_cleaner import CleanConsumeQueueService

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from store_core.files.clock import Clock
    from store_core.store.clean.disk_space import DiskSpace
    from store_core.store.clean.queue_cleaner import ExpiringFiles, ExpiringQueues
    from store_core.store.config.message_store_config import MessageStoreConfig
    from store_core.store.put.commit_log import CommitLog

__all__ = ["CleanServices"]


class CleanServices:
    """Both cleaning services of a store, started and stopped together.

    Parameters
    ----------
    space : DiskSpace
        The one whose `full_paths` the commit log's `SegmentPaths` call.
    time_zone : tzinfo, optional
        Time zone of ``deleteWhen``; None means the machine's.
    on_error : callable, optional
        Called with errors of the system.

    Raises
    ------
    InvalidOptionError
        If ``deleteWhen`` or ``cleanResourceInterval`` is invalid.
    """

    def __init__(  # noqa: PLR0913 -- what is cleaned, why, and when
        self,
        config: MessageStoreConfig,
        commit_log: CommitLog,
        space: DiskSpace,
        queues: ExpiringQueues,
        index: ExpiringFiles | None,
        clock: Clock,
        *,
        time_zone: tzinfo | None = None,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        self.commit_log_service = CleanCommitLogService(
            config,
            commit_log.mapped_file_queue,
            commit_log.running_flags,
            space,
            clock,
            time_zone=time_zone,
            on_error=on_error,
        )
        self.queue_service = CleanConsumeQueueService(
            config, lambda: commit_log.min_offset, queues, index, clock, on_error
        )

    def start(self) -> None:
        """Start both threads; their first round is after a minute."""
        self.commit_log_service.start()
        self.queue_service.start()

    def shutdown(self) -> bool:
        """Stop both; return False if one hangs. To be called before the log is shut down."""
        ended = self.commit_log_service.shutdown()
        return self.queue_service.shutdown() and ended

    def execute_delete_files_manually(self) -> None:
        """Request that expired files be deleted in the next rounds, see `CleanCommitLogService`."""
        self.commit_log_service.execute_delete_files_manually()

    def run_once(self) -> None:
        """Do one round of each now: the log first, so that queues and index follow it."""
        self.commit_log_service.run_once()
        self.queue_service.run_once()
