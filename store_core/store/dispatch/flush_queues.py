# SPDX-License-Identifier: Apache-2.0
"""The services that flush queues and checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.files.service_thread import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.files.clock import Clock
    from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
    from store_core.store.config.message_store_config import MessageStoreConfig
    from store_core.store.state.store_checkpoint import StoreCheckpoint

__all__ = ["FlushCheckpointService", "FlushConsumeQueueService"]

_MS: Final = 1000.0
_CHECKPOINT_SECONDS: Final = 1.0


class FlushConsumeQueueService(ServiceThread):
    """Flushes the queues periodically (RocketMQ: ``DefaultMessageStore.FlushConsumeQueueService``).

    Every second it flushes queues with two new pages, and every minute all of them and then the checkpoint, which
    covers what had been dispatched before that flush began.

    Parameters
    ----------
    config : MessageStoreConfig
        ``flushIntervalConsumeQueue``, ``flushConsumeQueueLeastPages``, ``flushConsumeQueueThoroughInterval``.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        queues: ConsumeQueueStore,
        checkpoint: StoreCheckpoint,
        clock: Clock,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        super().__init__(clock, on_error)
        self._config = config
        self._queues = queues
        self._checkpoint = checkpoint
        self._last_thorough: float | None = None

    def pause(self) -> None:
        """Wait for the next interval, or until woken up."""
        self.wait_for_running(self._config.flush_interval_consume_queue / _MS)

    def run_once(self) -> None:
        """Flush by the page rule, or thoroughly if due; the first time it is."""
        now = self._clock.monotonic()
        interval = self._config.flush_consume_queue_thorough_interval / _MS
        if self._last_thorough is None or now >= self._last_thorough + interval:
            self._last_thorough = now
            self.flush_thoroughly()
        else:
            self._queues.flush(self._config.flush_consume_queue_least_pages)

    def flush_thoroughly(self) -> None:
        """Flush all queues, then the checkpoint with the time of what was dispatched before.

        Raises
        ------
        OSError
            If a system call fails; the checkpoint is then left unchanged.
        """
        self._flush_noted(keeps_offset=self._config.features.keeps_flushed_queue_offset)
        self._checkpoint.flush()

    def _flush_noted(self, *, keeps_offset: bool) -> None:
        """Flush all queues, then note in the checkpoint what had been dispatched before."""
        put = self._checkpoint.last_put
        self._queues.flush(0)
        self._checkpoint.cover_queues(put, keeps_offset=keeps_offset)

    def finish(self) -> None:
        """Flush all that was dispatched; a release whose checkpoint holds an offset notes that only by the minute."""
        if self._config.features.keeps_flushed_queue_offset:
            self._queues.flush(0)
        else:
            self._flush_noted(keeps_offset=False)


class FlushCheckpointService(ServiceThread):
    """Flushes the checkpoint every second if it has changed (RocketMQ 5.x)."""

    def __init__(
        self, checkpoint: StoreCheckpoint, clock: Clock, on_error: Callable[[OSError], None] | None = None
    ) -> None:
        super().__init__(clock, on_error)
        self._checkpoint = checkpoint

    def pause(self) -> None:
        """Wait a second."""
        self.wait_until_stopped(_CHECKPOINT_SECONDS)

    def run_once(self) -> None:
        """Flush the checkpoint."""
        if self._checkpoint.is_changed:
            self._checkpoint.flush()
