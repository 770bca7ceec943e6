# SPDX-License-Identifier: Apache-2.0
"""Comparing rebuilt queues with those of a store, index by index."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from store_core.store.rebuild.queue_side import Compared, Side
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
    from store_core.store.rebuild.lost_ranges import LostBytes
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
_COMPARED: Final = np.dtype([("physical_offset", "<i8"), ("size", "<i8"), ("tags_code", "<i8"), ("count", "<i8")])


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
                yield _live(offsets, _plain_columns(units), min_offset)
            return
        queue = self._open(topic, queue_id)
        try:
            queue.load()
            queue.recover()
            for file in queue.mapped_file_queue.mapped_files:
                if isinstance(queue, BatchConsumeQueue):
                    yield _live(*_batch_columns(readable_units(file)), min_offset)
                    continue
                view = file.select(0)
                if view is not None:
                    indexes = file.file_from_offset // CQ_STORE_UNIT_SIZE + np.arange(len(view) // CQ_STORE_UNIT_SIZE)
                    yield _live(indexes, _columns(units_of(view), queue), min_offset)
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


def _columns(units: npt.NDArray[np.void], queue: ConsumeQueue) -> Compared:
    """Make units comparable: values in an extension are taken from there, as their addresses may differ."""
    compared = _plain_columns(units)
    if isinstance(queue.ext, ConsumeQueueExt):
        for place in np.flatnonzero(compared["tags_code"] <= LAST_EXT_ADDRESS).tolist():
            unit = queue.ext.get(int(compared["tags_code"][place]))
            if unit is not None:
                compared["tags_code"][place] = unit.tags_code
    return compared


def _plain_columns(units: npt.NDArray[np.void]) -> Compared:
    compared = np.zeros(len(units), _COMPARED)
    compared["physical_offset"] = units["physical_offset"]
    compared["size"] = units["store_size"]
    compared["tags_code"] = units["tags_code"]
    return compared


def _batch_columns(units: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], Compared]:
    compared = _plain_columns(units)
    compared["count"] = units["batch_size"]
    return units["msg_base_offset"].astype(np.int64), compared


def _live(indexes: npt.NDArray[np.int64], units: Compared, min_offset: int) -> tuple[npt.NDArray[np.int64], Compared]:
    """Leave out units below the log's start, and filler units before a file's first real one."""
    is_blank = (units["physical_offset"] == 0) & (units["size"] == _BLANK_SIZE)
    kept = (units["physical_offset"] >= min_offset) & ~is_blank
    return indexes[kept], units[kept]


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
    judgement = judge_units(topic, queue_id, *_undamaged(ours, theirs, lost, bounds.torn), bounds.log_end or 0)
    return replace(judgement, digest=digest_of(ours))


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
        return Side(np.empty(0, np.int64), np.empty(0, _COMPARED))
    return Side(np.concatenate([indexes for indexes, _ in listed]), np.concatenate([units for _, units in listed]))
