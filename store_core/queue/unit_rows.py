# SPDX-License-Identifier: Apache-2.0
"""Units on their way to queues: as rows, gathered, and as Arrow tables to another process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from store_core.format.columnar.arrow_slices import fixed_array, numbers
from store_core.queue.consume_queue_unit import batch_units
from store_core.queue.dispatch.dispatch_batch import DispatchBatch, QueueNumbering

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.queue.consume_queue_unit import BatchUnitArray
    from store_core.queue.queue_assignment import BatchAssignment


_SMALL: Final = 2**16 - 1


class UnitRows(NamedTuple):
    """Units in log order, or `ordered` by queue; arrays of shape (n,).

    `row` is the record's row in its batch, `code` the number of the queue, `is_light` whether it is an additional unit
    of its record, in a light queue; the others are as in `DispatchBatch`.
    """

    row: npt.NDArray[np.int64]
    code: npt.NDArray[np.signedinteger[Any]]
    physical_offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    tags_code: npt.NDArray[np.int64]
    queue_offset: npt.NDArray[np.int64]
    store_timestamp: npt.NDArray[np.int64]
    message_base_offset: npt.NDArray[np.int64]
    batch_size: npt.NDArray[np.int16]
    is_light: npt.NDArray[np.bool_]

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

    def batch_units(self) -> BatchUnitArray:
        """Return the units as a batch queue stores them."""
        return batch_units(
            {
                "physical_offset": self.physical_offset,
                "store_size": self.size,
                "tags_code": self.tags_code,
                "store_timestamp": self.store_timestamp,
                "msg_base_offset": self.message_base_offset,
                "batch_size": self.batch_size,
            }
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
        starts = np.flatnonzero(np.diff(self.code, prepend=-1))
        stops = np.append(starts, len(self.code))[1:]
        return zip(self.code[starts].tolist(), starts.tolist(), stops.tolist(), strict=True)

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


_COLUMNS: Final[dict[str, type[np.generic]]] = {
    **dict.fromkeys(("physical_offset", "size", "tags_code", "queue_offset", "store_timestamp"), np.int64),
    "message_base_offset": np.int64,
    "batch_size": np.int16,
    "is_light": np.bool_,
}
"""What is kept of units, and passed on."""

_UNIT: Final = pa.struct(
    [(name, pa.uint8() if kind is np.bool_ else pa.from_numpy_dtype(kind)) for name, kind in _COLUMNS.items()]
)
_SCHEMA: Final = pa.schema([("topic", pa.binary()), ("queue_id", pa.int32()), ("units", pa.list_(_UNIT))])


class QueueUnits(NamedTuple):
    """Units of some queues, ordered by queue; those of one queue are in log order."""

    queues: Sequence[tuple[str, int]]
    """Topic and id; the codes of the units are positions here. A queue may have no unit."""
    units: UnitRows

    def used(self) -> Self:
        """Return the same without the queues that have no unit."""
        used = np.flatnonzero(np.bincount(self.units.code, minlength=len(self.queues)))
        if len(used) == len(self.queues):
            return self
        numbers = np.zeros(len(self.queues), np.int64)
        numbers[used] = np.arange(len(used))
        queues = [self.queues[code] for code in used.tolist()]
        return type(self)(queues, self.units._replace(code=numbers.take(self.units.code)))

    def tables(self, groups: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the units of each group of queues that has some as `to_table`, given the group of each queue."""
        table = self.to_table()
        for group in np.unique(groups).tolist():
            rows = np.flatnonzero(groups == group)
            yield group, table if rows.size == groups.size else table.take(fixed_array(rows))

    @classmethod
    def joined(cls, pieces: Sequence[QueueUnits]) -> Self:
        """Return the units of pieces that follow one another in the log."""
        numbers = QueueNumbering()
        codes = []
        for piece in pieces:
            known = np.array([numbers.number(queue) for queue in piece.queues], np.int64)
            codes.append(known[piece.units.code])
        if len(pieces) == 1:
            return cls(numbers.queues, pieces[0].units)
        columns = (np.concatenate(some) for some in zip(*(piece.units for piece in pieces), strict=True))
        return cls(numbers.queues, UnitRows(*columns)._replace(code=np.concatenate(codes)).ordered())

    def to_table(self) -> pa.RecordBatch:
        """Return a row for each queue: topic, queue id and units."""
        counts = np.bincount(self.units.code, minlength=len(self.queues))
        bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        columns = [
            fixed_array(getattr(self.units, each.name).astype(str(each.type), copy=False), each.type) for each in _UNIT
        ]
        units = pa.StructArray.from_arrays(columns, list(_COLUMNS))
        topics = pa.array([topic.encode(errors="surrogatepass") for topic, _ in self.queues], pa.binary())
        ids = fixed_array(np.array([queue_id for _, queue_id in self.queues], np.int32))
        return pa.RecordBatch.from_arrays(
            [topics, ids, pa.ListArray.from_arrays(fixed_array(bounds), units)], schema=_SCHEMA
        )

    @classmethod
    def of_table(cls, table: pa.RecordBatch) -> Self:
        """Return what a table of `to_table` has."""
        topics, ids, units = table.columns
        queues = [
            (name.decode(errors="surrogatepass"), number)
            for name, number in zip(topics.to_pylist(), ids.to_pylist(), strict=True)
        ]
        code = np.repeat(np.arange(len(queues)), np.diff(numbers(units.offsets)))
        columns = {field.name: numbers(units.values.field(field.name)) for field in units.type.value_type}
        columns["is_light"] = columns["is_light"].view(np.bool_)
        return cls(queues, UnitRows(row=np.arange(len(code)), code=code, **columns))


def empty_units() -> UnitRows:
    """Return no units."""
    return UnitBuffer(0).take()


class UnitBuffer:
    """Buffer for `room` units of many batches; it copies what it needs of them."""

    def __init__(self, room: int) -> None:
        self._size = room
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
        self._columns = {name: np.empty(self._size, kind) for name, kind in _COLUMNS.items()}

    def take(self) -> UnitRows:
        """Return the units `UnitRows.ordered`, and empty the buffer; `row` counts all units that were gathered."""
        self._make_room()
        order = sorted_places(self._codes[: self._count])
        columns = {name: column.take(order) for name, column in self._columns.items()}
        codes = self._codes.take(order)
        self._count = 0
        return UnitRows(row=order, code=codes, **columns)
