# SPDX-License-Identifier: Apache-2.0
"""A remote file that is read from some position on, to an end that shows only in what is read, as units of a queue."""

from __future__ import annotations

from typing import Final

from store_core.files.remote.picked_bytes import PickedBytes

__all__ = ["READ_FIRST", "ForwardBytes"]

READ_FIRST: Final = 256 << 10
"""Bytes of the first request: most queues have fewer, in files of 6 MB."""

_GROWTH: Final = 4
"""How many times as much each further request gets, up to `_LARGEST`."""

_LARGEST: Final = 4 << 20


class ForwardBytes(PickedBytes):
    """A remote file whose bytes are requested in blocks, and in longer ones as far as they are read in their order.

    Parameters
    ----------
    file : RemoteFile
    """

    _reached = 0
    _length = READ_FIRST // _GROWTH

    def load(self, begin: int, end: int) -> None:
        """Make the bytes of a range available."""
        if self.has(begin, min(end, self._size)):
            return
        first = begin // READ_FIRST * READ_FIRST
        self._length = min(self._length * _GROWTH, _LARGEST) if first <= self._reached <= end else READ_FIRST
        stop = max(first + self._length, -(-end // READ_FIRST) * READ_FIRST)
        self.load_many([(first, stop)])
        self._reached = min(stop, self._size)
