# SPDX-License-Identifier: Apache-2.0
"""Truncating an open log and its queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.queue.dispatch.rocketmq_check import check_message_and_return_size

if TYPE_CHECKING:
    from store_core.store.derived import DerivedStructures
    from store_core.store.put.commit_log import CommitLog

__all__ = ["LogCut"]


class LogCut:
    """Truncates the log of an open store and what is derived from it."""

    def __init__(self, commit_log: CommitLog, derived: DerivedStructures) -> None:
        self._commit_log = commit_log
        self._derived = derived

    def truncate_dirty_files(self, offset: int) -> None:
        """Truncate log and queues at an offset while dispatching is paused, and dispatch from there on."""
        if offset < self._commit_log.max_offset:
            reput = self._derived.reput
            with reput.paused():
                self._derived.recovery.truncate(offset)
                reput.reput_from_offset = min(reput.reput_from_offset, offset)

    def truncate_files(self, offset: int) -> bool:
        """Truncate if a record begins at the offset; else return False."""
        if offset < self._commit_log.max_offset and not self._is_aligned(offset):
            return False
        self.truncate_dirty_files(offset)
        return True

    def _is_aligned(self, offset: int) -> bool:
        queue = self._commit_log.mapped_file_queue
        file = queue.find_mapped_file_by_offset(offset, return_first=offset == 0)
        view = file.select(0) if file is not None else None
        if view is None:
            return True
        position, rules = offset % queue.file_size, self._derived.rules
        return check_message_and_return_size(
            view, position, len(view), rules, check_crc=True, read_body=True
        ).is_success
