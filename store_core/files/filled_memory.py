# SPDX-License-Identifier: Apache-2.0
"""The bytes of a segment that can't be mapped: memory of its size, which the system provides where it is written to."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

__all__ = ["FilledMemory"]

_PAGE: Final = mmap.PAGESIZE
_HUGE_PAGE: Final = 2 << 20
"""Bytes from which on huge pages are asked for: filling small ones, one fault each, took longer than the download."""

_LOOK: Final = 4 << 10
"""Bytes that are looked at first for anything but zeros: all of them are only where a segment is not written."""


class FilledMemory:
    """An array that is filled part by part, and whose parts can be given back.

    What is not filled is zeros and takes no memory; neither do zeros that it is filled with, as in a segment that is
    not full.

    * `size`: In bytes.

    * `raw`: uint8, shape (size,), read-only.
    """

    def __init__(self, size: int) -> None:
        # Private: shared memory is kept, whatever is said of its pages.
        self._memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = np.frombuffer(self._memory, np.uint8)[:size]
        self.raw: npt.NDArray[np.uint8] = self._bytes.view()
        self.raw.flags.writeable = False

    def use_huge_pages(self) -> None:
        """Take memory in huge pages, for what is filled without gaps."""
        if len(self._memory) >= _HUGE_PAGE:
            self._memory.madvise(mmap.MADV_HUGEPAGE)

    def fill(self, begin: int, data: bytes | npt.NDArray[np.uint8]) -> None:
        """Put bytes at a position."""
        found = np.frombuffer(data, np.uint8)
        if found.any():
            self._bytes[begin:][: found.size] = found

    def fill_by(self, begin: int, end: int, read: Callable[[npt.NDArray[np.uint8]], None]) -> None:
        """Let a function write the bytes of a range into their place, without another copy of them.

        Until it returns, and if it fails, the range holds anything.

        * `begin`, `end`: Positions.
        * `read`: Fills an array, uint8, shape (end - begin,).
        """
        target = self._bytes[begin:end]
        read(target)
        if not (target[:_LOOK].any() or target.any()):
            self.free(begin, end)

    def part(self, begin: int, end: int) -> memoryview:
        """Return a few bytes to write into, whose memory is kept even if they stay zeros."""
        return self._bytes[begin:end].data

    def free(self, begin: int, end: int) -> None:
        """Return the whole pages of a range to the system; they are zeros until they are filled again."""
        first, last = -(-begin // _PAGE) * _PAGE, end // _PAGE * _PAGE
        if first < last:
            self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)
