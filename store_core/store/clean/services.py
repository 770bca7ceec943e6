# SPDX-License-Identifier: Apache-2.0
"""What clears away in a store that is open for writing."""

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
    """Both services of a store, started and ended together.

    Parameters
    ----------
    config : MessageStoreConfig
    commit_log : CommitLog
    space : DiskSpace
        The one whose `full_paths` the commit log's `SegmentPaths` ask.
    queues : ExpiringQueues
    index : ExpiringFiles or None
    clock : Clock
    time_zone : tzinfo, optional
        Whose hours ``deleteWhen`` means; None stands for the machine's.
    on_error : callable, optional
        Gets what the system refused.

    Attributes
    ----------
    commit_log_service : CleanCommitLogService
    queue_service : CleanConsumeQueueService

    Raises
    ------
    InvalidOptionError
        If ``deleteWhen`` or ``cleanResourceInterval`` can't be used.
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
        """Start both threads; their first round comes after a minute."""
        self.commit_log_service.start()
        self.queue_service.start()

    def shutdown(self) -> bool:
        """End both; False if one hangs. To be called before the log is shut down."""
        ended = self.commit_log_service.shutdown()
        return self.queue_service.shutdown() and ended

    def execute_delete_files_manually(self) -> None:
        """Ask for old files to be deleted in the next rounds, see `CleanCommitLogService`."""
        self.commit_log_service.execute_delete_files_manually()

    def run_once(self) -> None:
        """Do one round of each at once: the log first, so that queues and index follow it."""
        self.commit_log_service.run_once()
        self.queue_service.run_once()
