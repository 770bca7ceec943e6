# SPDX-License-Identifier: Apache-2.0
"""The bounds of a store's queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store_core.store.derived import DerivedStructures
    from store_core.store.put.queue_offsets import QueueOffsets
    from store_core.store.store_setup import StoreSetup

__all__ = ["StoreQueues"]


class StoreQueues:
    """The queues of an open store; pending messages are dispatched before each query.

    Parameters
    ----------
    queue_offsets : QueueOffsets
        The next index of each queue.
    """

    def __init__(self, setup: StoreSetup, derived: DerivedStructures, queue_offsets: QueueOffsets) -> None:
        self._is_read_only = setup.is_read_only
        self._is_batch_topic = setup.is_batch_topic
        self._derived = derived
        self._queue_offsets = queue_offsets

    def dispatch_now(self) -> None:
        """Dispatch all that may be dispatched to queues and index, and wait."""
        if self._derived.dispatch_behind_bytes > 0 and not self._is_read_only:
            self._derived.reput.run_once()

    def get_max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """Return the index one past a queue's last message; 0 if there is none."""
        if not committed:
            return self._queue_offsets.next_offset(topic, queue_id)
        self.dispatch_now()
        queue = self._derived.queues.get(topic, queue_id)
        return queue.max_offset_in_queue if queue is not None else 0

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the index of the first message still in a queue."""
        self.dispatch_now()
        queue = self._derived.queues.get(topic, queue_id)
        return queue.min_offset_in_queue if queue is not None else self.min_offset_of_unseen(topic)

    def min_offset_of_unseen(self, topic: str) -> int:
        """Return the first index of an unknown queue, which RocketMQ creates on request."""
        return -1 if self._is_batch_topic(topic) else 0
