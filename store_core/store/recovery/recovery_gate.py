# SPDX-License-Identifier: Apache-2.0
"""Selects the records that a release dispatches to queues and index while it checks the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.store.dispatch.dispatcher import select_rows

if TYPE_CHECKING:
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.queue_rules import QueueRules
    from store_core.store.dispatch.dispatcher import Dispatcher
    from store_core.store.state.store_checkpoint import StoreCheckpoint

__all__ = ["RecoveryGate"]


class RecoveryGate:
    """Passes to the dispatchers only the records that a release dispatches while it checks the log."""

    def __init__(
        self, dispatcher: Dispatcher, rules: QueueRules, checkpoint: StoreCheckpoint, cover: int, *, last_exit_ok: bool
    ) -> None:
        self._dispatcher = dispatcher
        self._rules = rules
        self._confirmed = checkpoint.confirm_physical_offset if rules.features.keeps_confirmed_offset else -1
        self._cover = cover
        self._last_exit_ok = last_exit_ok
        self.left_out: int | None = None

    def take(self, batch: DispatchBatch) -> None:
        """Dispatch the selected records of a batch."""
        if self._last_exit_ok and not self._rules.features.dispatches_in_normal_recovery:
            return
        chosen = select_rows(batch, self._chosen(batch))
        if chosen is not None:
            self._dispatcher.dispatch_batch(chosen, gather=True)

    def _chosen(self, batch: DispatchBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        offsets = batch.physical_offset
        if self._last_exit_ok:
            skipped = (offsets == self._cover) & batch.is_queued
            if skipped.any():
                self.left_out = self._cover
            return offsets > self._cover
        if not self._rules.is_duplication_enabled:
            return np.ones(len(batch), bool)
        if self._rules.features.dispatches_whole_confirmed_records:
            return offsets + batch.message_size <= self._confirmed
        return offsets < self._confirmed
