# SPDX-License-Identifier: Apache-2.0
"""The queues of a store as a release has them when it has loaded them, and the moment of a store that is written."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

import numpy as np

from store_core.errors import SegmentLayoutError
from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.queue.consume_queue.consume_queue_ext import LAST_EXT_ADDRESS, ConsumeQueueExt
from store_core.queue.dispatch.lmq_units import is_light
from store_core.queue.queue_path import CONSUME_QUEUE_EXT, queue_path
from store_core.snapshot.index import Index
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import FoundEnd
from store_core.snapshot.queues import FileQueue, QueueKind, Queues, Units
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.file_system import FileSystem
    from store_core.queue.queue_path import QueueRules

__all__ = ["COMPARED", "NO_UNITS", "Compared", "LiveMoment", "Side", "StoredQueues", "plain_columns"]

_FILES: Final = OsFileSystem()
_NOWHERE: Final = 2**63 - 1

COMPARED: Final = np.dtype([("physical_offset", "<i8"), ("size", "<i8"), ("tags_code", "<i8"), ("count", "<i8")])

Compared: TypeAlias = "np.ndarray[Any, np.dtype[np.void]]"
"""Physical offset, size, tags code and number of messages of each unit."""


class Side(NamedTuple):
    """The units of a queue on one side of a comparison."""

    indexes: npt.NDArray[np.int64]  # places in the queue
    units: Compared  # their physical offsets, sizes, tags codes and, in a batch queue, numbers of messages

    def chosen(self, mask: npt.NDArray[np.bool_]) -> Side:
        """Return some of the units."""
        return Side(self.indexes[mask], self.units[mask])


NO_UNITS: Final = Side(np.empty(0, np.int64), np.empty(0, COMPARED))


def plain_columns(units: npt.NDArray[np.void]) -> Compared:
    """Make stored units of any kind of queue comparable; none of them counts messages."""
    compared = np.zeros(len(units), COMPARED)
    compared["physical_offset"] = units["physical_offset"]
    compared["size"] = units["store_size"]
    compared["tags_code"] = units["tags_code"]
    return compared


class StoredQueues:
    """The queues of a directory as a release has them when it has loaded them; a context manager.

    * `root`: Directory with ``consumequeue`` and so on.
    """

    def __init__(self, root: Path, rules: QueueRules, file_system: FileSystem = _FILES) -> None:
        self._root = root
        self._rules = rules
        self._file_system = file_system
        self._queues = Queues(root, file_system=file_system)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._queues.close()

    @property
    def is_in_rocksdb(self) -> bool:
        """Whether they are in a RocksDB: what its broker has not flushed is not seen."""
        return self._queues.database is not None

    def names(self) -> set[tuple[str, int]]:
        """Return topic and id of the queues."""
        return set(self._queues.names())

    def reached(self) -> int:
        """Return how far the queues cover the log: one past the last record of which any has a unit; -1 without units.

        Queues that can't be read are left out.
        """
        reached = -1
        for name in self._queues.names():
            with suppress(SegmentLayoutError, OSError):
                bounds = self._queues.bounds(*name)
                reached = max(reached, -1 if bounds is None or bounds.last is None else sum(bounds.last))
        return reached

    def units(self, topic: str, queue_id: int) -> Iterator[Units]:
        """Yield the units of a queue, in its order; `SegmentLayoutError` if the release would not load it."""
        queue = self._queues.get(topic, queue_id) if self._is_in_database(topic) else None
        if queue is not None:
            yield from queue.units(0, _NOWHERE)
        else:
            kind = QueueKind.BATCH if topic in self._rules.batch_topics else QueueKind.SIMPLE
            yield from FileQueue((topic, queue_id), kind, self._root, self._file_system).loaded(self._rules)

    def _is_in_database(self, topic: str) -> bool:
        queues = self._queues
        return queues.database is not None or (is_light(topic) and queues.light_database is not None)

    def side(self, topic: str, queue_id: int, min_offset: int) -> Side:
        """Return the units that point at or after an offset of the log; those of a batch queue count messages."""
        sides = [NO_UNITS]
        sides += [_live(units, min_offset) for units in self.units(topic, queue_id)]
        side = Side(*(np.concatenate(columns) for columns in zip(*sides, strict=True)))
        has_ext = self._rules.is_ext_enabled and self._is_simple(topic)
        return self._expanded(side, topic, queue_id) if has_ext else side

    def _is_simple(self, topic: str) -> bool:
        return not self._is_in_database(topic) and topic not in self._rules.batch_topics

    def _expanded(self, side: Side, topic: str, queue_id: int) -> Side:
        """Take values that are in an extension from there, as their addresses may differ."""
        directory = queue_path(self._root / CONSUME_QUEUE_EXT, topic, queue_id)
        ext = ConsumeQueueExt(directory, self._rules, self._file_system, SystemClock(), writable=False)
        try:
            ext.load()
            ext.recover()
            codes = side.units["tags_code"]
            for place in np.flatnonzero(codes <= LAST_EXT_ADDRESS).tolist():
                unit = ext.get(int(codes[place]))
                if unit is not None:
                    codes[place] = unit.tags_code
        finally:
            ext.close()
        return side


def _live(units: Units, min_offset: int) -> Side:
    """Leave out units below the log's start, and filler units before a file's first real one."""
    kept = units.chosen((units.starts >= min_offset) & ~units.are_fillers)
    compared = plain_columns(kept.stored)
    if kept.kind is QueueKind.BATCH:
        compared["count"] = kept.counts
    return Side(kept.offsets, compared)


@dataclass(frozen=True, slots=True)
class LiveMoment:
    """How far a live store is compared.

    **Why the order of reading is right.** A broker appends a record to the log, then its units to queues, then its keys
    to the index, and goes on with the next record; nothing that is before any of these ends changes later, and nothing
    goes away but at the log's start. So `take` reads three ends, in this order:

    1. where queues and index end. All records before that are dispatched: whoever reads queues and index *later* finds
       their units and entries, so that a missing one is missing (`dispatched`);
    2. where the log ends. It is read later, and so at or after 1; whoever reads the log up to there, whenever that is,
       finds the same records. So a unit or an entry that points before it and at none of these is wrong (`log_end`).

    What is read afterwards, in any order, is compared up to these two. Units of records at or after `log_end` may be
    newer than what was read, unless they point where the log has no file (`judges`).

    What this does not cover, a second look does: records whose dispatch was only begun at 1, such as those with several
    keys; what the broker deletes at the log's start meanwhile; and files that are being created. None of these can be
    seen again at the same place.
    """

    store: Path  # the store's root
    dispatched: int  # physical offset: records before it have their units and entries
    index_end: int  # physical offset one past that of the last record that has an entry; 0 without entries
    log_end: int  # physical offset: the log is read up to it
    indexed: int
    """As `dispatched`, for entries. An index that moves may be behind the queues, by what its writer gathers; one that
    has not moved since an earlier moment lacks what the queues had then."""

    @classmethod
    def take(cls, store: Path, rules: QueueRules, earlier: LiveMoment | None = None) -> Self:
        """Read where queues, index and log of a store end, in this order.

        * `earlier`: That of an earlier look at the same store.
        """
        with StoredQueues(store, rules) as queues:
            reached, are_seen_late = queues.reached(), queues.is_in_rocksdb
        index = Index(store).loaded(rules)
        indexed = max((file.header.end_physical_offset + 1 for file in index.used), default=0)
        options = ReadOptions(mode=ReadMode.DROPMALFORMED, release=rules.release)
        log_end = (plan_ranges(store, options).end or FoundEnd()).end_offset
        both = max(reached, indexed)  # a record with an entry has its units: they come first
        dispatched = reached if are_seen_late else both
        has_moved = earlier is not None and indexed > earlier.index_end
        ends = dispatched, indexed, log_end, indexed if has_moved else both
        return cls(store, *(min(end, log_end) for end in ends))

    def is_index_behind(self, earlier: LiveMoment) -> bool:
        """Return whether the index ends where it ended at an earlier moment, though the log has grown."""
        return self.index_end == earlier.index_end and self.log_end > earlier.log_end

    def judges(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which physical offsets of units, read until now, can be judged: those that are not newer."""
        is_judged: npt.NDArray[np.bool_] = offsets < self.log_end
        if is_judged.all():
            return is_judged
        # Listed after the units were read, so that the files of their records are among these.
        last = Log.of(self.store).segments[-1]
        return is_judged | (offsets >= last.end_offset)
