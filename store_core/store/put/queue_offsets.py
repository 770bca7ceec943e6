# SPDX-License-Identifier: Apache-2.0
"""The next index of every queue, kept in memory while a store is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

__all__ = ["QueueOffsets"]


class QueueOffsets:
    """Next free index by topic and queue id (RocketMQ: ``topicQueueTable``, ``lmqTopicQueueTable``).

    It is read and advanced only under the put lock, so that indexes are in log order. RocketMQ 5.x adds a lock for each
    of 32 shares of the queues around that (``TopicQueueLock``); here the put lock covers both.
    """

    def __init__(self) -> None:
        self._next: dict[tuple[str, int], int] = {}
        self._light: dict[str, int] = {}

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the index of the next message of a queue."""
        return self._next.get((topic, queue_id), 0)

    def advance(self, topic: str, queue_id: int, messages: int) -> None:
        """Advance a queue by a number of messages."""
        key = topic, queue_id
        self._next[key] = self._next.get(key, 0) + messages

    def next_offsets(self, queues: Sequence[tuple[str, int]]) -> npt.NDArray[np.int64]:
        """Return the next index of several queues."""
        return np.array([self._next.get(queue, 0) for queue in queues], np.int64)

    def advance_all(self, queues: Sequence[tuple[str, int]], messages: npt.NDArray[np.int64]) -> None:
        """Advance several queues."""
        for (topic, queue_id), count in zip(queues, messages.tolist(), strict=True):
            if count:
                self.advance(topic, queue_id, count)

    def next_light_offset(self, name: str) -> int:
        """Return the index of the next message of a light queue."""
        return self._light.get(name, 0)

    def set_light_offset(self, name: str, offset: int) -> None:
        """Set the next index of a light queue."""
        self._light[name] = offset

    def set_offset(self, topic: str, queue_id: int, offset: int) -> None:
        """Set the next index of a queue."""
        self._next[topic, queue_id] = offset

    def replace(self, offsets: Mapping[tuple[str, int], int], light: Mapping[str, int]) -> None:
        """Replace the tables by those recovered from the queues (``CommitLog.setTopicQueueTable``)."""
        self._next = dict(offsets)
        self._light = dict(light)

    def copy(self) -> QueueOffsets:
        """Return a copy."""
        copied = QueueOffsets()
        copied.replace(self._next, self._light)
        return copied

    def as_mapping(self) -> Mapping[tuple[str, int], int]:
        """Return a copy of the table: topic and queue id to next index."""
        return dict(self._next)

    def lmq_queues(self) -> Mapping[str, int]:
        """Return a copy of the table of light queues."""
        return dict(self._light)
