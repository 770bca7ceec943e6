# SPDX-License-Identifier: Apache-2.0
"""A buffer that gathers stored units of simple queues in log order, and returns them encoded queue by queue."""

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
    """Buffer for the units of many batches that keeps only their bytes and indexes.

    Ordering them moves each unit's 28 bytes from one place, `UnitBuffer` from one place per column: this takes half
    the time.

    Parameters
    ----------
    room : int
        How many units it holds.
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
        """How many more units fit."""
        return len(self._codes) - self._count

    def add(self, units: UnitRows) -> None:
        """Add units in log order, at most as many as there is `room` for; their codes are valid across batches."""
        place = slice(self._count, self._count + len(units.code))
        self._codes[place] = units.code
        fill_units(self._stored[place], units.physical_offset, units.size, units.tags_code)
        self._queue_offset[place] = units.queue_offset
        self._count = place.stop

    def take(self) -> PackedUnits:
        """Return the units ordered by queue, and empty the buffer; those of one queue keep their order."""
        filled = slice(0, self._count)
        order = sorted_places(self._codes[filled])
        self._count = 0
        return PackedUnits(
            self._codes[filled].take(order), self._stored[filled].take(order), self._queue_offset[filled].take(order)
        )
