# SPDX-License-Identifier: Apache-2.0
"""One segment of the log, read for what is derived from it: units of queues and index entries, ready to be carried.

Segments are read by themselves, in any order and by any process; `store_core.store.rebuild_files` puts what comes of
them together in log order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from store_core.files.segment_source import open_segment
from store_core.queue.batch_plan import plan_batch
from store_core.queue.consume_queue_store import RefusedUnit
from store_core.queue.dispatch_batch import RequestBatch
from store_core.queue.dispatch_reader import DispatchReader
from store_core.queue.index_pieces import IndexEntries, pack_entries
from store_core.queue.light_units import UnfitListsError, light_units
from store_core.queue.queue_path import refusal_of
from store_core.queue.unit_pieces import PieceFormat, UnitGatherer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.segment_source import Segment
    from store_core.queue.batch_plan import BatchPlan
    from store_core.queue.dispatch_batch import DispatchBatch
    from store_core.queue.dispatch_request import DispatchRequest
    from store_core.queue.queue_rules import QueueRules
    from store_core.queue.unit_rows import UnitRows

__all__ = ["IndexPiece", "QueuePiece", "RebuildRules", "SegmentOutcome", "SegmentScan"]

_REFUSED_KEPT: Final = 100
_NOTHING: Final = bytes(8)
_NO_INDEX: Final = "its queue offset can't be an index"


@dataclass(frozen=True, slots=True)
class RebuildRules:
    """What is to be rebuilt, and by whose rules.

    Attributes
    ----------
    queue_rules : QueueRules
    topics : frozenset of str, optional
        Only their queues; all without.
    queue_id : int, optional
        Only queues of this id.
    since_offset : int
        Physical offset from which records count.
    check_crc : bool
        Take a record whose body does not match its checksum for the log's end, as recovery does. Dispatching does not
        look at bodies, nor does this by default.
    has_queues, has_index : bool
        What is wanted.
    """

    queue_rules: QueueRules
    topics: frozenset[str] | None = None
    queue_id: int | None = None
    since_offset: int = 0
    check_crc: bool = False
    has_queues: bool = True
    has_index: bool = False

    def wants(self, topic: str, queue_id: int) -> bool:
        """Tell whether a queue is to be rebuilt."""
        return (self.topics is None or topic in self.topics) and self.queue_id in (None, queue_id)

    def piece_format(self, topic: str) -> PieceFormat:
        """Give the form in which units of a topic are carried."""
        return PieceFormat(is_whole=self.queue_rules.is_ext_enabled or topic in self.queue_rules.batch_topics)


@dataclass(frozen=True, slots=True)
class QueuePiece:
    """Units of a queue that follow one another, `packed` as `RebuildRules.piece_format` says."""

    topic: str
    queue_id: int
    packed: bytes


@dataclass(frozen=True, slots=True)
class IndexPiece:
    """Index entries that follow one another, `packed` as `store_core.queue.index_pieces` says."""

    packed: bytes


@dataclass(frozen=True, slots=True)
class SegmentOutcome:
    """How the reading of a segment ended.

    Attributes
    ----------
    path : str
    start_offset, end_offset : int
        Physical offsets of its first byte, and behind its last record.
    records : int
    is_continued : bool
        Whether a blank record leads to the next file.
    is_unwritten : bool
        Whether zeros follow the last record, as in the file that is being written. Otherwise, and unless it goes on in
        the next file, it is damaged there.
    last_store_timestamp : int
        Of its last record, ms; 0 without any.
    refused_count : int
        Units that can't be, see `ConsumeQueueStore.put`.
    refused : tuple of RefusedUnit
        The first of them.
    """

    path: str
    start_offset: int
    end_offset: int
    records: int
    is_continued: bool
    is_unwritten: bool
    last_store_timestamp: int
    refused_count: int = 0
    refused: tuple[RefusedUnit, ...] = ()

    @property
    def is_damaged(self) -> bool:
        """Whether bytes follow the last record that are no record, no blank and no zeros."""
        return not self.is_continued and not self.is_unwritten


class _AnyQueues:
    """Every queue may be: how many there are is seen when they are put together."""

    def __contains__(self, name: tuple[str, int]) -> bool:
        return False

    def has_room(self, queues: int) -> bool:
        return queues >= 0


_ANY_QUEUES: Final = _AnyQueues()


@dataclass(slots=True)
class SegmentScan:
    """Iterates over what comes of one segment: `QueuePiece` and `IndexPiece`, each kind in log order by queue.

    Attributes
    ----------
    outcome : SegmentOutcome or None
        None until the iteration is over.
    """

    segment: Segment
    rules: RebuildRules
    outcome: SegmentOutcome | None = None
    _refused: list[RefusedUnit] = field(default_factory=list)
    _refused_count: int = 0

    def __iter__(self) -> Iterator[QueuePiece | IndexPiece]:
        gatherer = UnitGatherer()
        records, last_time = 0, 0
        with open_segment(self.segment) as opened:
            raw = opened.raw
            check_crc = self.rules.check_crc
            rules = self.rules.queue_rules
            reader = DispatchReader(raw, self.segment.start_offset, 0, rules, check_crc=check_crc, read_body=check_crc)
            for batch in reader:
                records += len(batch)
                last_time = int(batch.store_timestamp[-1])
                if self.rules.has_index:
                    yield from self._index_pieces(batch)
                if self.rules.has_queues:
                    for queue, units in self._units(batch):
                        for name, parts in gatherer.add(queue, units):
                            yield self._piece(name, parts)
            for name, parts in gatherer.rest():
                yield self._piece(name, parts)
            head = raw[reader.position : reader.position + len(_NOTHING)].tobytes()
            self.outcome = SegmentOutcome(
                self.segment.path,
                self.segment.start_offset,
                self.segment.start_offset + reader.position,
                records,
                reader.end.is_blank,
                not reader.end.is_blank and head == _NOTHING[: len(head)],
                last_time,
                self._refused_count,
                tuple(self._refused),
            )

    def _piece(self, queue: tuple[str, int], parts: list[UnitRows]) -> QueuePiece:
        return QueuePiece(*queue, self.rules.piece_format(queue[0]).pack(parts))

    def _index_pieces(self, batch: DispatchBatch) -> Iterator[IndexPiece]:
        if batch.physical_offset[-1] >= self.rules.since_offset:
            keys = batch.index_hashes()
            entries = IndexEntries(batch.physical_offset, batch.store_timestamp, keys.rows, keys.hashes)
            yield IndexPiece(pack_entries(entries))

    def _units(self, batch: DispatchBatch) -> Iterator[tuple[tuple[str, int], UnitRows]]:
        for plan in self._plans(batch):
            for code, units in plan.units.by_queue():
                if self.rules.wants(*plan.queues[code]):
                    kept = units.since(self.rules.since_offset)
                    if len(kept.row):
                        yield plan.queues[code], kept

    def _plans(self, batch: DispatchBatch) -> Iterator[BatchPlan]:
        """Assign a batch to queues; if something of it is refused, record by record."""
        plan = plan_batch(batch, _ANY_QUEUES, self.rules.queue_rules)
        if plan is not None:
            yield plan
            return
        for request in batch.requests():
            yield from self._plans_of_one(request)

    def _plans_of_one(self, request: DispatchRequest) -> Iterator[BatchPlan]:
        single = RequestBatch([request])
        plan = plan_batch(single, _ANY_QUEUES, self.rules.queue_rules)
        if plan is not None:
            yield plan
            return
        without_lists = RequestBatch([replace(request, properties={})])
        own = plan_batch(without_lists, _ANY_QUEUES, self.rules.queue_rules)
        if own is not None:
            self._refuse(request, _light_reason(request, self.rules.queue_rules))
            yield own
            return
        self._refuse(request, refusal_of(request.topic, request.queue_id) or _NO_INDEX)

    def _refuse(self, request: DispatchRequest, reason: str) -> None:
        self._refused_count += 1
        if len(self._refused) < _REFUSED_KEPT:
            self._refused.append(RefusedUnit(request.topic, request.queue_id, request.physical_offset, reason))


def _light_reason(request: DispatchRequest, rules: QueueRules) -> str:
    try:
        light_units(request, rules)
    except UnfitListsError as error:
        return str(error)
    return "an index in a light queue can't be"
