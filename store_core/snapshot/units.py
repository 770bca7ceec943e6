# SPDX-License-Identifier: Apache-2.0
"""Units of consume queues as arrays, whatever a queue is stored in, among them those that no RocksDB has yet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from store_core.format.layout import MIN_RECORD_SIZE, ROCKSDB_QUEUE_UNIT, unit_dtype
from store_core.queue.consume_queue_unit import BATCH_UNIT_DTYPE, UNIT_DTYPE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from store_core.queue.rocksdb_queues import RocksdbQueues, StoredUnits


QueueName: TypeAlias = tuple[str, int]
"""A topic and a queue id."""

T = TypeVar("T")

_FILLER_SIZE: Final = 2**31 - 1
"""Size in the units that only fill a queue's first file (RocketMQ: ``ConsumeQueue.fillPreBlank``)."""

_LAST_START: Final = 2**63 - 2**32
"""Positions above it, which no log reaches, could overflow when a size is added."""


class QueueDoubtError(Exception):
    """Units of a queue can't be right, so that a look-up does not use the queue."""


class QueueKind(Enum):
    """The kinds of queues; the value is the column ``kind`` of the views."""

    SIMPLE = "simple"
    BATCH = "batch"
    ROCKSDB = "rocksdb"

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The type of a unit, as stored."""
        return _DTYPES[self]


_DTYPES: Final = {
    QueueKind.SIMPLE: UNIT_DTYPE,
    QueueKind.BATCH: BATCH_UNIT_DTYPE,
    QueueKind.ROCKSDB: unit_dtype(ROCKSDB_QUEUE_UNIT),
}


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Which topics and queues are asked for; what is empty asks for all."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    queue_ids: frozenset[int] = frozenset()

    @classmethod
    def of(cls, topics: Collection[str], pattern: str | None, queue_ids: Iterable[int]) -> Self:
        """Return the filter of a read's options; the pattern must match the whole topic."""
        return cls(tuple(topics), None if pattern is None else re.compile(pattern), frozenset(queue_ids))

    def takes_topic(self, topic: str) -> bool:
        """Return whether a topic is asked for."""
        is_named = not self.topics or topic in self.topics
        return is_named and (self.pattern is None or self.pattern.fullmatch(topic) is not None)

    def narrowed(self, topics: Mapping[str, T]) -> dict[str, T]:
        """Return those of some topics that are asked for."""
        return {topic: value for topic, value in topics.items() if self.takes_topic(topic)}

    def takes(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue is asked for."""
        return (not self.queue_ids or queue_id in self.queue_ids) and self.takes_topic(topic)


EVERY_QUEUE: Final = TopicFilter()


class QueueBounds(NamedTuple):
    """A queue, from its first message that the log still has to the one after its last.

    * `min_offset`, `max_offset`: Queue offsets; equal if it has no message.
    * `first`, `last`: Physical offset and size of the first and the last message's record; None if it has no message.
    """

    min_offset: int
    max_offset: int
    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None


class Comparison(NamedTuple):
    """A committed offset beside its queue: columns of the view ``consumer_offsets``, and of the answer `lag`."""

    min_offset: int | None
    max_offset: int | None
    behind: int | None
    state: str


def compare(committed: int, bounds: QueueBounds | None, then: QueueBounds | None = None) -> Comparison:
    """Compare a committed offset with its queue; without a queue the rest is unknown.

    * `committed`: Below 0 it counts as 0: a broker answers that nothing is committed
      (``ConsumerManageProcessor.queryConsumerOffset``).
    * `bounds`: The queue now.
    * `then`: The queue as it was; None for now. What was committed since counts as consumed.

    >>> compare(7, QueueBounds(5, 9))
    Comparison(min_offset=5, max_offset=9, behind=2, state='ok')
    >>> compare(2, QueueBounds(5, 9)).behind, compare(12, QueueBounds(5, 9)).behind
    (4, None)
    >>> compare(7, QueueBounds(5, 9), QueueBounds(5, 6)).behind
    0
    >>> compare(-1, QueueBounds(0, 9))
    Comparison(min_offset=0, max_offset=9, behind=9, state='ok')
    """
    if bounds is None:
        return Comparison(None, None, None, "no_queue")
    first, end = bounds.min_offset, bounds.max_offset
    head = end if then is None else then.max_offset
    state = "beyond_end" if committed > end else "below_min" if max(committed, 0) < first else "ok"
    behind = None if committed > end else max(head - max(committed, first), 0)
    return Comparison(first, head, behind, state)


class UnitRange(NamedTuple):
    """Places of units in a queue: their numbers, from the queue's first unit on; the end is exclusive."""

    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class Units:
    """Units of one queue, in its order."""

    kind: QueueKind
    offsets: npt.NDArray[np.int64]  # int64, shape (n,): queue offset of each message; of a batch, of its first one
    stored: npt.NDArray[np.void]  # of the kind's dtype, shape (n,): as they are on disk, the bytes not swapped

    @classmethod
    def of(cls, kind: QueueKind, stored: npt.NDArray[np.void], first: int = 0) -> Units:
        """Return units of a file; `first` is the number of the first of them, which a batch does not need."""
        if kind is QueueKind.BATCH:
            return cls(kind, stored["msg_base_offset"].astype(np.int64), stored)
        return cls(kind, np.arange(first, first + len(stored), dtype=np.int64), stored)

    @classmethod
    def joined(cls, kind: QueueKind, pieces: Iterable[Units]) -> Units:
        """Return units that follow one another as one."""
        found = list(pieces)
        if len(found) == 1:
            return found[0]
        offsets = [np.empty(0, np.int64), *(each.offsets for each in found)]
        stored = [np.empty(0, kind.dtype), *(each.stored for each in found)]
        return cls(kind, np.concatenate(offsets), np.concatenate(stored))

    def __len__(self) -> int:
        """Return the number of units."""
        return len(self.offsets)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Physical offsets of the records."""
        return self.stored["physical_offset"].astype(np.int64)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Bytes of the records."""
        return self.stored["store_size"].astype(np.int64)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Messages of each unit: 1, unless it is a batch."""
        is_batch = self.kind is QueueKind.BATCH
        return self.stored["batch_size"].astype(np.int64) if is_batch else np.ones(len(self), np.int64)

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """The queue offset after the last message of each unit."""
        return self.offsets + self.counts

    @property
    def are_fillers(self) -> npt.NDArray[np.bool_]:
        """Which units only fill a queue's first file (RocketMQ: ``ConsumeQueue.fillPreBlank``)."""
        if self.kind is not QueueKind.SIMPLE:
            return np.zeros(len(self), np.bool_)
        found: npt.NDArray[np.bool_] = (self.stored["store_size"] == _FILLER_SIZE) & (
            self.stored["physical_offset"] == 0
        )
        return found

    @property
    def are_sound(self) -> npt.NDArray[np.bool_]:
        """Which units a broker takes when it loads the queue: it ends before the first other one."""
        found: npt.NDArray[np.bool_] = (self.stored["physical_offset"] >= 0) & (self.stored["store_size"] > 0)
        if self.kind is QueueKind.BATCH:
            found &= (self.stored["msg_base_offset"] >= 0) & (self.stored["batch_size"] > 0)
        return found

    def chosen(self, which: npt.NDArray[np.bool_] | slice) -> Units:
        """Return some of the units."""
        if isinstance(which, np.ndarray) and which.all():
            return self
        return Units(self.kind, self.offsets[which], self.stored[which])

    def leading(self) -> Units:
        """Return those that lead to a record: no filler, and no unit that was lost."""
        return self.chosen((self.stored["store_size"] > 0) & ~self.are_fillers)

    def between(self, begin: int, end: int) -> Units:
        """Return the units of messages in a range of queue offsets; those of sound units ascend."""
        first = int(np.searchsorted(self.ends, begin, side="right"))
        return self.chosen(slice(first, int(np.searchsorted(self.offsets, end, side="left"))))

    def place(self, row: int) -> tuple[int, int]:
        """Return physical offset and size in a unit."""
        unit = self.stored[row]
        return int(unit["physical_offset"]), int(unit["store_size"])

    def checked(self) -> Units:
        """Return the units without fillers before the first real one, if each can be one, and follow the one before."""
        count = len(self) if self.are_fillers.all() else int(self.are_fillers.argmin())
        found = self.chosen(slice(count, None)) if count else self
        starts, sizes, offsets = found.starts, found.sizes, found.offsets
        are_units = (sizes >= MIN_RECORD_SIZE) & (starts >= 0) & (starts <= _LAST_START) & (offsets <= _LAST_START)
        follow = (starts[1:] >= starts[:-1] + sizes[:-1]) & (offsets[1:] >= found.ends[:-1])
        if not are_units.all() or not follow.all():
            is_right = are_units & np.append(True, follow)[: len(found)]
            at = int(is_right.argmin())
            raise QueueDoubtError(f"the unit of queue offset {offsets[at]} leads to {starts[at]}, which can't be")
        return found


def leading(pieces: Iterable[Units], begin: int, end: int) -> Iterator[Units]:
    """Yield those of some units that are of messages between two queue offsets, and lead to records."""
    for units in pieces:
        found = units.leading().between(begin, end)
        if len(found):
            yield found


class Queue(Protocol):
    """A queue, whatever it is stored in; errors are those of the system, and of a damaged RocksDB.

    Units are read as they are: what looks wrong is the reader's to judge. Only what look-ups ask (`picked`, `last`,
    `unit_at`) refuses units that can't be right.
    """

    @property
    def name(self) -> QueueName:
        """Topic and queue id."""

    @property
    def kind(self) -> QueueKind:
        """What its units are like."""

    @property
    def files(self) -> int:
        """Number of files that it is in."""

    def bounds(self, log_start: int) -> QueueBounds:
        """Return where it begins and ends when a broker loads it, in a log that starts at a position."""

    def units(self, begin: int = 0, end: int | None = None) -> Iterator[Units]:
        """Yield the units of messages between two queue offsets, some thousands at a time, with whatever is wrong."""

    def first_at(self, position: int, begin: int, end: int) -> int:
        """Return the queue offset of the first unit of a record at or after a position in the log; else the end.

        Between the two queue offsets the units' records ascend.
        """

    def range(self, position: int, begin: int, end: int) -> UnitRange:
        """Return the units of records at or after a physical offset, and of a range of queue offsets."""

    def picked(self, wanted: UnitRange) -> Units:
        """Read units for a look-up."""

    def last(self) -> Units:
        """Return the last unit; none if there is none."""

    def unit_at(self, queue_offset: int) -> tuple[int, int] | None:
        """Return position and size in the unit of a queue offset; None if the queue has no such unit."""


QUEUED_COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "tags_code",
    "store_timestamp_ms",
)
_NAME: Final = QUEUED_COLUMNS[:2]
_PLACE: Final = QUEUED_COLUMNS[2:5]
_EDGES: Final = ("first", "last")


class QueuedLog(Protocol):
    """What queues need to know of the log that they lead into; can be pickled."""

    @property
    def start(self) -> int:
        """Physical offset at which it starts; 0 without a log."""

    def end_before(self, position: int, size: int) -> int | None:
        """Return where it ends if that is not after the place of a record; else None, also if it is unknown."""

    def queued(self, begin: int, name: QueueName | None = None) -> pa.Table:
        """Return `QUEUED_COLUMNS` of the records from a physical offset on that belong in queues, or in one queue."""


class Unflushed(NamedTuple):
    """What the log has of a queue that its RocksDB has not: of the first and the last record, offset and place."""

    first: tuple[int, int, int]
    last: tuple[int, int, int]


def unflushed_of(log: QueuedLog, flushed: int) -> dict[QueueName, Unflushed]:
    """Return what a log has after the last flush of the RocksDB with its queues, by topic and queue id."""
    ends = [(name, edge) for name in _PLACE for edge in _EDGES]
    rows = log.queued(max(flushed, log.start)).group_by(list(_NAME), use_threads=False).aggregate(ends)
    return {
        (row["topic"], row["queue_id"]): Unflushed(
            *(tuple(row[f"{name}_{edge}"] for name in _PLACE) for edge in _EDGES)
        )
        for row in rows.to_pylist()
    }


@dataclass(frozen=True, eq=False)
class DatabaseQueue:
    """A queue in a RocksDB."""

    stored: RocksdbQueues  # open
    name: QueueName
    more: Unflushed | None = None  # what only the log has; look-ups do not use it, as they scan the log there
    log: QueuedLog | None = None  # needed for `more`

    kind = QueueKind.ROCKSDB
    files = 1

    def bounds(self, log_start: int) -> QueueBounds:
        """Return where it begins and ends, with what only the log has of it."""
        begin, end = self.stored.start_of(*self.name, log_start), self.stored.end_of(*self.name)
        edges = [self.stored.unit_from(*self.name, offset) for offset in (begin, end - 1)] if begin < end else []
        places = [_joined([each]).place(0) for each in edges if each is not None]
        found = QueueBounds(begin, end, *places) if len(places) == len(_EDGES) else QueueBounds(end, end)
        if self.more is None:
            return found
        is_empty = found.first is None
        return QueueBounds(
            self.more.first[0] if is_empty else begin,
            max(end, self.more.last[0] + 1),
            self.more.first[1:] if is_empty else found.first,
            self.more.last[1:] if self.more.last[0] >= end else found.last,
        )

    def units(self, begin: int = 0, end: int | None = None) -> Iterator[Units]:
        """Yield the units of messages between two queue offsets, and those that only the log has."""
        for offsets, units in self.stored.units(*self.name, begin, end):
            yield Units(QueueKind.ROCKSDB, offsets, units)
        if self.more is not None and (end is None or end > self.more.first[0]):
            yield self._rest.between(max(begin, self.stored.end_of(*self.name)), 2**62 if end is None else end)

    @cached_property
    def _rest(self) -> Units:
        """The units that only the log has, read once: a search by time asks for one after the other."""
        if self.log is None or self.more is None:
            return _joined([])
        return _units_of(self.log.queued(self.more.first[1], self.name))

    def first_at(self, position: int, begin: int, end: int) -> int:
        """Return the queue offset of the first unit of a record at or after a position in the log; else the end."""
        begin = max(begin, self.stored.first_at(*self.name, position))
        if begin < self.stored.end_of(*self.name):
            return begin
        rest = (units for units in leading(self.units(begin, end), begin, end) if units.starts[-1] >= position)
        return next((int(some.offsets[np.searchsorted(some.starts, position)]) for some in rest), end)

    def range(self, position: int, begin: int, end: int) -> UnitRange:
        """Return queue offsets, which are the numbers of units here; see `store_core.snapshot.units.Queue`."""
        first = max(self.stored.start_of(*self.name, position), begin)
        return UnitRange(first, max(first, min(self.stored.end_of(*self.name), end)))

    def picked(self, wanted: UnitRange) -> Units:
        """Read units for a look-up. A unit of a batch stands for several queue offsets."""
        return _joined(self.stored.units(*self.name, *wanted)).checked()

    def last(self) -> Units:
        """Return the last unit; none if there is none."""
        end = self.stored.end_of(*self.name)
        return self.picked(UnitRange(max(end - 1, 0), end))

    def unit_at(self, queue_offset: int) -> tuple[int, int] | None:
        """Return position and size in the unit of a queue offset; None if the queue has no such unit."""
        found = self.stored.unit_from(*self.name, queue_offset)
        return None if found is None or found.offsets[0] != queue_offset else _joined([found]).place(0)


def _joined(pieces: Iterator[StoredUnits] | list[StoredUnits]) -> Units:
    return Units.joined(QueueKind.ROCKSDB, (Units(QueueKind.ROCKSDB, *each) for each in pieces))


def _units_of(rows: pa.Table) -> Units:
    """Return the units that records would have."""
    stored = np.zeros(rows.num_rows, QueueKind.ROCKSDB.dtype)
    names = {"store_timestamp_ms": "store_timestamp"}
    for name in QUEUED_COLUMNS[3:]:
        stored[names.get(name, name)] = rows[name].to_numpy()
    return Units(QueueKind.ROCKSDB, rows["queue_offset"].to_numpy().astype(np.int64), stored)
