# SPDX-License-Identifier: Apache-2.0
"""The service that deletes what points at deleted segments of the commit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.store.clean.batch_queue_cleaner import needs_correction
from store_core.store.clean.service import CleanService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from store_core.files.clock import Clock
    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = ["CleanConsumeQueueService", "ExpiringFiles", "ExpiringQueues"]

_MS: Final = 1000.0
_DEEP_EVERY: Final = 300.0
"""Seconds between two looks at the first units of batch consume queues (``correctLogicMinOffsetForceInterval``)."""


class ExpiringFiles(Protocol):
    """Files that point into the log: a consume queue's, or the index's."""

    def delete_expired_file(self, min_offset: int, /) -> int | None:
        """Delete the leading files that only point below a physical offset; give their number, if it is counted."""
        ...


class ExpiringQueues(Protocol):
    """All consume queues."""

    def queues(self) -> Iterable[ExpiringFiles]:
        """Return each of them."""
        ...


class CleanConsumeQueueService(CleanService):
    """Deletes files of queues and index behind the commit log (RocketMQ: ``CleanConsumeQueueService``).

    Whenever the log's min offset has grown: each queue loses its leading files whose **last** unit points below it, and
    finds its new min offset; the index loses its leading files that end below it. The last file of each stays.

    In 5.x batch consume queues that begin before the log are put right in every round, too, and looked at more closely
    every five minutes (RocketMQ: ``CorrectLogicOffsetService``).

    Parameters
    ----------
    config : MessageStoreConfig
    min_offset : callable
        Gives the commit log's min offset; -1 without a file.
    queues : ExpiringQueues
    index : ExpiringFiles or None
        None if there is no index.
    clock : Clock
    on_error : callable, optional
        Gets what the system refused.
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
        """Put batch queues right; delete what points below the log, if the log has become shorter at its start."""
        if self._corrects:
            self.correct_batch_queues()
        self.delete_expired_files()

    def correct_batch_queues(self) -> int:
        """Let batch consume queues that begin before the log find their start, and give their number.

        Raises
        ------
        OSError
            As the system says.
        """
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
        """Delete files of queues and index behind the log, and give the number of queue files.

        Raises
        ------
        OSError
            As the system says. The next call begins again with the first queue, where RocketMQ waits for the log's
            min offset to grow once more.
        """
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
