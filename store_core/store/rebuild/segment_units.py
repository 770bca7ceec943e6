# SPDX-License-Identifier: Apache-2.0
"""Assigning the records of a segment to queues, as pieces of units per queue that can be transported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import UnsafeSizeError
from store_core.queue.dispatch.queue_numbering import QueueNumbering
from store_core.queue.units.plain_unit_buffer import PlainUnitBuffer
from store_core.queue.units.queue_assignment import assign_batch
from store_core.queue.units.unit_buffer import UnitBuffer
from store_core.queue.units.unit_codec import PackedUnits, pack_whole
from store_core.queue.units.unit_rows import UnitRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.units.queue_assignment import BatchAssignment
    from store_core.queue.units.refused_unit import RefusedUnit
    from store_core.store.rebuild.rules import RebuildRules

__all__ = ["QueuePiece", "SegmentUnits"]

_ROOM: Final = 1 << 19
"""Units collected before they are passed on, 16 MiB of plain ones; with fewer, small queues get tiny pieces."""

_REFUSED_KEPT: Final = 100
_PASSED_OVER_KEPT: Final = 1000
_UNWANTED: Final = -1


@dataclass(frozen=True, slots=True)
class QueuePiece:
    """Consecutive units of a queue, `packed` as `store_core.queue.units.unit_codec` defines."""

    topic: str
    queue_id: int
    packed: bytes


class SegmentUnits:
    """Assigns batches of records to queues, by `store_core.queue.units.queue_assignment`.

    Parameters
    ----------
    rules : RebuildRules
    room : int
        Units collected before they are passed on.

    Attributes
    ----------
    refused_count : int
        Number of impossible units.
    refused : list of RefusedUnit
        The first of these.
    passed_over : set of (str, int)
        Topic and id of the first queues that were not requested.
    """

    def __init__(self, rules: RebuildRules, room: int = _ROOM) -> None:
        self.passed_over: set[tuple[str, int]] = set()
        self.refused: list[RefusedUnit] = []
        self.refused_count = 0
        self._rules = rules
        self._numbers = QueueNumbering()
        self._buffer = PlainUnitBuffer(room) if rules.is_plain else UnitBuffer(room, is_whole=True)

    def add(self, batch: DispatchBatch) -> Iterator[QueuePiece]:
        """Add a batch of records, and yield units whenever enough are collected.

        Raises
        ------
        UnsafeSizeError
            If there are more queues than allowed.
        """
        assigned = assign_batch(batch, self._rules.queue_rules, self._numbers)
        self.refused_count += len(assigned.refused)
        self.refused += assigned.refused[: _REFUSED_KEPT - len(self.refused)]
        units = self._wanted(batch, assigned)
        done = 0
        while done < len(units.code):
            part = units.slice(done, done + self._buffer.room)
            self._buffer.add(part)
            done += len(part.code)
            if not self._buffer.room:
                yield from self.rest()

    def _wanted(self, batch: DispatchBatch, assigned: BatchAssignment) -> UnitRows:
        """Return the requested units, with their queues' numbers in the segment."""
        units = UnitRows.of(batch, assigned)
        is_recent = units.physical_offset >= self._rules.since_offset
        if not is_recent.all():
            units = units.chosen(is_recent)
        numbers = np.full(len(assigned.queues), _UNWANTED, np.int64)
        for code in np.flatnonzero(np.bincount(units.code)).tolist():
            numbers[code] = self._number(assigned.queues[code])
        codes = numbers.take(units.code)
        return units._replace(code=codes).chosen(codes != _UNWANTED)

    def _number(self, queue: tuple[str, int]) -> int:
        """Return the number of a queue that has units here, or `_UNWANTED`."""
        if queue in self._numbers:
            return self._numbers.number(queue)
        if not self._rules.wants(*queue):
            self._pass_over(queue)
            return _UNWANTED
        if len(self._numbers) >= self._rules.max_queues:
            raise UnsafeSizeError(
                "too many queues", "the log", 0, f"at most {self._rules.max_queues} in a segment",
                f"one more, {queue[1]} of topic {queue[0][:100]!r}", b"",
                "A log may name a queue in every record. If these are real, raise the bound (--max-queues).",
            )  # fmt: skip
        return self._numbers.number(queue)

    def _pass_over(self, queue: tuple[str, int]) -> None:
        """Remember a queue that was not requested; there is always room for some of a requested topic."""
        is_of_wanted = self._rules.topics is not None and queue[0] in self._rules.topics
        if len(self.passed_over) < _PASSED_OVER_KEPT << is_of_wanted:
            self.passed_over.add(queue)

    def rest(self) -> Iterator[QueuePiece]:
        """Yield the remaining units."""
        if len(self._buffer):
            for code, packed in self._packed():
                yield QueuePiece(*self._numbers.queues[code], packed)

    def _packed(self) -> Iterator[tuple[int, bytes]]:
        if isinstance(self._buffer, PlainUnitBuffer):
            yield from self._buffer.take()
            return
        units = self._buffer.take()
        plain = PackedUnits.of(units)
        for code, start, stop in units.bounds():
            topic, _ = self._numbers.queues[code]
            is_whole = self._rules.is_whole(topic)
            yield code, pack_whole(units.slice(start, stop)) if is_whole else plain.piece(start, stop)
