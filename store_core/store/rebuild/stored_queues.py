# SPDX-License-Identifier: Apache-2.0
"""The consume queues of a store as a comparison sees them: read as a broker finds them at its start."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.errors import SegmentLayoutError
from store_core.files.store_kind import queue_database
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt
from store_core.queue.consume_queue.queue_extension import LAST_EXT_ADDRESS
from store_core.queue.dispatch.lmq_units import is_light
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, queue_path
from store_core.queue.rocksdb.rocksdb_queues import RocksdbQueues, light_queue_database
from store_core.queue.units.batch_consume_queue_unit import readable_units
from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE, units_of
from store_core.store.rebuild.queue_side import plain_columns
from store_core.store.rebuild.stored_names import stored_queue_names

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
    from store_core.store.rebuild.plain_queue import PlainQueue
    from store_core.store.rebuild.queue_side import Compared

__all__ = ["StoredQueues"]

_BLANK_SIZE: Final = 2**31 - 1


class StoredQueues:
    """Reads the queues of a directory as a broker finds them at its start; nothing is written.

    Queues in a RocksDB are read from there, also where only light queues are; `close` closes it.

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

    @property
    def is_in_rocksdb(self) -> bool:
        """Whether they are in a RocksDB: what its broker has not flushed is not seen."""
        return self._database is not None

    def names(self) -> set[tuple[str, int]]:
        """Return topic and id of the queues."""
        if self._database is None:
            return stored_queue_names(self._root, self._file_system)
        return set(self._in_rocksdb(self._database).names)

    def reached(self) -> int:
        """Return how far the queues cover the log: one past the last record of which any has a unit; -1 without units.

        Queues that can't be read are left out.
        """
        reached = -1
        for topic, queue_id in self.names():
            with suppress(SegmentLayoutError, OSError):
                reached = max(reached, self._reached_by(topic, queue_id))
        return reached

    def _reached_by(self, topic: str, queue_id: int) -> int:
        if self._database is None:
            with self._opened_queue(topic, queue_id) as queue:
                return queue.max_physical_offset
        queues = self._in_rocksdb(self._database)
        last = queues.unit_from(topic, queue_id, queues.end_of(topic, queue_id) - 1)
        return -1 if last is None else int(last.units["physical_offset"][0]) + int(last.units["store_size"][0])

    @cached_property
    def _light_database(self) -> Path | None:
        return light_queue_database(self._root, self._file_system)

    def _database_of(self, topic: str) -> Path | None:
        return self._light_database if self._database is None and is_light(topic) else self._database

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
        database = self._database_of(topic)
        if database is not None:
            for offsets, units in self._in_rocksdb(database).units(topic, queue_id):
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
        if self._database_of(topic) is not None or rules.is_ext_enabled or topic in rules.batch_topics:
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
