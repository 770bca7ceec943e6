# SPDX-License-Identifier: Apache-2.0
"""A pool of write buffers outside the page cache."""

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
    """Return `size` writable bytes, initially zero; only pages that are touched use memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return memoryview(mmap.mmap(-1, size, flags=flags))


class TransientStorePool:
    """A few buffers of a segment's size: appends go into a buffer, and a commit copies them to the file.

    RocketMQ (``TransientStorePool``, option ``transientStorePoolEnable``) locks its buffers in memory; here they are
    ordinary memory, which Linux may swap. Bytes in a buffer that are not committed are lost with the process.

    Parameters
    ----------
    pool_size : int
        Number of buffers (``transientStorePoolSize``, 5).
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
        """Number of free buffers."""
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """Take a free buffer, which may hold old bytes; None if none is left, and the segment does without."""
        with self._lock:
            buffer = self._free.popleft() if self._free else None
            left = len(self._free)
        if left < self.pool_size * _LOW_WATER:
            _LOG.warning("the transient store pool has %d of %d buffers left", left, self.pool_size)
        return buffer

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer to the pool."""
        with self._lock:
            self._free.appendleft(buffer)

    def destroy(self) -> None:
        """Drop the free buffers."""
        with self._lock:
            self._free.clear()
