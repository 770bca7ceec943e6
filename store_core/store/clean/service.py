# SPDX-License-Identifier: Apache-2.0
"""The base of the cleaning services, which run at RocketMQ's intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.files.service_thread import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.files.clock import Clock
    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = ["CleanService"]

_FIRST_AFTER: Final = 60.0
_MS: Final = 1000.0


class CleanService(ServiceThread):
    """Runs its step first after a minute, then every ``cleanResourceInterval``.

    (RocketMQ: ``DefaultMessageStore.addScheduleTask``.)

    Parameters
    ----------
    on_error : callable, optional
        Called with errors of the system.

    Raises
    ------
    InvalidOptionError
        If the interval is not positive, which Java's scheduler also refuses.
    """

    def __init__(
        self, config: MessageStoreConfig, clock: Clock, on_error: Callable[[OSError], None] | None = None
    ) -> None:
        super().__init__(clock, on_error)
        if config.clean_resource_interval <= 0:
            found = config.clean_resource_interval
            raise InvalidOptionError(f"MessageStoreConfig.clean_resource_interval must be positive, found {found} ms")
        self._interval = config.clean_resource_interval / _MS
        self._next_pause = _FIRST_AFTER

    def pause(self) -> None:
        """Wait for the next step; only a shutdown interrupts the wait."""
        seconds, self._next_pause = self._next_pause, self._interval
        self.wait_until_stopped(seconds)
