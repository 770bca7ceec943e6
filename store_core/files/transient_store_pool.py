# SPDX-License-Identifier: Apache-2.0
"""Write buffers outside the page cache."""

from __future__ import annotations

import logging
import mmap
from collections import deque
from threading import Lock
from typing import Final

__all__ = ["TransientStorePool", "anonymous_memory"]

_LOG: Final = logging.getLogger("store_core")
_LOW_WATER: Final = 0.4
"""Share of free buffers below which RocketMQ warns (``TransientStorePool.borrowBuffer``)."""


def anonymous_memory(size: int) -> memoryview:
    """Take `size` writable bytes, zero at first; memory is used only for the pages that are touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return memoryview(mmap.mmap(-1, size, flags=flags))


class TransientStorePool:
    """A few buffers of a segment's size: appends go into one, and a commit moves them to the file.

    RocketMQ (``TransientStorePool``, option ``transientStorePoolEnable``) locks its buffers in memory; here they are
    ordinary memory, which Linux may swap. What is in a buffer and not committed is lost with the process.

    Parameters
    ----------
    pool_size : int
        Buffers (``transientStorePoolSize``, 5).
    file_size : int
        Bytes of each.
    """

    def __init__(self, pool_size: int, file_size: int) -> None:
        self.pool_size = pool_size
        self.file_size = file_size
        self._lock = Lock()
        self._free = deque(anonymous_memory(file_size) for _ in range(pool_size))

    @property
    def available_buffers(self) -> int:
        """Buffers that nobody has."""
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """Take a buffer; None when all are out, and then a segment goes without. It may hold old bytes."""
        with self._lock:
            buffer = self._free.popleft() if self._free else None
            left = len(self._free)
        if left < self.pool_size * _LOW_WATER:
            _LOG.warning("the transient store pool has %d of %d buffers left", left, self.pool_size)
        return buffer

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer."""
        with self._lock:
            self._free.appendleft(buffer)

    def destroy(self) -> None:
        """Let go of the free buffers."""
        with self._lock:
            self._free.clear()
