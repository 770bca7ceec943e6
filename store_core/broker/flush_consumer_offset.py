# SPDX-License-Identifier: Apache-2.0
"""Service that writes committed offsets to disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.files.service_thread import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.broker.consumer_offset import ConsumerOffsetManager
    from store_core.files.clock import Clock
    from store_core.store.config.broker_config import BrokerConfig

__all__ = ["FlushConsumerOffsetService"]

_FIRST_SECONDS: Final = 10.0
_MS: Final = 1000.0


class FlushConsumerOffsetService(ServiceThread):
    """Service that writes committed offsets to ``config/consumerOffset.json``, as a broker does on a schedule.

    It writes 10 s after the start, then every ``flushConsumerOffsetInterval``, and once more at shutdown (RocketMQ, all
    releases: ``BrokerController``). A crash loses the commits since the last write, and consumers of the group then get
    those messages again. A failed write is reported, and repeated after the next interval.

    Nothing is written before the file has been read, so a broker that failed to start keeps its offsets.

    Parameters
    ----------
    offsets : ConsumerOffsetManager
    broker : BrokerConfig
        ``flushConsumerOffsetInterval``, ms.
    clock : Clock
    on_error : callable, optional
        Called with each `OSError`, in the service's thread.

    Raises
    ------
    InvalidOptionError
        If the interval is not positive; RocketMQ's broker does not start with such an interval either.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetManager,
        broker: BrokerConfig,
        clock: Clock,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        super().__init__(clock, on_error)
        interval = broker.flush_consumer_offset_interval
        if interval <= 0:
            raise InvalidOptionError(f"flush_consumer_offset_interval must be positive (ms), found {interval}")
        self._offsets = offsets
        self._interval = interval / _MS
        self._due = clock.monotonic() + _FIRST_SECONDS

    def start(self) -> None:
        """Read the file unless it has been read, and start the thread unless it is running.

        Raises
        ------
        CorruptRecordError
            If the file and its backup are both broken.
        OSError
            As raised by the system.
        """
        if not self.is_running:
            if not self._offsets.is_loaded:
                self._offsets.load()
            self._due = self._clock.monotonic() + _FIRST_SECONDS
        super().start()

    def pause(self) -> None:
        """Wait until it is time to write."""
        self.wait_for_running(max(self._due - self._clock.monotonic(), 0.0))

    def run_once(self) -> None:
        """Write the file if it is due."""
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + self._interval
            self._persist()

    def finish(self) -> None:
        """Write the file one last time."""
        self._persist()

    def _persist(self) -> None:
        if self._offsets.is_loaded:
            self._offsets.persist()
