# SPDX-License-Identifier: Apache-2.0
"""How many queues may have their files open at once."""

from __future__ import annotations

from threading import Lock
from typing import Final, Protocol

__all__ = ["MAX_OPEN_QUEUES", "OpenQueues"]

MAX_OPEN_QUEUES: Final = 256
"""A queue in use has a descriptor or two for its last file: some 512 in all, half of what a process may usually have.
Those of an extension count as a queue of their own."""


class _Closeable(Protocol):
    def close(self) -> None:
        """Let go of files; the next use opens them again."""
        ...


class OpenQueues:
    """The queues used last; each further one makes the one that was not used for longest let go of its files.

    A store of light queues has tens of thousands of queues, and a process has about a thousand descriptors. (RocketMQ
    maps all files of all queues.)

    It is safe to use a queue while another thread makes it let go: files are dropped, not closed, and views stay valid.

    Parameters
    ----------
    limit : int
        Queues at once.
    """

    def __init__(self, limit: int = MAX_OPEN_QUEUES) -> None:
        self._limit = limit
        self._lock = Lock()
        self._queues: dict[int, _Closeable] = {}

    def use(self, queue: _Closeable) -> None:
        """Note that a queue is going to be used."""
        with self._lock:
            self._queues.pop(id(queue), None)
            self._queues[id(queue)] = queue
            oldest = self._queues.pop(next(iter(self._queues))) if len(self._queues) > self._limit else None
        if oldest is not None:
            oldest.close()
