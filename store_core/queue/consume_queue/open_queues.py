# SPDX-License-Identifier: Apache-2.0
"""Limit on how many queues have their files open at once."""

from __future__ import annotations

from threading import Lock
from typing import Final, Protocol

__all__ = ["MAX_OPEN_QUEUES", "OpenQueues"]

MAX_OPEN_QUEUES: Final = 256
"""A queue in use has a descriptor or two for its last file: some 512 in all, half of what a process may usually have.
An extension counts as a queue of its own."""


class _Closeable(Protocol):
    def close(self) -> None:
        """Release files; the next use opens them again."""
        ...


class OpenQueues:
    """The most recently used queues; using another one makes the least recently used release its files.

    A store of light queues has tens of thousands of queues, and a process has about a thousand descriptors. (RocketMQ
    maps all files of all queues.)

    A queue may be used while another thread makes it release its files: they are dropped, not closed, and views stay
    valid.

    Parameters
    ----------
    limit : int
        How many queues may have files open.
    """

    def __init__(self, limit: int = MAX_OPEN_QUEUES) -> None:
        self._limit = limit
        self._lock = Lock()
        self._queues: dict[int, _Closeable] = {}

    def use(self, queue: _Closeable) -> None:
        """Record that a queue is about to be used."""
        with self._lock:
            self._queues.pop(id(queue), None)
            self._queues[id(queue)] = queue
            oldest = self._queues.pop(next(iter(self._queues))) if len(self._queues) > self._limit else None
        if oldest is not None:
            oldest.close()
