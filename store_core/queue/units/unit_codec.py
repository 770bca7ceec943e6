# SPDX-License-Identifier: Apache-2.0
"""Units of one queue as bytes, for transport from the process that reads the log to the one that writes the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from store_core.queue.units.consume_queue_unit import UNIT_DTYPE, stored_units
from store_core.queue.units.unit_rows import UnitRows, queue_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.queue.units.consume_queue_unit import UnitArray

__all__ = ["PackedUnits", "consecutive_units", "pack_whole", "unpack_units"]

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
    """Units of simple queues ordered by queue, encoded queue by queue.

    Parameters
    ----------
    code : array of int
        Number of each unit's queue.
    stored : array of unit
        The units as they are stored, of dtype `UNIT_DTYPE`.
    queue_offset : array of int64
        Their indexes.
    """

    def __init__(
        self, code: npt.NDArray[np.signedinteger[Any]], stored: UnitArray, queue_offset: npt.NDArray[np.int64]
    ) -> None:
        self._code = code
        self._stored = stored
        self._queue_offset = queue_offset
        # The units that do not continue the index of the one before them.
        self._breaks = np.flatnonzero(queue_offset[1:] != queue_offset[:-1] + 1) + 1

    @classmethod
    def of(cls, units: UnitRows) -> PackedUnits:
        """Encode units that are `UnitRows.ordered`."""
        return cls(units.code, stored_units(units.physical_offset, units.size, units.tags_code), units.queue_offset)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each queue, and its units."""
        for code, start, stop in queue_bounds(self._code):
            yield code, self.piece(start, stop)

    def piece(self, start: int, stop: int) -> bytes:
        """Return some units of one queue: their indexes, then the units as they are stored."""
        first, last = np.searchsorted(self._breaks, (start + 1, stop)).tolist()
        kind, end = (_CONSECUTIVE, start + 1) if first == last else (_SCATTERED, stop)
        offsets = self._queue_offset[start:end].astype(_LONG, copy=False)
        return b"".join((kind, offsets.tobytes(), self._stored[start:stop].view(np.uint8).data))


def pack_whole(units: UnitRows) -> bytes:
    """Return all columns of units of one queue, as batch queues and extensions need them."""
    typed = (getattr(units, name).astype(kind, copy=False).tobytes() for name, kind in _COLUMNS.items())
    return b"".join((_WHOLE, *typed))


def unpack_units(packed: bytes | memoryview) -> UnitRows:
    """Decode units of either form; columns that were not encoded are those of plain messages."""
    consecutive = consecutive_units(packed)
    if consecutive is not None:
        first, units = consecutive
        return _plain_rows(units, first + np.arange(len(units)))
    view = memoryview(packed)
    kind, data = bytes(view[:1]), view[1:]
    if kind == _SCATTERED:
        count = len(_whole_items(data, np.dtype(f"V{_LONG.itemsize + UNIT_DTYPE.itemsize}")))
        offsets = np.frombuffer(data, _LONG, count).astype(np.int64, copy=False)
        return _plain_rows(np.frombuffer(data, UNIT_DTYPE, count, _LONG.itemsize * count), offsets)
    if kind == _WHOLE:
        return _whole_rows(data)
    raise ValueError(f"{len(view)} bytes are not units: they begin with {kind!r}")


def consecutive_units(packed: bytes | memoryview) -> tuple[int, UnitArray] | None:
    """Return the index of the first unit, and the units as they are stored, of a piece without a gap.

    Returns
    -------
    tuple of (int, array) or None
        None for any other piece: `unpack_units` decodes that.
    """
    view = memoryview(packed)
    if view[:1] != _CONSECUTIVE or len(view) < 1 + _LONG.itemsize:
        return None
    first = int(np.frombuffer(view, _LONG, 1, 1)[0])
    return first, _whole_items(view[1 + _LONG.itemsize :], UNIT_DTYPE)


def _whole_items(data: memoryview, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    if len(data) % kind.itemsize:
        raise ValueError(f"{len(data)} bytes are not units of {kind.itemsize} bytes")
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
