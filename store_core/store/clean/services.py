# SPDX-License-Identifier: Apache-2.0
"""The cleaning services of a store open for writing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.store.clean.log_cleaner import CleanCommitLogService, CleanService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import tzinfo

    from store_core.files.clock import Clock
    from store_core.store.clean.disk_space import DiskSpace
    from store_core.store.config.message_store_config import MessageStoreConfig
    from store_core.store.put.commit_log import CommitLog


__all__ = ["CleanConsumeQueueService", "CleanServices", "ExpiringFiles", "ExpiringQueues", "needs_correction"]


def needs_correction(queue: BatchConsumeQueue, min_physical_offset: int, *, is_deep: bool) -> bool:
    """Return whether a queue begins before the log does (RocketMQ 5.x: ``CorrectLogicOffsetService.needCorrect``).

    That is so if the deletion of its first file is stuck, or if all its units point below the log's start although it
    is not marked empty. A deep check also examines its first unit.

    * `min_physical_offset`: Where the commit log starts; -1 if there is no file.
    """
    first = queue.mapped_file_queue.first_mapped_file
    if first is not None and not first.is_available:
        return True
    if queue.max_physical_offset == -1 or min_physical_offset == -1:
        return False
    low, high = queue.min_offset_in_queue, queue.max_offset_in_queue
    if queue.max_physical_offset < min_physical_offset:
        return low < high
    if not is_deep:
        return False
    units = queue.get_index_buffer(low)
    if units is None or not len(units):
        return low != high
    return int(units["physical_offset"][0]) < min_physical_offset


_MS: Final = 1000.0
_DEEP_EVERY: Final = 300.0
"""Seconds between deep checks of batch consume queues (``correctLogicMinOffsetForceInterval``)."""


class ExpiringFiles(Protocol):
    """Files that point into the log: a consume queue's, or the index's."""

    def delete_expired_file(self, min_offset: int, /) -> int | None:
        """Delete the leading files that only point below a physical offset; return their number, or None."""
        ...


class ExpiringQueues(Protocol):
    """All consume queues."""

    def queues(self) -> Iterable[ExpiringFiles]:
        """Return all consume queues."""
        ...


class CleanConsumeQueueService(CleanService):
    """Deletes files of queues and index that point below the commit log (RocketMQ: ``CleanConsumeQueueService``).

    Whenever the log's min offset has grown, each queue's leading files whose **last** unit points below it are deleted,
    and the queue's min offset is updated; so are the index's leading files that end below it. The last file of each
    stays.

    In 5.x, batch consume queues that begin before the log are also corrected in every round, with a deep check every
    five minutes (RocketMQ: ``CorrectLogicOffsetService``).

    * `min_offset`: Returns the commit log's min offset; -1 if there is no file.
    * `index`: None if there is no index.
    * `on_error`: Called with errors of the system.
    """

    def __init__(  # noqa: PLR0913 -- what is deleted, and why
        self,
        config: MessageStoreConfig,
        min_offset: Callable[[], int],
        queues: ExpiringQueues,
        index: ExpiringFiles | None,
        clock: Clock,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        super().__init__(config, clock, on_error)
        self._pause = config.delete_consume_queue_files_interval / _MS
        self._min_offset = min_offset
        self._queues = queues
        self._index = index
        self._last_min_offset = 0
        self._corrects = config.features.corrects_batch_queues
        self._last_deep: float | None = None

    def run_once(self) -> None:
        """Correct batch queues; delete what points below the log if the log's min offset has grown."""
        if self._corrects:
            self.correct_batch_queues()
        self.delete_expired_files()

    def correct_batch_queues(self) -> int:
        """Correct the start of batch consume queues that begin before the log, and return their number."""
        now = self._clock.monotonic()
        is_deep = self._last_deep is None or now - self._last_deep > _DEEP_EVERY
        if is_deep:
            self._last_deep = now
        min_offset = self._min_offset()
        corrected = 0
        for queue in self._queues.queues():
            if isinstance(queue, BatchConsumeQueue) and needs_correction(queue, min_offset, is_deep=is_deep):
                queue.delete_expired_file(min_offset)
                corrected += 1
        return corrected

    def delete_expired_files(self) -> int:
        """Delete files of queues and index that point below the log; return the number of queue files."""
        min_offset = self._min_offset()
        if min_offset <= self._last_min_offset:
            return 0
        deleted = 0
        for queue in self._queues.queues():
            count = queue.delete_expired_file(min_offset) or 0
            if count > 0 and self._pause > 0:
                self._clock.sleep(self._pause)
            deleted += count
        if self._index is not None:
            self._index.delete_expired_file(min_offset)
        self._last_min_offset = min_offset
        return deleted


class CleanServices:
    """Both cleaning services of a store, started and stopped together.

    * `space`: The one whose `full_paths` the commit log's `SegmentPaths` call.
    * `time_zone`: Time zone of ``deleteWhen``; None means the machine's.
    * `on_error`: Called with errors of the system.
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
