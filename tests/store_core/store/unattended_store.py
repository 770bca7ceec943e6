# SPDX-License-Identifier: Apache-2.0
"""A store whose background services do nothing by themselves."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from store_core import DefaultMessageStore

if TYPE_CHECKING:
    from store_core.store.store_life import StoreSetup


class UnattendedStore(DefaultMessageStore):
    """A store whose services run their steps when the test calls them, in its thread."""

    def __init__(self, setup: StoreSetup) -> None:
        super().__init__(setup)
        self._services.start = _start_nothing  # type: ignore[method-assign]  # no thread of its own

    def make_files(self) -> None:
        """Do what the service that makes files in advance does."""
        self._services._allocate.step()

    def flush_log(self) -> None:
        self.commit_log.flusher.flush_service.step()
        self.commit_log.flusher.flush_service.finish()

    def flush_queues(self) -> None:
        self._services.flush_service.flush_thoroughly()

    def abandon(self) -> None:
        """Drop the store, as when the process dies."""
        with suppress(OSError):
            self._let_go()


def _start_nothing() -> None:
    pass
