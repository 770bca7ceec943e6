# SPDX-License-Identifier: Apache-2.0
"""Buffers that gather the units of many queues in log order and return them queue by queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from store_core.queue.units.consume_queue_unit import UNIT_DTYPE, fill_units
from store_core.queue.units.unit_codec import PackedUnits
from store_core.queue.units.unit_rows import UnitRows, sorted_places

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["PlainUnitBuffer", "UnitBuffer"]

_PLAIN: Final = ("physical_offset", "size", "tags_code", "queue_offset", "store_timestamp")


class UnitBuffer:
    """Buffer for the units of many batches; it copies what it needs of them.

    Parameters
    ----------
    room : int
        How many units it holds.
    is_whole : bool
        Whether there may be batch queues, extensions or light queues. If not, units come out as those of plain
        messages, whatever their base offset, batch size and `is_light`.
    """

    def __init__(self, room: int, *, is_whole: bool) -> None:
        self._size = room
        self._is_whole = is_whole
        self._count = 0
        self._codes = np.empty(0, np.int32)
        self._columns: dict[str, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        """Count the units."""
        return self._count

    @property
    def room(self) -> int:
        """How many more units fit."""
        return self._size - self._count

    def add(self, units: UnitRows) -> None:
        """Add units in log order, at most as many as there is `room` for; their codes are valid across batches."""
        self._make_room()
        place = slice(self._count, self._count + len(units.code))
        self._codes[place] = units.code
        for name, column in self._columns.items():
            column[place] = getattr(units, name)
        self._count = place.stop

    def _make_room(self) -> None:
        """Allocate the columns, once there are units."""
        if self._columns:
            return
        self._codes = np.empty(self._size, np.int32)
        self._columns = {name: np.empty(self._size, np.int64) for name in _PLAIN}
        if self._is_whole:
            self._columns["message_base_offset"] = np.empty(self._size, np.int64)
            self._columns["batch_size"] = np.empty(self._size, np.int16)
            self._columns["is_light"] = np.empty(self._size, np.bool_)

    def take(self) -> UnitRows:
        """Return the units `UnitRows.ordered`, and empty the buffer; `row` counts all units that were gathered."""
        self._make_room()
        order = sorted_places(self._codes[: self._count])
        columns = {name: column.take(order) for name, column in self._columns.items()}
        codes = self._codes.take(order)
        self._count = 0
        if not self._is_whole:
            columns["message_base_offset"] = columns["queue_offset"]
            columns["batch_size"] = np.ones(order.size, np.int16)
            columns["is_light"] = np.zeros(order.size, np.bool_)
        return UnitRows(row=order, code=codes, **columns)


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
