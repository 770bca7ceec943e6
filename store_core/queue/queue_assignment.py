# SPDX-License-Identifier: Apache-2.0
"""Assignment of records to queues: in which a record belongs, at which index, and which refuse it; and its units.

`assign` is the definition, for one record; `assign_batch` does the same for many, and calls the definition for each
record that is out of the ordinary. Everything that fills queues uses one of them: putting, dispatching, recovery, the
sink and rebuilds.

The rules depend only on the record and `QueueRules`:

* A prepared or rolled-back transaction message is in no queue.
* A record is in the queue of its topic and id: in a batch topic as one unit for its messages, else at its queue offset.
* A record of an ordinary topic may also be in light queues, which its properties name.
* A unit is refused if its queue can't be a directory (`store_core.queue.queue_path.refusal_of`), or if it can't be
  stored at its index (`index_refusal`, `batch_refusal`). A record whose own unit is refused is in no light queue.

How many queues there may be, and whether one has reached its last possible file, is known only to the owner of the
queues, see `store_core.queue.consume_queue.consume_queue_store.ConsumeQueueStore.put`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from store_core.format.columnar.arrow_slices import fixed_array, numbers
from store_core.format.java import LONG_BITS, parse_java_int
from store_core.format.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from store_core.queue.consume_queue_unit import CQ_STORE_UNIT_SIZE, batch_units, units_per_file
from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest, QueueNumbering
from store_core.queue.queue_path import QueueRules, has_lists, is_light, refusal_of, split_names

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    import numpy.typing as npt

    from store_core.queue.consume_queue_unit import BatchUnitArray


_LAST_OFFSET: Final = 2**63 - 1
_LARGEST_BATCH: Final = 2**15 - 1


class UnfitListsError(ValueError):
    """The two lists of a record don't match, or hold something that is not a number; `lmq_units` explains."""


class UnreadableIndexError(UnfitListsError):
    """An index of a record in its light queues is no number (Java: ``NumberFormatException``)."""


class AssignedUnit(NamedTuple):
    """A unit of a record."""

    topic: str
    queue_id: int
    queue_offset: int  # the record's index in the queue; in a batch queue that of its first message


def lmq_units(request: DispatchRequest, rules: QueueRules) -> list[AssignedUnit]:
    """Return the additional queues of a record (RocketMQ: ``ConsumeQueue.multiDispatchLmqQueue``).

    Property INNER_MULTI_DISPATCH names them, and INNER_MULTI_QUEUE_OFFSET holds the record's indexes in them. A light
    queue has id 0 if light queues are enabled; any other queue has the record's id. For which topics a release does
    this, see `has_lists`; 5.3 skips names with a '/'.
    """
    if not (rules.is_multi_dispatch_enabled and has_lists(request.topic, rules.features)):
        return []
    names_text = request.properties.get(INNER_MULTI_DISPATCH) or ""
    offsets_text = request.properties.get(INNER_MULTI_QUEUE_OFFSET) or ""
    if not names_text.strip() or not offsets_text.strip():
        return []
    names, offsets = split_names(names_text), split_names(offsets_text)
    if len(names) != len(offsets):
        raise UnfitListsError(f"{INNER_MULTI_DISPATCH} names {len(names)} queues, with {len(offsets)} indexes")
    try:
        numbers = [parse_java_int(offset, LONG_BITS) for offset in offsets]
    except ValueError as error:
        raise UnreadableIndexError(f"{INNER_MULTI_QUEUE_OFFSET}: {error}") from None
    return [
        AssignedUnit(name, 0 if rules.is_lmq_enabled and is_light(name) else request.queue_id, number)
        for name, number in zip(names, numbers, strict=True)
        if "/" not in name or not rules.features.passes_over_light_names_with_slash
    ]


class Assignment(NamedTuple):
    """The units of one record, its own first, and the refused ones; both are empty if it belongs in no queue."""

    units: tuple[AssignedUnit, ...] = ()
    refused: tuple[RefusedUnit, ...] = ()


class LightRow(NamedTuple):
    """An additional unit of a record, in a light queue."""

    row: int  # the record's row in its batch
    code: int  # number of the light queue
    queue_offset: int  # the record's index in it


class BatchAssignment(NamedTuple):
    """The units of a batch, without their columns."""

    rows: npt.NDArray[np.int64] | None  # rows that have a unit of their own; None for all
    codes: npt.NDArray[np.int32]  # for each of these units, the number of its queue in `queues`
    light: list[LightRow]  # additional units, in the order of their records
    queues: tuple[tuple[str, int], ...]  # topic and id; the queues of the batch come first, with or without units
    refused: list[RefusedUnit]  # in the order of their records

    @property
    def used_codes(self) -> list[int]:
        """Return the numbers of the queues that have units here."""
        counts = np.bincount(self.codes, minlength=len(self.queues))
        counts[[unit.code for unit in self.light]] += 1
        used: list[int] = np.flatnonzero(counts).tolist()
        return used


# ---- the definition


def assign(request: DispatchRequest, rules: QueueRules) -> Assignment:
    """Assign one record to queues (RocketMQ: ``putMessagePositionInfoWrapper``, ``multiDispatchLmqQueue``)."""
    if not request.is_queued:
        return Assignment()
    is_batch = request.topic in rules.batch_topics
    queue_offset = request.message_base_offset if is_batch else request.consume_queue_offset
    own = AssignedUnit(request.topic, request.queue_id, queue_offset)
    reason = refusal_of(own.topic, own.queue_id) or (
        batch_refusal(queue_offset, request.batch_size) if is_batch else index_refusal(queue_offset, rules)
    )
    if reason is not None:
        return Assignment(refused=(_refused(own, request, reason),))
    return Assignment((own,)) if is_batch else _with_light(own, request, rules)


def _with_light(own: AssignedUnit, request: DispatchRequest, rules: QueueRules) -> Assignment:
    """Add the units in light queues; a refused one does not affect the record's other units."""
    try:
        light = lmq_units(request, rules)
    except UnfitListsError as error:
        unfit = _refused(own, request, str(error))
        return Assignment((own,), (unfit._replace(stops_broker=isinstance(error, UnreadableIndexError)),))
    reasons = [_light_refusal(unit, rules) for unit in light]
    units = [unit for unit, reason in zip(light, reasons, strict=True) if reason is None]
    refused = [_refused(unit, request, reason) for unit, reason in zip(light, reasons, strict=True) if reason]
    return Assignment((own, *units), tuple(refused))


def _light_refusal(unit: AssignedUnit, rules: QueueRules) -> str | None:
    """Return why a light queue gets no unit; RocketMQ can't put one into a batch queue either."""
    reason = refusal_of(unit.topic, unit.queue_id)
    if reason is None and unit.topic in rules.batch_topics:
        return "a batch queue can't be a light one"
    return reason or index_refusal(unit.queue_offset, rules)


def _refused(unit: AssignedUnit, request: DispatchRequest, reason: str) -> RefusedUnit:
    return RefusedUnit(unit.topic, unit.queue_id, request.physical_offset, reason)


def index_limit(rules: QueueRules) -> int:
    """Return the first index that no simple queue can have: its file would end beyond the range of Java's ``long``.

    >>> from store_core.queue.queue_path import QueueRules
    >>> 2**58 < index_limit(QueueRules()) < 2**59
    True
    """
    count = units_per_file(rules.consume_queue_file_size)
    return _LAST_OFFSET // (count * CQ_STORE_UNIT_SIZE) * count


def index_refusal(queue_offset: int, rules: QueueRules) -> str | None:
    """Return why a unit can't be stored at an index of a simple queue; None if it can.

    Indexes come from the log, where anything may be written. A valid one may be large: a queue that begins with it gets
    a single file, filled up to it. No consumer gets the record at any other index from RocketMQ (4.3.0, 4.9.7, 5.3.3:
    ``ConsumeQueue.putMessagePositionInfo``), which indexes it all the same, unlike here: up to 2**63 // 20 in a file
    that ends beyond Java's ``long``, above that at a position that has overflowed, such as byte 0 for 2**62. A negative
    position makes an empty file, or one of a negative name, and then release 5.3 can't load the store.
    """
    limit = index_limit(rules)
    if 0 <= queue_offset < limit:
        return None
    return f"queue offset {queue_offset} can't be indexed, expected 0 to {limit - 1}"


def batch_refusal(message_base_offset: int, batch_size: int) -> str | None:
    """Return why a batch queue has no unit for these messages; None if it can have one.

    RocketMQ skips negative numbers with a warning; it would store a sum beyond 63 bits, and lose the queue at the next
    restart.
    """
    if 0 <= batch_size <= _LARGEST_BATCH and 0 <= message_base_offset <= _LAST_OFFSET - batch_size:
        return None
    return f"{batch_size} messages from queue offset {message_base_offset} on can't be indexed"


# ---- for many records


def assign_batch(batch: DispatchBatch, rules: QueueRules, known: Container[tuple[str, int]]) -> BatchAssignment:
    """Assign the records of a batch to queues, as calling `assign` for one after the other does.

    * `known`: Queues that already have units, so that their names need not be checked again.
    """
    fits = _fitting_rows(batch, rules, known)
    has_unit = batch.is_queued if fits is None else batch.is_queued & fits
    rows = None if has_unit.all() else np.flatnonzero(has_unit)
    codes = batch.queue_codes if rows is None else batch.queue_codes[rows]
    with_lists = batch.multi_dispatch_rows if rules.is_multi_dispatch_enabled else np.empty(0, np.int64)
    odd = with_lists[has_unit[with_lists]]
    if fits is not None:
        odd = np.union1d(odd, np.flatnonzero(batch.is_queued & ~fits))
    if not odd.size:
        return BatchAssignment(rows, codes, [], batch.queues, [])
    numbers = QueueNumbering(batch.queues)
    light: list[LightRow] = []
    refused: list[RefusedUnit] = []
    for row in odd.tolist():
        assigned = assign(batch.request(row), rules)
        refused += assigned.refused
        light += [LightRow(row, numbers.number(unit[:2]), unit.queue_offset) for unit in assigned.units[1:]]
    return BatchAssignment(rows, codes, light, tuple(numbers.queues), refused)


def _fitting_rows(
    batch: DispatchBatch, rules: QueueRules, known: Container[tuple[str, int]]
) -> npt.NDArray[np.bool_] | None:
    """Report which rows can have a unit, provided they belong in a queue at all; None for all of them."""
    has_name = [queue in known or refusal_of(*queue) is None for queue in batch.queues]
    is_batch = [topic in rules.batch_topics for topic, _ in batch.queues]
    fits = (batch.queue_offset >= 0) & (batch.queue_offset < index_limit(rules))  # as `index_refusal` does
    if all(has_name) and not any(is_batch) and fits.all():
        return None
    codes = batch.queue_codes
    if any(is_batch):
        fits = np.where(np.array(is_batch)[codes], fitting_batches(batch.message_base_offset, batch.batch_size), fits)
    return fits & np.array(has_name, np.bool_)[codes]


def fitting_batches(
    message_base_offset: npt.NDArray[np.int64], batch_size: npt.NDArray[np.signedinteger[Any]]
) -> npt.NDArray[np.bool_]:
    """Report which batches `batch_refusal` accepts."""
    is_size = (batch_size >= 0) & (batch_size <= _LARGEST_BATCH)
    largest_base = _LAST_OFFSET - np.where(is_size, batch_size, 0).astype(np.int64)
    return is_size & (message_base_offset >= 0) & (message_base_offset <= largest_base)


class RefusedUnit(NamedTuple):
    """A unit that is not written, although the log asks for it."""

    topic: str
    queue_id: int
    physical_offset: int  # position of the record
    reason: str
    stops_broker: bool = False  # whether RocketMQ can't go on dispatching there: it does not load, or never comes up


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
