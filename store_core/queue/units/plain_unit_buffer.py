# SPDX-License-Identifier: Apache-2.0
"""Gathers units of simple queues as they are stored, in log order, and returns them encoded, queue by queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.queue.units.consume_queue_unit import UNIT_DTYPE, fill_units
from store_core.queue.units.unit_codec import PackedUnits
from store_core.queue.units.unit_rows import sorted_places

if TYPE_CHECKING:
    from store_core.queue.units.unit_rows import UnitRows

__all__ = ["PlainUnitBuffer"]


class PlainUnitBuffer:
    """Units of many batches, of which nothing is kept but their bytes and indexes.

    Ordering them moves 28 bytes per unit from one place each, where `UnitBuffer` moves as many from one place per
    column: half the time.

    Parameters
    ----------
    room : int
        Units that it takes.
    """

    def __init__(self, room: int) -> None:
        self._count = 0
        self._codes = np.empty(room, np.int32)
        self._stored = np.empty(room, UNIT_DTYPE)
        self._queue_offset = np.empty(room, np.int64)

    def __len__(self) -> int:
        """Count the units."""
        return self._count

    @property
    def room(self) -> int:
        """How many more units it takes."""
        return len(self._codes) - self._count

    def add(self, units: UnitRows) -> None:
        """Take units in log order, as many as there is `room` for; their codes are those of all batches."""
        place = slice(self._count, self._count + len(units.code))
        self._codes[place] = units.code
        fill_units(self._stored[place], units.physical_offset, units.size, units.tags_code)
        self._queue_offset[place] = units.queue_offset
        self._count = place.stop

    def take(self) -> PackedUnits:
        """Return the units ordered by queue, and begin anew; those of a queue stay in their order."""
        filled = slice(0, self._count)
        order = sorted_places(self._codes[filled])
        self._count = 0
        return PackedUnits(
            self._codes[filled].take(order), self._stored[filled].take(order), self._queue_offset[filled].take(order)
        )
