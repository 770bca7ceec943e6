# SPDX-License-Identifier: Apache-2.0
"""Finding the records of topics and queues by their units, which are trusted as a broker trusts them.

Only the queues that are asked for are read. A reader verifies each record that a unit leads to: its topic, queue and
queue offset. Units are put in the order of the log, so all records before the furthest one that any queue or the index
names have theirs; what lies behind that is scanned.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.file_system import OsFileSystem
from store_core.files.segment_source import size_on_disk
from store_core.files.store_kind import queue_database
from store_core.queue.rocksdb.rocksdb_queues import RocksdbQueues
from store_core.snapshot.queues import DatabaseQueue, QueueDoubtError, database_names, file_queues
from store_core.store.read.lookup.index import last_entry_record
from store_core.store.read.lookup.looked_up import EVERYTHING, LookedUp, Unsuitable, one_pick, proven_record
from store_core.store.read.lookup.remote_costs import is_far, price_of_picks
from store_core.store.read.picks import Picks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import ExitStack

    from store_core.files.segment_source import Segment
    from store_core.snapshot.queues import StoredQueue, UnitRange, Units
    from store_core.store.read.lookup.costs import LookUpCosts
    from store_core.store.read.lookup.looked_up import Proven, Question
    from store_core.store.read.read_options import ReadOptions

__all__ = ["QueuesBesideLog", "look_up_queues"]

_LARGE: Final = "the answer is a large part of the log"
_WHY: Final = "the queues lead to the records; `commitlog check` proves queues"
_AT_ONCE: Final = 12
"""Queues on another machine that are read at a time."""

_OPENING: Final = 8
"""Requests that finding a range of units in a file on another machine takes, at most."""

_MOST_TRIED: Final = 16
"""Units from the furthest on of which the record is looked at: those behind a torn end lead to none."""


@dataclass(frozen=True, slots=True)
class QueuesBesideLog:
    """The queues of a store, as far as look-ups use them.

    Attributes
    ----------
    queues : sequence of StoredQueue
    database_cost : int
        What was spent to open the RocksDB that they are in; 0 if they are files.
    dispatched : int
        Physical offset up to which a RocksDB has all units.
    """

    queues: Sequence[StoredQueue]
    database_cost: int = 0
    dispatched: int = EVERYTHING

    @classmethod
    def open(cls, question: Question, resources: ExitStack) -> QueuesBesideLog | str:
        """List a store's queues, or say why they are not read: its files, or else its RocksDB, as brokers do.

        Raises
        ------
        OSError
            As raised by the system.
        CorruptDatabaseError, UnsupportedStoreError
            As of `RocksdbReader.open`.
        """
        database = queue_database(question.root, OsFileSystem())
        if database is None:
            return cls(list(file_queues(question.root)))
        cost = question.costs.per_database
        if cost > question.room:
            return "opening the RocksDB of the queues would cost too much"
        stored = resources.enter_context(RocksdbQueues.open(database))
        dispatched = stored.dispatched_offset if stored.dispatched_offset >= 0 else EVERYTHING
        return cls([DatabaseQueue(stored, name) for name in database_names(stored)], cost, dispatched)

    @property
    def topics(self) -> list[str]:
        """The topics of all queues."""
        return list(dict.fromkeys(queue.name[0] for queue in self.queues))

    def furthest(self, question: Question, asked: Iterable[StoredQueue]) -> Proven | None:
        """Return the last record of the log that a queue has a unit for, or the index an entry; None without one.

        All queues are looked at if that is cheap, and worth it: what lies behind the record is scanned.
        """
        costs, count, last_segment = question.costs, len(self.queues), question.segments[-1]
        by_entry = last_entry_record(question)
        price = count * (costs.per_file + costs.per_request * _OPENING * is_far(question.segments))
        behind = last_segment.start_offset + size_on_disk(last_segment) - (0 if by_entry is None else by_entry.end)
        is_worth_it = price <= min(question.room, behind)
        last_units = ((queue, queue.last()) for queue in (self.queues if is_worth_it else asked))
        candidates = [
            (int(last.starts[0]), int(last.sizes[0]), queue.name, int(last.offsets[0]))
            for queue, last in last_units
            if last.starts.size
        ]
        tried = sorted(candidates, reverse=True)[:_MOST_TRIED]
        records = (proven_record(question, one_pick(*candidate)) for candidate in tried)
        by_unit = next((record for record in records if record is not None), None)
        return max((each for each in (by_unit, by_entry) if each is not None), key=_start, default=None)


def look_up_queues(question: Question, beside: QueuesBesideLog) -> LookedUp | Unsuitable:
    """Find the records of the topics and queues that options name."""
    asks = _Asked(question.options)
    asked = [queue for queue in beside.queues if asks.takes(queue) and queue.files]
    unknown = set(question.options.topic) - {queue.name[0] for queue in asked}
    if unknown:  # a topic that was deleted has no queues any more, and its messages are in the log until they expire
        return Unsuitable(f"topic {min(unknown)!r} has no queue that is asked for")
    try:
        if beside.database_cost + _price_of_files(asked, question) > question.room:
            return Unsuitable("reading the queues would cost too much")
        return _looked_up(question, beside, [(queue, asks.bounds(queue)) for queue in asked])
    except QueueDoubtError as error:
        return Unsuitable(f"a queue can't be trusted: {error}", (str(error),))


def _looked_up(
    question: Question, beside: QueuesBesideLog, asked: Sequence[tuple[StoredQueue, tuple[int, int]]]
) -> LookedUp | Unsuitable:
    # Before the units are read: what a broker puts meanwhile is behind it.
    furthest = beside.furthest(question, [queue for queue, _ in asked])
    if furthest is None:
        return Unsuitable("no unit of a queue leads to a record")
    log_start = question.segments[0].start_offset
    wanted = [(queue, queue.range(log_start, *bounds)) for queue, bounds in asked]
    if _price_of_units(beside, (units for _, units in wanted), question.costs) > question.room:
        return Unsuitable(_LARGE)
    picked = _picked(wanted, question.segments)
    if picked is not None and price_of_picks([picked], question.segments, question.costs) > question.room:
        return Unsuitable(_LARGE)
    units = 0 if picked is None else len(picked)
    end = min(furthest.end, question.doubt, beside.dispatched)
    return LookedUp("queues", _WHY, picked, ((0, end),), frozenset({furthest.end}), furthest, units)


def _picked(wanted: Sequence[tuple[StoredQueue, UnitRange]], segments: Sequence[Segment]) -> Picks | None:
    with ThreadPoolExecutor(_AT_ONCE if is_far(segments) else 1) as pool:
        read = list(pool.map(lambda pair: pair[0].units(pair[1]), wanted))
    names = tuple(queue.name for queue, _ in wanted)
    pieces = [_picks_of(units, number) for number, units in enumerate(read) if units.starts.size]
    return Picks.joined(pieces, names) if pieces else None


def _picks_of(units: Units, number: int) -> Picks:
    return Picks(units.starts, units.sizes, np.full(units.starts.size, number, np.int32), units.offsets)


def _start(record: Proven) -> int:
    return record.start


def _price_of_files(asked: Sequence[StoredQueue], question: Question) -> int:
    per_file = question.costs.per_file + question.costs.per_request * _OPENING * is_far(question.segments)
    return sum(queue.files * per_file for queue in asked)


def _price_of_units(beside: QueuesBesideLog, ranges: Iterable[UnitRange], costs: LookUpCosts) -> int:
    per_unit = costs.per_record + (costs.per_stored_unit if beside.database_cost else 0)
    return per_unit * sum(units.end - units.begin for units in ranges)


class _Asked:
    """Which queues, and which queue offsets of them, the options ask for."""

    def __init__(self, options: ReadOptions) -> None:
        self._topics, self._queue_ids = frozenset(options.topic), frozenset(options.queue_id)
        pattern = options.topics_pattern
        self._pattern = None if pattern is None else re.compile(pattern)
        self._starts = {(topic, queue_id): offset for topic, queue_id, offset in options.start.queues}
        self._ends = {(topic, queue_id): offset for topic, queue_id, offset in options.end.queues}

    def takes(self, queue: StoredQueue) -> bool:
        topic, queue_id = queue.name
        return (
            (not self._topics or topic in self._topics)
            and (self._pattern is None or self._pattern.fullmatch(topic) is not None)
            and (not self._queue_ids or queue_id in self._queue_ids)
        )

    def bounds(self, queue: StoredQueue) -> tuple[int, int]:
        return self._starts.get(queue.name, 0), self._ends.get(queue.name, EVERYTHING)
