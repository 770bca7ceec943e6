# SPDX-License-Identifier: Apache-2.0
"""Units of one queue as bytes, to be carried from the process that reads the log to the one that writes the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from store_core.queue.consume_queue_unit import UNIT_DTYPE
from store_core.queue.unit_rows import UnitRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from store_core.queue.consume_queue_unit import UnitArray

__all__ = ["PIECE_UNITS", "PieceFormat", "UnitGatherer", "pack_plain"]

PIECE_UNITS: Final = 1 << 15
"""Most units of a piece: a megabyte or two."""

_MOST_GATHERED: Final = 1 << 20
"""Units held before they are given; of many small queues few units come together otherwise."""

_LONG: Final = np.dtype("<i8")
_CONSECUTIVE, _SCATTERED, _WHOLE = b"\0", b"\1", b"\2"
"""First byte of a piece: what is in it."""

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
"""Of a whole piece, one stretch of bytes each."""

_WHOLE_SIZE: Final = sum(column.itemsize for column in _COLUMNS.values())


def pack_plain(units: UnitArray, queue_offsets: npt.NDArray[np.int64], *, is_consecutive: bool) -> bytes:
    """Make the bytes of units of a simple queue: the units as they are stored, and their indexes before them.

    Parameters
    ----------
    units : array of unit
        Of dtype `UNIT_DTYPE`, contiguous.
    queue_offsets : array of int64
    is_consecutive : bool
        Whether each index is one more than the one before, so that the first says all.
    """
    if is_consecutive:
        return b"".join((_CONSECUTIVE, queue_offsets[:1].astype(_LONG).tobytes(), units.view(np.uint8).data))
    return b"".join((_SCATTERED, queue_offsets.astype(_LONG, copy=False).tobytes(), units.view(np.uint8).data))


class PieceFormat:
    """In which form units are carried.

    Parameters
    ----------
    is_whole : bool
        All columns, as batch queues and extensions need them; else as `pack_plain` makes them.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole

    def pack(self, pieces: Iterable[UnitRows]) -> bytes:
        """Make the bytes of units that follow one another."""
        parts = list(pieces)
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        if self._is_whole:
            typed = (columns[name].astype(kind, copy=False).tobytes() for name, kind in _COLUMNS.items())
            return b"".join((_WHOLE, *typed))
        units = np.empty(len(columns["size"]), UNIT_DTYPE)
        units["physical_offset"] = columns["physical_offset"]
        units["store_size"] = columns["size"]
        units["tags_code"] = columns["tags_code"]
        offsets = columns["queue_offset"]
        return pack_plain(units, offsets, is_consecutive=bool(len(offsets) and (np.diff(offsets) == 1).all()))

    @staticmethod
    def unpack(packed: bytes | memoryview) -> UnitRows:
        """Read units back, in whichever form; columns that were not carried are those of plain messages.

        Raises
        ------
        ValueError
            If `packed` is nothing that was made here.
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


class UnitGatherer:
    """Gathers the units of queues until there are enough to be carried in few pieces.

    Units of a queue come out in the order in which they went in.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], list[UnitRows]] = {}
        self._count = 0

    def add(self, queue: tuple[str, int], units: UnitRows) -> Iterator[tuple[tuple[str, int], list[UnitRows]]]:
        """Take units of a queue; give those of all queues if that is enough."""
        self._held.setdefault(queue, []).append(units)
        self._count += len(units.row)
        if self._count >= _MOST_GATHERED:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[tuple[str, int], list[UnitRows]]]:
        """Yield what is held, in pieces of `PIECE_UNITS` units at most."""
        held, self._held, self._count = self._held, {}, 0
        for queue, parts in held.items():
            piece: list[UnitRows] = []
            room = PIECE_UNITS
            for part in parts:
                at = 0
                while at < len(part.row):
                    taken = part.slice(at, min(at + room, len(part.row)))
                    piece.append(taken)
                    at += len(taken.row)
                    room -= len(taken.row)
                    if not room:
                        yield queue, piece
                        piece, room = [], PIECE_UNITS
            if piece:
                yield queue, piece
