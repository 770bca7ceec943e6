# SPDX-License-Identifier: Apache-2.0
"""Units of one queue as bytes, for transport from the process that reads the log to the one that writes the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from store_core.queue.units.consume_queue_unit import UNIT_DTYPE
from store_core.queue.units.unit_rows import UnitRows

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.units.consume_queue_unit import UnitArray

__all__ = ["PackedUnits", "unpack_units"]

_LONG: Final = np.dtype("<i8")
_CONSECUTIVE, _SCATTERED, _WHOLE = b"\0", b"\1", b"\2"
"""First byte of a piece: its kind."""

_COLUMNS: Final[dict[str, np.dtype[Any]]] = {
    "physical_offset": _LONG,
    "size": np.dtype("<i4"),
    "tags_code": _LONG,
    "queue_offset": _LONG,
    "store_timestamp": _LONG,
    "message_base_offset": _LONG,
    "batch_size": np.dtype("<i2"),
    "is_light": np.dtype("?"),
}
"""The columns of a whole piece, each as one stretch of bytes."""

_WHOLE_SIZE: Final = sum(column.itemsize for column in _COLUMNS.values())


class PackedUnits:
    """Units ordered by queue, encoded queue by queue.

    Parameters
    ----------
    units : UnitRows
    """

    def __init__(self, units: UnitRows) -> None:
        self._units = units
        self._stored = np.empty(len(units.code), UNIT_DTYPE)
        self._stored["physical_offset"] = units.physical_offset
        self._stored["store_size"] = units.size
        self._stored["tags_code"] = units.tags_code
        # How many units up to and including each do not continue the index of the one before them.
        self._breaks = np.cumsum(np.diff(units.queue_offset, prepend=units.queue_offset[:1] - 1) != 1)

    def plain(self, start: int, stop: int) -> bytes:
        """Return some units of a simple queue: their indexes, then the units as they are stored."""
        is_consecutive = bool(self._breaks[start] == self._breaks[stop - 1])
        kind, last = (_CONSECUTIVE, start + 1) if is_consecutive else (_SCATTERED, stop)
        offsets = self._units.queue_offset[start:last].astype(_LONG, copy=False)
        return b"".join((kind, offsets.tobytes(), self._stored[start:stop].view(np.uint8).data))

    def whole(self, start: int, stop: int) -> bytes:
        """Return all columns of some units, as batch queues and extensions need them."""
        units = self._units.slice(start, stop)
        typed = (getattr(units, name).astype(kind, copy=False).tobytes() for name, kind in _COLUMNS.items())
        return b"".join((_WHOLE, *typed))


def unpack_units(packed: bytes | memoryview) -> UnitRows:
    """Decode units of either form; columns that were not encoded are those of plain messages.

    Raises
    ------
    ValueError
        If `packed` was not made by `PackedUnits`.
    """
    view = memoryview(packed)
    kind, data = bytes(view[:1]), view[1:]
    if kind == _CONSECUTIVE and len(data) >= _LONG.itemsize:
        first = int(np.frombuffer(data, _LONG, 1)[0])
        units = _whole_items(data[_LONG.itemsize :], UNIT_DTYPE)
        return _plain_rows(units, first + np.arange(len(units)))
    if kind == _SCATTERED:
        count = len(_whole_items(data, np.dtype(f"V{_LONG.itemsize + UNIT_DTYPE.itemsize}")))
        offsets = np.frombuffer(data, _LONG, count).astype(np.int64, copy=False)
        return _plain_rows(np.frombuffer(data, UNIT_DTYPE, count, _LONG.itemsize * count), offsets)
    if kind == _WHOLE:
        return _whole_rows(data)
    raise ValueError(f"{len(view)} bytes are no units: they begin with {kind!r}")


def _whole_items(data: memoryview, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    if len(data) % kind.itemsize:
        raise ValueError(f"{len(data)} bytes are no units of {kind.itemsize} bytes")
    return np.frombuffer(data, kind)


def _plain_rows(units: UnitArray, queue_offsets: npt.NDArray[np.int64]) -> UnitRows:
    count = len(units)
    nothing = np.zeros(count, np.int64)
    return UnitRows(
        row=nothing,
        code=nothing,
        physical_offset=units["physical_offset"].astype(np.int64),
        size=units["store_size"].astype(np.int64),
        tags_code=units["tags_code"].astype(np.int64),
        queue_offset=queue_offsets,
        store_timestamp=nothing,
        message_base_offset=queue_offsets,
        batch_size=np.ones(count, np.int16),
        is_light=np.zeros(count, np.bool_),
    )


def _whole_rows(data: memoryview) -> UnitRows:
    count = len(_whole_items(data, np.dtype(f"V{_WHOLE_SIZE}")))
    columns: dict[str, npt.NDArray[Any]] = {}
    position = 0
    for name, kind in _COLUMNS.items():
        columns[name] = np.frombuffer(data, kind, count, position)
        position += kind.itemsize * count
    columns["size"] = columns["size"].astype(np.int64)
    nothing = np.zeros(count, np.int64)
    return UnitRows(row=nothing, code=nothing, **columns)
