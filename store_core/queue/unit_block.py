# SPDX-License-Identifier: Apache-2.0
"""Gathers the units of simple queues as they are stored, and gives them queue by queue, as bytes to be carried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.queue.consume_queue_unit import UNIT_DTYPE
from store_core.queue.unit_pieces import pack_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

__all__ = ["PlainColumns", "UnitBlock"]

_ROOM: Final = 1 << 18
"""Units that are gathered before they are given: 8 MiB. Of many small queues few units come together otherwise."""

_SHORT: Final = 1 << 16
"""Numbers below it are sorted by counting."""


class PlainColumns(NamedTuple):
    """Units of simple queues; arrays of int64, shape (n,)."""

    physical_offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    tags_code: npt.NDArray[np.int64]
    queue_offset: npt.NDArray[np.int64]


class UnitBlock:
    """Units of many queues, in log order; those of a queue come out in the order in which they went in.

    Parameters
    ----------
    room : int
        Units that it takes.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self._codes = np.empty(room, np.int64)
        self._units = np.empty(room, UNIT_DTYPE)
        self._offsets = np.empty(room, np.int64)
        self._count = 0

    def add(self, units: PlainColumns, codes: npt.NDArray[np.int64]) -> Iterator[tuple[int, bytes]]:
        """Take units with the number of each one's queue; give what is gathered whenever that fills the block."""
        done, room = 0, len(self._codes)
        while done < len(codes):
            count = min(room - self._count, len(codes) - done)
            into, part = slice(self._count, self._count + count), slice(done, done + count)
            self._codes[into] = codes[part]
            self._units["physical_offset"][into] = units.physical_offset[part]
            self._units["store_size"][into] = units.size[part]
            self._units["tags_code"][into] = units.tags_code[part]
            self._offsets[into] = units.queue_offset[part]
            self._count += count
            done += count
            if self._count == room:
                yield from self.rest()

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """Yield what is gathered: for each queue its number, and its units as `pack_plain` makes them."""
        count, self._count = self._count, 0
        if not count:
            return
        codes = self._codes[:count]
        order = np.argsort(codes.astype(np.uint16) if int(codes.max()) < _SHORT else codes, kind="stable")
        codes, units, offsets = codes[order], self._units[:count].take(order), self._offsets[:count].take(order)
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        follows = np.diff(offsets, prepend=offsets[0] - 1) == 1
        follows[starts] = True
        are_consecutive = np.logical_and.reduceat(follows, starts).tolist()
        stops = [*starts[1:].tolist(), count]
        for start, stop, is_consecutive in zip(starts.tolist(), stops, are_consecutive, strict=True):
            yield int(codes[start]), pack_plain(units[start:stop], offsets[start:stop], is_consecutive=is_consecutive)
