# SPDX-License-Identifier: Apache-2.0
"""Limit on how many files, or queues with their files, are open at once."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_OPEN_QUEUES", "MAX_OPEN_SEGMENTS", "OpenFiles"]

MAX_OPEN_QUEUES: Final = 256
"""A queue in use has a descriptor or two for its last file: some 512 in all, half of what a process may usually have.
An extension counts as a queue of its own."""

MAX_OPEN_SEGMENTS: Final = 64
"""A segment in use has two descriptors: its own, and that of its mapping."""


class OpenFiles:
    """The most recently used files; using another one makes the least recently used close.

    A store of light queues has tens of thousands of queues, one that is kept for long has thousands of segments, and a
    process has about a thousand descriptors. (RocketMQ maps all files.)

    A file may be used while another thread makes it close: it is dropped then, and views stay valid.

    * `limit`: How many may be open.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._open: dict[Callable[[], None], None] = {}

    def use(self, close: Callable[[], None]) -> None:
        """Record that a file is about to be used.

        * `close`: A method of the file; its next use opens it again.
        """
        with self._lock:
            self._open.pop(close, None)
            self._open[close] = None
            oldest = next(iter(self._open)) if len(self._open) > self._limit else None
            if oldest is not None:
                del self._open[oldest]
        if oldest is not None:
            oldest()
