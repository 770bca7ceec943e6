# SPDX-License-Identifier: Apache-2.0
"""A buffer that gathers the units of many queues in log order and returns them queue by queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from store_core.queue.units.unit_rows import UnitRows, sorted_places

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["UnitBuffer"]

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
