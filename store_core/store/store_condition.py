# SPDX-License-Identifier: Apache-2.0
"""Whether an open store accepts messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from store_core.store.put.commit_log import CommitLog
    from store_core.store.store_setup import StoreSetup

__all__ = ["StoreCondition"]

_BUSY_LIMIT_MS: Final = 10_000_000
"""A longer time is not an append but the time since 1970: no append is in progress."""


class StoreCondition:
    """The state that every put checks first; a `store_core.store.put.put_checks.StoreState`.

    Parameters
    ----------
    setup : StoreSetup
    commit_log : CommitLog

    Attributes
    ----------
    is_shutdown : bool
        Whether the store no longer accepts messages, or never did.
    """

    def __init__(self, setup: StoreSetup, commit_log: CommitLog) -> None:
        self.is_shutdown = setup.is_read_only
        self.is_batch_topic = setup.is_batch_topic
        self.now_ms = setup.clock.now_ms
        self._flags = commit_log.running_flags
        self._commit_log = commit_log
        self._busy_ms = setup.config.os_page_cache_busy_time_out_mills

    @property
    def is_writeable(self) -> bool:
        """Whether its running flags allow puts."""
        return self._flags.is_writeable

    @property
    def is_os_page_cache_busy(self) -> bool:
        """Whether the current append has held the lock longer than ``osPageCacheBusyTimeOutMills``."""
        held = self.now_ms() - self._commit_log.begin_time_in_lock
        return self._busy_ms < held < _BUSY_LIMIT_MS
