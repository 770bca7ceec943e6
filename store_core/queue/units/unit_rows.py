# SPDX-License-Identifier: Apache-2.0
"""Units on their way to queues: as rows, gathered, and to another process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from store_core.queue.units.consume_queue_unit import UNIT_DTYPE, fill_units, stored_units

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.units.consume_queue_unit import UnitArray
    from store_core.queue.units.queue_assignment import BatchAssignment

__all__ = [
    "PackedUnits",
    "PlainUnitBuffer",
    "UnitBuffer",
    "UnitRows",
    "consecutive_units",
    "pack_whole",
    "queue_bounds",
    "sorted_places",
    "unpack_units",
]

_SMALL: Final = 2**16 - 1


class UnitRows(NamedTuple):
    """Units in log order, or `ordered` by queue; arrays of shape (n,).

    * `physical_offset`, `size`, `tags_code`, `queue_offset`, `store_timestamp`, `message_base_offset`, `batch_size`: As
      in `DispatchBatch`.
    """

    row: npt.NDArray[np.int64]  # the record's row in its batch
    code: npt.NDArray[np.signedinteger[Any]]  # number of the queue
    physical_offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    tags_code: npt.NDArray[np.int64]
    queue_offset: npt.NDArray[np.int64]
    store_timestamp: npt.NDArray[np.int64]
    message_base_offset: npt.NDArray[np.int64]
    batch_size: npt.NDArray[np.int16]
    is_light: npt.NDArray[np.bool_]  # whether it is an additional unit of its record, in a light queue

    @classmethod
    def of(cls, batch: DispatchBatch, assigned: BatchAssignment) -> UnitRows:
        """Return the units of a batch in log order; those in light queues follow their record's own."""
        if assigned.rows is None:  # views of whole columns
            units = cls._at(batch, np.arange(len(batch)), slice(None), assigned.codes, batch.queue_offset)
        else:
            rows = assigned.rows
            units = cls._at(batch, rows, rows, assigned.codes, batch.queue_offset[rows])
        if not assigned.light:
            return units
        rows, codes, offsets = np.array(assigned.light, np.int64).T
        light = cls._at(batch, rows, rows, codes, offsets)._replace(is_light=np.ones(len(rows), np.bool_))
        joined = [np.concatenate((getattr(units, name), getattr(light, name))) for name in cls._fields]
        return cls(*joined).take(np.argsort(joined[0], kind="stable"))

    @classmethod
    def _at(
        cls,
        batch: DispatchBatch,
        rows: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64] | slice,
        codes: npt.NDArray[np.signedinteger[Any]],
        offsets: npt.NDArray[np.int64],
    ) -> UnitRows:
        """Return units of the records at some places of a batch, none of them light."""
        return cls(
            rows,
            codes,
            batch.physical_offset[places],
            batch.message_size[places],
            batch.tags_code[places],
            offsets,
            batch.store_timestamp[places],
            batch.message_base_offset[places],
            batch.batch_size[places],
            np.zeros(len(rows), np.bool_),
        )

    def take(self, places: npt.NDArray[np.signedinteger[Any]]) -> UnitRows:
        """Return the units at some places, in that order."""
        columns: list[npt.NDArray[Any]] = [column.take(places) for column in self]
        return UnitRows(*columns)

    def ordered(self) -> UnitRows:
        """Return the units ordered by queue; those of one queue keep their order."""
        return self.take(sorted_places(self.code))

    def bounds(self) -> Iterator[tuple[int, int, int]]:
        """Yield the number of each queue, and where its units begin and end; the units must be `ordered`."""
        return queue_bounds(self.code)

    def slice(self, start: int, stop: int) -> UnitRows:
        """Return the units of a range of places, without copying."""
        columns: list[npt.NDArray[Any]] = [column[start:stop] for column in self]
        return UnitRows(*columns)

    def chosen(self, is_chosen: npt.NDArray[np.bool_]) -> UnitRows:
        """Return the chosen units; itself if that is all of them."""
        return self if is_chosen.all() else self.take(np.flatnonzero(is_chosen))


def sorted_places(codes: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.int64]:
    """Return the places that sort queue numbers stably; if 16 bits hold them, by a radix sort without comparisons."""
    few = len(codes) > 0 and int(codes.max()) <= _SMALL
    return np.argsort(codes.astype(np.uint16) if few else codes, kind="stable")


def queue_bounds(codes: npt.NDArray[np.signedinteger[Any]]) -> Iterator[tuple[int, int, int]]:
    """Yield each queue's number, and where its units begin and end; the units must be ordered by these numbers."""
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    stops = np.append(starts, len(codes))[1:]
    return zip(codes[starts].tolist(), starts.tolist(), stops.tolist(), strict=True)


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

    * `code`: Number of each unit's queue.
    * `stored`: The units as they are stored, of dtype `UNIT_DTYPE`.
    * `queue_offset`: Their indexes.
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

    Returns: None for any other piece: `unpack_units` decodes that.
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


_PLAIN: Final = ("physical_offset", "size", "tags_code", "queue_offset", "store_timestamp")


class UnitBuffer:
    """Buffer for the units of many batches; it copies what it needs of them.

    * `room`: How many units it holds.
    * `is_whole`: Whether there may be batch queues, extensions or light queues. If not, units come out as those of
      plain messages, whatever their base offset, batch size and `is_light`.
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

    * `room`: How many units it holds.
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
