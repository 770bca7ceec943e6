# SPDX-License-Identifier: Apache-2.0
"""The flush services of the commit log, and what a put waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.files.flush import (
    CommitRealTimeService,
    FlushDiskWatcher,
    FlushRealTimeService,
    GroupCommitRequest,
    GroupCommitService,
    Pace,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from store_core.files.clock import Clock
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.format.message import PutMessageStatus
    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = ["LogFlusher"]

_MS: float = 1000.0


class LogFlusher:
    """The flush services of a commit log (RocketMQ: ``CommitLog.DefaultFlushManager``).

    * `on_flushed`: Called with the store time up to which the log is on disk, ms.
    * `on_error`: Called with the error if a system call fails.
    * `on_moved`: Called when more of the log was committed, or flushed for waiting producers.

    * `has_pool`: Whether appends go through a write buffer; only then is there anything to commit.
    """

    def __init__(  # noqa: PLR0913 -- what is flushed, and who is notified
        self,
        config: MessageStoreConfig,
        queue: MappedFileQueue,
        clock: Clock,
        on_flushed: Callable[[int], None],
        on_error: Callable[[OSError], None],
        on_moved: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._config = config
        self._on_moved = on_moved
        self.has_pool = uses_pool(config)
        self.group_commit: GroupCommitService | None = None
        self._watcher = FlushDiskWatcher(clock)
        if config.flush_disk_type == "SYNC_FLUSH":
            self.group_commit = GroupCommitService(queue, clock, config.release, on_flushed, on_error, on_moved)
            self.flush_service: GroupCommitService | FlushRealTimeService = self.group_commit
        else:
            self.flush_service = FlushRealTimeService(queue, clock, _flush_pace(config), on_flushed, on_error)
        self.commit_service = CommitRealTimeService(queue, clock, self._note_committed, _commit_pace(config), on_error)

    def _note_committed(self) -> None:
        self.flush_service.wakeup()
        self._on_moved()

    def start(self) -> None:
        """Start the services' threads."""
        self.flush_service.start()
        if self.group_commit is not None:
            self._watcher.start()
        if self.has_pool:
            self.commit_service.start()

    def shutdown(self) -> bool:
        """Commit and flush everything, and stop the threads; return False if one hangs."""
        ended = self.commit_service.shutdown() if self.has_pool else True
        ended = self.flush_service.shutdown() and ended
        return self._watcher.shutdown() and ended

    def handle_disk_flush(self, next_offset: int, *, waits: bool) -> Future[PutMessageStatus] | None:
        """Flush after an append as the flush type requires.

        * `next_offset`: Offset one past what was appended.
        * `waits`: Whether the producer waits until it is on disk (property WAIT).

        Returns: With synchronous flush, resolves to PUT_OK or FLUSH_DISK_TIMEOUT; None if there is nothing to wait for.
        """
        if self.group_commit is None:
            if self.has_pool:
                self._wake(self.commit_service, by_config=self._config.wake_commit_when_put_message)
            else:
                self._wake(self.flush_service, by_config=self._config.wake_flush_when_put_message)
            return None
        if not waits:
            self.group_commit.wakeup()
            return None
        deadline = self._clock.monotonic() + self._config.sync_flush_timeout / _MS
        request = GroupCommitRequest(next_offset, deadline)
        self._watcher.add(request)
        self.group_commit.put_request(request)
        return request.future

    def _wake(
        self, service: FlushRealTimeService | GroupCommitService | CommitRealTimeService, *, by_config: bool
    ) -> None:
        if by_config or not self._config.features.has_wake_flush_switches:
            service.wakeup()


def uses_pool(config: MessageStoreConfig) -> bool:
    """Return whether appends go through write buffers (``DefaultMessageStore.isTransientStorePoolEnable``).

    A slave never has them, nor does a 4.x store with synchronous flush.
    """
    takes_part = config.flush_disk_type == "ASYNC_FLUSH" or config.features.pools_buffers_with_sync_flush
    return config.transient_store_pool_enable and config.broker_role != "SLAVE" and takes_part


def _flush_pace(config: MessageStoreConfig) -> Pace:
    return Pace(
        config.flush_interval_commit_log / _MS,
        config.flush_commit_log_least_pages,
        config.flush_commit_log_thorough_interval / _MS,
        timed=config.flush_commit_log_timed,
    )


def _commit_pace(config: MessageStoreConfig) -> Pace:
    return Pace(
        config.commit_interval_commit_log / _MS,
        config.commit_commit_log_least_pages,
        config.commit_commit_log_thorough_interval / _MS,
    )
