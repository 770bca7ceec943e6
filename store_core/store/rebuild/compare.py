# SPDX-License-Identifier: Apache-2.0
"""Comparing rebuilt queues with those of a store, index by index."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from store_core.errors import SegmentLayoutError
from store_core.files.store_kind import queue_database
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt
from store_core.queue.consume_queue.queue_extension import LAST_EXT_ADDRESS
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, queue_path
from store_core.queue.rocksdb.rocksdb_queues import RocksdbQueues
from store_core.queue.units.batch_consume_queue_unit import readable_units
from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE, units_of
from store_core.store.rebuild.queue_side import COMPARED, Side, plain_columns
from store_core.store.rebuild.stored_names import stored_queue_names
from store_core.store.rebuild.unit_verdicts import digest_of, judge_units, unreadable_queue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    import numpy.typing as npt

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.queue.consume_queue.consume_queue_table import Queue
    from store_core.queue.queue_rules import QueueRules
    from store_core.queue.units.consume_queue_unit import UnitArray
    from store_core.store.rebuild.lost_ranges import LostBytes
    from store_core.store.rebuild.plain_queue import PlainQueue
    from store_core.store.rebuild.queue_side import Compared
    from store_core.store.rebuild.unit_verdicts import QueueJudgement

__all__ = [
    "LogBounds",
    "QueueDifferences",
    "StoredQueues",
    "UnitDifference",
    "compare_queues",
    "judge_queue",
]

_KEPT: Final = 20
_BLANK_SIZE: Final = 2**31 - 1


class LogBounds(NamedTuple):
    """The part of a log that counts in a comparison.

    Attributes
    ----------
    min_offset : int
        Physical offset where the log starts; units below it point to deleted records.
    is_live : bool
        Whether a broker may be writing; units after all that was read are then not a difference.
    log_end : int or None
        Physical offset where the log ends, if each unit is to be judged, and not only compared.
    torn : tuple of int
        Begin and end of a last record that is damaged; its unit is not judged.
    """

    min_offset: int
    is_live: bool = False
    log_end: int | None = None
    torn: tuple[int, int] = (0, 0)


class UnitDifference(NamedTuple):
    """A position where two queues differ.

    Attributes
    ----------
    kind : str
        ``"missing"`` from the store, ``"extra"`` in the store, or ``"different"``.
    queue_offset : int
    physical_offset : int
        From the unit derived from the log; for an extra unit, from the store's.
    """

    kind: str
    queue_offset: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class QueueDifferences:
    """Differences between a store's queue and the one derived from its log.

    Attributes
    ----------
    topic : str
    queue_id : int
    missing, extra, different : int
        Numbers of units.
    first : tuple of UnitDifference
        The first of them.
    problem : str
        Why the store's queue can't be read; empty if it can.
    """

    topic: str
    queue_id: int
    missing: int = 0
    extra: int = 0
    different: int = 0
    first: tuple[UnitDifference, ...] = ()
    problem: str = ""

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.different or self.problem)


class StoredQueues:
    """Reads the queues of a directory as a broker finds them at its start; nothing is written.

    Queues in a RocksDB are read from there; `close` closes it.

    Parameters
    ----------
    root : Path
        Directory with ``consumequeue`` and so on.
    """

    def __init__(self, root: Path, rules: QueueRules, file_system: FileSystem, clock: Clock) -> None:
        self._root = root
        self._rules = rules
        self._file_system = file_system
        self._clock = clock
        self._database = queue_database(root, file_system)
        self._opened: RocksdbQueues | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the RocksDB, if it was opened."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def names(self) -> set[tuple[str, int]]:
        """Return topic and id of the queues."""
        if self._database is None:
            return stored_queue_names(self._root, self._file_system)
        return set(self._in_rocksdb(self._database).names)

    def _in_rocksdb(self, database: Path) -> RocksdbQueues:
        if self._opened is None:
            self._opened = RocksdbQueues.open(database)
        return self._opened

    def units(self, topic: str, queue_id: int, min_offset: int) -> Iterator[tuple[npt.NDArray[np.int64], Compared]]:
        """Yield the units that point at or after an offset of the log, file by file, with their indexes.

        Raises
        ------
        SegmentLayoutError
            If the release would not load the queue.
        """
        if self._database is not None:
            for offsets, units in self._in_rocksdb(self._database).units(topic, queue_id):
                yield _live(offsets, plain_columns(units), min_offset)
            return
        with self._opened_queue(topic, queue_id) as queue:
            if isinstance(queue, BatchConsumeQueue):
                for file in queue.mapped_file_queue.mapped_files:
                    yield _live(*_batch_columns(readable_units(file)), min_offset)
                return
            for first, units in _stored(queue):
                yield _live(first + np.arange(len(units)), _columns(units, queue), min_offset)

    def has_just(self, topic: str, queue_id: int, plain: PlainQueue, min_offset: int) -> bool:
        """Return whether a queue has the units of another, and no more that point at or after an offset of the log.

        False also if it is not known without comparing unit by unit: in a database, or with an extension.

        Raises
        ------
        SegmentLayoutError
            If the release would not load the queue.
        """
        rules = self._rules
        if self._database is not None or rules.is_ext_enabled or topic in rules.batch_topics:
            return False
        with self._opened_queue(topic, queue_id) as queue:
            reached = plain.first
            for first, units in _stored(queue):
                begin, end = (min(max(place - first, 0), len(units)) for place in (plain.first, plain.stop))
                if _is_any_live(units[:begin], min_offset) or _is_any_live(units[end:], min_offset):
                    return False
                if begin < end:
                    if first + begin != reached or not plain.has(reached, units[begin:end]):
                        return False
                    reached = first + end
            return reached == plain.stop

    @contextmanager
    def _opened_queue(self, topic: str, queue_id: int) -> Iterator[Queue]:
        """Open a queue as the release finds it at its start."""
        queue = self._open(topic, queue_id)
        try:
            queue.load()
            queue.recover()
            yield queue
        finally:
            queue.close()

    def _open(self, topic: str, queue_id: int) -> Queue:
        rules, files, clock = self._rules, self._file_system, self._clock
        if topic in rules.batch_topics:
            directory = queue_path(self._root / BATCH_CONSUME_QUEUE, topic, queue_id)
            return BatchConsumeQueue(topic, queue_id, directory, rules, files, clock, writable=False)
        ext = ConsumeQueueExt(
            queue_path(self._root / CONSUME_QUEUE_EXT, topic, queue_id), rules, files, clock, writable=False
        )
        directory = queue_path(self._root / CONSUME_QUEUE, topic, queue_id)
        with_ext = ext if rules.is_ext_enabled else None
        return ConsumeQueue(topic, queue_id, directory, rules, files, clock, ext=with_ext, writable=False)


def _stored(queue: Queue) -> Iterator[tuple[int, UnitArray]]:
    """Yield the units of a simple queue file by file, with the index of the first of each."""
    for file in queue.mapped_file_queue.mapped_files:
        view = file.select(0)
        if view is not None:
            yield file.file_from_offset // CQ_STORE_UNIT_SIZE, units_of(view)


def _columns(units: npt.NDArray[np.void], queue: ConsumeQueue) -> Compared:
    """Make units comparable: values in an extension are taken from there, as their addresses may differ."""
    compared = plain_columns(units)
    if isinstance(queue.ext, ConsumeQueueExt):
        for place in np.flatnonzero(compared["tags_code"] <= LAST_EXT_ADDRESS).tolist():
            unit = queue.ext.get(int(compared["tags_code"][place]))
            if unit is not None:
                compared["tags_code"][place] = unit.tags_code
    return compared


def _batch_columns(units: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], Compared]:
    compared = plain_columns(units)
    compared["count"] = units["batch_size"]
    return units["msg_base_offset"].astype(np.int64), compared


def _live(indexes: npt.NDArray[np.int64], units: Compared, min_offset: int) -> tuple[npt.NDArray[np.int64], Compared]:
    """Leave out units below the log's start, and filler units before a file's first real one."""
    is_blank = (units["physical_offset"] == 0) & (units["size"] == _BLANK_SIZE)
    kept = (units["physical_offset"] >= min_offset) & ~is_blank
    return indexes[kept], units[kept]


def _is_any_live(units: UnitArray, min_offset: int) -> bool:
    live, _ = _live(np.arange(len(units)), plain_columns(units), min_offset)
    return len(live) > 0


def compare_queues(
    topic: str, queue_id: int, rebuilt: StoredQueues, stored: StoredQueues, bounds: LogBounds
) -> QueueDifferences:
    """Compare one queue of two directories; units below the log's start are ignored."""
    ours = _joined(rebuilt.units(topic, queue_id, bounds.min_offset))
    try:
        theirs = _theirs(topic, queue_id, ours, stored, bounds)
    except (SegmentLayoutError, OSError) as error:
        return QueueDifferences(topic, queue_id, missing=len(ours.indexes), problem=str(error))
    _, mine, other = np.intersect1d(ours.indexes, theirs.indexes, return_indices=True)
    missing = np.setdiff1d(np.arange(len(ours.indexes)), mine)
    extra = np.setdiff1d(np.arange(len(theirs.indexes)), other)
    different = mine[ours.units[mine] != theirs.units[other]]
    found = (("missing", ours, missing), ("extra", theirs, extra), ("different", ours, different))
    first = [
        UnitDifference(kind, int(side.indexes[place]), int(side.units["physical_offset"][place]))
        for kind, side, places in found
        for place in places[:_KEPT].tolist()
    ]
    first.sort(key=lambda difference: difference.queue_offset)
    return QueueDifferences(topic, queue_id, len(missing), len(extra), len(different), tuple(first[:_KEPT]))


def judge_queue(  # noqa: PLR0913 -- the two sides, and what is known of the log
    topic: str,
    queue_id: int,
    rebuilt: StoredQueues,
    stored: StoredQueues,
    bounds: LogBounds,
    lost: LostBytes | None = None,
) -> QueueJudgement:
    """Judge each unit of a queue, as `compare_queues` compares them; the bounds need an end.

    A unit whose record is damaged now was right, so its place in the queue does not count.
    """
    ours = _joined(rebuilt.units(topic, queue_id, bounds.min_offset))
    try:
        theirs = _theirs(topic, queue_id, ours, stored, bounds)
    except (SegmentLayoutError, OSError) as error:
        return unreadable_queue(topic, queue_id, ours, str(error))
    sides = _undamaged(ours, theirs, lost, bounds.torn)
    return judge_units(topic, queue_id, *sides, bounds.log_end or 0, digest_of(ours.indexes, [ours.units]))


def _undamaged(ours: Side, theirs: Side, lost: LostBytes | None, torn: tuple[int, int]) -> tuple[Side, Side]:
    """Leave out the places at which the store has units of records that are damaged."""
    begin, end = torn
    offsets = theirs.units["physical_offset"]
    is_lost = (offsets >= begin) & (offsets < end)
    if lost is not None and lost.total:
        is_lost |= lost.holds(offsets)
    if not is_lost.any():
        return ours, theirs
    is_ours = ~np.isin(ours.indexes, theirs.indexes[is_lost])
    return ours.chosen(is_ours), theirs.chosen(~is_lost)


def _theirs(topic: str, queue_id: int, ours: Side, stored: StoredQueues, bounds: LogBounds) -> Side:
    """Return the units of the store; of a live one, only those of records that have been read."""
    theirs = _joined(stored.units(topic, queue_id, bounds.min_offset))
    if not bounds.is_live:
        return theirs
    known = theirs.units["physical_offset"] <= int(ours.units["physical_offset"].max(initial=-1))
    return theirs.chosen(known)


def _joined(files: Iterator[tuple[npt.NDArray[np.int64], Compared]]) -> Side:
    listed = list(files)
    if not listed:
        return Side(np.empty(0, np.int64), np.empty(0, COMPARED))
    return Side(np.concatenate([indexes for indexes, _ in listed]), np.concatenate([units for _, units in listed]))
