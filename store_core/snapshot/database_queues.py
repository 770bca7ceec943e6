# SPDX-License-Identifier: Apache-2.0
"""Consume queues in a RocksDB, and what the log has of them that their broker had not flushed there yet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from store_core.snapshot.units import QueueBounds, QueueKind, QueueName, UnitRange, Units, leading

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from store_core.queue.rocksdb_queues import RocksdbQueues, StoredUnits


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
