# SPDX-License-Identifier: Apache-2.0
"""Units of one queue as bytes, to be carried from the process that reads the log to the one that writes the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from store_core.queue.unit_rows import UnitRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

__all__ = ["PIECE_UNITS", "PieceFormat", "UnitGatherer"]

PIECE_UNITS: Final = 1 << 15
"""Most units of a piece: a megabyte or two."""

_MOST_GATHERED: Final = 1 << 20
"""Units held before they are given; of many small queues few units come together otherwise."""

_NEEDED: Final = ("physical_offset", "size", "tags_code", "queue_offset")
_FURTHER: Final = ("store_timestamp", "message_base_offset", "batch_size", "is_light")
_LONG: Final = np.dtype("<i8")
_TYPES: Final[dict[str, np.dtype[Any]]] = dict.fromkeys(_NEEDED + _FURTHER, _LONG) | {
    "size": np.dtype("<i4"),
    "batch_size": np.dtype("<i2"),
    "is_light": np.dtype("?"),
}


class PieceFormat:
    """Which columns of units are carried, each as one stretch of bytes.

    Parameters
    ----------
    is_whole : bool
        All columns, as batch queues and extensions need them; simple queues need four.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self._names = _NEEDED + _FURTHER if is_whole else _NEEDED
        self._unit_size = sum(_TYPES[name].itemsize for name in self._names)

    def pack(self, pieces: Iterable[UnitRows]) -> bytes:
        """Make the bytes of units that follow one another."""
        parts = list(pieces)
        columns = (np.concatenate([getattr(part, name) for part in parts]) for name in self._names)
        typed = zip(self._names, columns, strict=True)
        return b"".join(column.astype(_TYPES[name], copy=False).tobytes() for name, column in typed)

    def unpack(self, packed: bytes | memoryview) -> UnitRows:
        """Read the units back; columns that were not carried are those of plain messages.

        Raises
        ------
        ValueError
            If there are bytes behind the last whole unit.
        """
        count, rest = divmod(len(packed), self._unit_size)
        if rest:
            raise ValueError(f"{len(packed)} bytes are no units of {self._unit_size} bytes")
        columns: dict[str, npt.NDArray[Any]] = {}
        position = 0
        for name in self._names:
            kind = _TYPES[name]
            columns[name] = np.frombuffer(packed, kind, count, position)
            position += kind.itemsize * count
        columns["size"] = columns["size"].astype(np.int64)
        plain: dict[str, npt.NDArray[Any]] = {
            "row": np.zeros(count, np.int64),
            "code": np.zeros(count, np.int64),
            "store_timestamp": np.zeros(count, np.int64),
            "message_base_offset": columns["queue_offset"],
            "batch_size": np.ones(count, np.int16),
            "is_light": np.zeros(count, np.bool_),
        }
        return UnitRows(**(plain | columns))


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
        """Give what is held, in pieces of `PIECE_UNITS` units at most."""
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
