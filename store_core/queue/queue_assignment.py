# SPDX-License-Identifier: Apache-2.0
"""Assignment of records to queues: which queues a record belongs in, at which index, and which refuse it.

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

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from store_core.format.java import LONG_BITS, parse_java_int
from store_core.format.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from store_core.queue.consume_queue_unit import CQ_STORE_UNIT_SIZE, units_per_file
from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest, QueueNumbering
from store_core.queue.queue_path import QueueRules, has_lists, is_light, refusal_of, split_names

if TYPE_CHECKING:
    from collections.abc import Container

    import numpy.typing as npt


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
