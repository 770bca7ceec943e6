# SPDX-License-Identifier: Apache-2.0
"""Which queues the records of a segment go to, and their units by queue in pieces that can be carried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import UnsafeSizeError
from store_core.queue.batch_plan import SAFE_OFFSET, BatchPlan, plan_batch
from store_core.queue.dispatch_batch import RequestBatch
from store_core.queue.light_units import UnfitListsError, light_units
from store_core.queue.queue_path import refusal_of
from store_core.queue.refused_unit import RefusedUnit
from store_core.queue.unit_block import PlainColumns, UnitBlock
from store_core.queue.unit_pieces import UnitGatherer
from store_core.queue.unit_rows import LightRow, UnitRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.queue.dispatch_batch import DispatchBatch
    from store_core.queue.dispatch_request import DispatchRequest
    from store_core.queue.light_units import LightUnit
    from store_core.queue.queue_rules import QueueRules
    from store_core.store.rebuild.rules import RebuildRules

__all__ = ["PlainUnits", "QueuePiece", "WholeUnits"]

_REFUSED_KEPT: Final = 100
_PASSED_OVER_KEPT: Final = 1000
_NO_INDEX: Final = "its queue offset can't be an index"
_UNKNOWN, _UNWANTED = -1, -2


@dataclass(frozen=True, slots=True)
class QueuePiece:
    """Units of a queue that follow one another, `packed` as `RebuildRules.piece_format` says."""

    topic: str
    queue_id: int
    packed: bytes


class _AnyQueues:
    """Every queue may be: how many there are is counted elsewhere."""

    def __contains__(self, name: tuple[str, int]) -> bool:
        return False

    def has_room(self, queues: int) -> bool:
        return queues >= 0


_ANY_QUEUES: Final = _AnyQueues()


class _SegmentUnits:
    """Assigns batches of records to queues.

    Parameters
    ----------
    rules : RebuildRules

    Attributes
    ----------
    refused_count : int
        Units that can't be, see `store_core.queue.consume_queue_store.ConsumeQueueStore.put`.
    refused : list of RefusedUnit
        The first of them.
    passed_over : set of (str, int)
        Topic and id of the first queues that were not asked for.
    """

    def __init__(self, rules: RebuildRules) -> None:
        self.passed_over: set[tuple[str, int]] = set()
        self.refused: list[RefusedUnit] = []
        self.refused_count = 0
        self._rules = rules
        self._codes: dict[tuple[str, int], int] = {}
        self._queues: list[tuple[str, int]] = []

    def _code(self, queue: tuple[str, int]) -> int:
        """Return the number of a queue that has units here, or `_UNWANTED`.

        Raises
        ------
        UnsafeSizeError
            If there are more queues than may be.
        """
        code = self._codes.get(queue, _UNKNOWN)
        if code == _UNKNOWN:
            code = self._new_code(queue)
        return code

    def _new_code(self, queue: tuple[str, int]) -> int:
        if not self._rules.wants(*queue):
            self._pass_over(queue)
            return _UNWANTED
        if len(self._queues) >= self._rules.max_queues:
            raise UnsafeSizeError(
                "too many queues", "the log", 0, f"at most {self._rules.max_queues} in a segment",
                f"one more, {queue[1]} of topic {queue[0][:100]!r}", b"",
                "A log may name a queue in every record. If these are real, raise the bound (--max-queues).",
            )  # fmt: skip
        self._codes[queue] = len(self._queues)
        self._queues.append(queue)
        return self._codes[queue]

    def _pass_over(self, queue: tuple[str, int]) -> None:
        """Remember a queue that is not asked for; there is always room for some of a topic that is."""
        is_of_wanted = self._rules.topics is not None and queue[0] in self._rules.topics
        if len(self.passed_over) < _PASSED_OVER_KEPT << is_of_wanted:
            self.passed_over.add(queue)

    def _units(self, batch: DispatchBatch) -> Iterator[tuple[UnitRows, list[tuple[str, int]]]]:
        """Yield the units of a batch, ordered by queue, and the queues by the codes that they have there."""
        for plan in self._plans(batch):
            units = plan.units.since(self._rules.since_offset)
            if len(units.row):
                yield units, plan.queues

    def _plans(self, batch: DispatchBatch) -> Iterator[BatchPlan]:
        """Assign a batch to queues; if something of it is refused, record by record."""
        plan = plan_batch(batch, _ANY_QUEUES, self._rules.queue_rules)
        if plan is not None:
            yield plan
            return
        for request in batch.requests():
            yield from self._plans_of_one(request)

    def _plans_of_one(self, request: DispatchRequest) -> Iterator[BatchPlan]:
        """Do as `ConsumeQueueStore.put`: a light queue that can't be leaves the record's other queues as they are."""
        single = RequestBatch([request])
        plan = plan_batch(single, _ANY_QUEUES, self._rules.queue_rules)
        if plan is not None:
            yield plan
            return
        without_lists = RequestBatch([replace(request, properties={})])
        own = plan_batch(without_lists, _ANY_QUEUES, self._rules.queue_rules)
        if own is None:
            queue = request.topic, request.queue_id
            self._refuse(request, queue, refusal_of(*queue) or _NO_INDEX)
            return
        yield own
        for unit in self._fitting_lists(request):
            reason = _light_refusal(unit, self._rules.queue_rules)
            if reason is None:
                light = UnitRows.of(single, np.empty(0, np.int64), [LightRow(0, 0, unit.queue_offset)])
                yield BatchPlan(light, [(unit.topic, unit.queue_id)])
            else:
                self._refuse(request, (unit.topic, unit.queue_id), reason)

    def _fitting_lists(self, request: DispatchRequest) -> list[LightUnit]:
        try:
            return light_units(request, self._rules.queue_rules)
        except UnfitListsError as error:
            self._refuse(request, (request.topic, request.queue_id), str(error))
            return []

    def _refuse(self, request: DispatchRequest, queue: tuple[str, int], reason: str) -> None:
        self.refused_count += 1
        if len(self.refused) < _REFUSED_KEPT:
            self.refused.append(RefusedUnit(*queue, request.physical_offset, reason))


class PlainUnits(_SegmentUnits):
    """For stores with simple queues alone, whose units are carried as they are stored; see `RebuildRules.is_plain`."""

    def __init__(self, rules: RebuildRules) -> None:
        super().__init__(rules)
        self._block = UnitBlock()

    def add(self, batch: DispatchBatch) -> Iterator[QueuePiece]:
        """Take a batch of records, and give units as enough are gathered."""
        direct = self._direct(batch)
        if direct is not None:
            yield from self._put(*direct)
            return
        for units, queues in self._units(batch):
            present = np.unique(units.code)
            numbers = np.full(len(queues), _UNWANTED, np.int64)
            numbers[present] = [self._code(queues[code]) for code in present.tolist()]
            columns = PlainColumns(units.physical_offset, units.size, units.tags_code, units.queue_offset)
            yield from self._put(columns, numbers[units.code])

    def _direct(self, batch: DispatchBatch) -> tuple[PlainColumns, npt.NDArray[np.int64]] | None:
        """Take a batch as it is: its columns, and the number of each record's queue.

        Preconditions, else None: those of `plan_batch`, and no record with light queues.
        """
        offsets, rules = batch.queue_offset, self._rules.queue_rules
        if int(offsets.min()) < 0 or int(offsets.max()) >= SAFE_OFFSET:
            return None
        if rules.is_multi_dispatch_enabled and batch.multi_dispatch_rows.size:
            return None
        if any(queue not in self._codes and refusal_of(*queue) is not None for queue in batch.queues):
            return None
        is_kept = batch.is_queued & (batch.physical_offset >= self._rules.since_offset)
        occurring = np.bincount(batch.queue_codes[is_kept], minlength=len(batch.queues)).tolist()
        named = zip(batch.queues, occurring, strict=True)
        numbers = np.array([self._code(queue) if count else _UNWANTED for queue, count in named], np.int64)
        codes = np.where(is_kept, numbers[batch.queue_codes], _UNWANTED)
        return PlainColumns(batch.physical_offset, batch.message_size, batch.tags_code, offsets), codes

    def _put(self, columns: PlainColumns, codes: npt.NDArray[np.int64]) -> Iterator[QueuePiece]:
        wanted = np.flatnonzero(codes >= 0)
        if len(wanted) < len(codes):
            columns, codes = PlainColumns(*(column[wanted] for column in columns)), codes[wanted]
        yield from self._pieces(self._block.add(columns, codes))

    def rest(self) -> Iterator[QueuePiece]:
        """Yield what is gathered."""
        yield from self._pieces(self._block.rest())

    def _pieces(self, packed: Iterator[tuple[int, bytes]]) -> Iterator[QueuePiece]:
        for code, data in packed:
            yield QueuePiece(*self._queues[code], data)


class WholeUnits(_SegmentUnits):
    """For stores with batch queues or extensions."""

    def __init__(self, rules: RebuildRules) -> None:
        super().__init__(rules)
        self._gatherer = UnitGatherer()

    def add(self, batch: DispatchBatch) -> Iterator[QueuePiece]:
        """Take a batch of records, and give units as enough are gathered."""
        for units, queues in self._units(batch):
            for code, part in units.by_queue():
                if self._code(queues[code]) != _UNWANTED:
                    for queue, parts in self._gatherer.add(queues[code], part):
                        yield self._piece(queue, parts)

    def rest(self) -> Iterator[QueuePiece]:
        """Yield what is gathered."""
        for queue, parts in self._gatherer.rest():
            yield self._piece(queue, parts)

    def _piece(self, queue: tuple[str, int], parts: list[UnitRows]) -> QueuePiece:
        return QueuePiece(*queue, self._rules.piece_format(queue[0]).pack(parts))


def _light_refusal(unit: LightUnit, rules: QueueRules) -> str | None:
    """Say why a light queue can't have a unit; None if it can."""
    if unit.topic in rules.batch_topics:
        return "a batch queue can't be a light one"
    is_index = 0 <= unit.queue_offset < SAFE_OFFSET
    return refusal_of(unit.topic, unit.queue_id) or (None if is_index else _NO_INDEX)
