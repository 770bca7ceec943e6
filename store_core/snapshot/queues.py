# SPDX-License-Identifier: Apache-2.0
"""The consume queues of a store, in files or in a RocksDB, of which only what is asked for is read."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from store_core.errors import SegmentVanishedError
from store_core.files.access import explained_access
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.store_kind import queue_database
from store_core.queue.dispatch.lmq_units import is_light
from store_core.queue.queue_path import parse_queue_id, refusal_of
from store_core.snapshot.file_queues import DIRECTORIES, FileQueue
from store_core.snapshot.units import EVERY_QUEUE, QueueBounds, QueueDoubtError, QueueKind, TopicFilter, Units, leading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from store_core.files.file_system import FileSystem
    from store_core.queue.rocksdb.rocksdb_queues import RocksdbQueues
    from store_core.snapshot.database_queues import QueuedLog, Unflushed
    from store_core.snapshot.units import Queue, QueueName

__all__ = ["NamedQueue", "QueueBounds", "QueueDoubtError", "QueueKind", "Queues", "TopicFilter", "Units"]

_FILES: Final = OsFileSystem()


class NamedQueue(NamedTuple):
    """One queue of a store.

    Attributes
    ----------
    queues : Queues
        Where it is one of.
    topic : str
    queue_id : int
    """

    queues: Queues
    topic: str
    queue_id: int

    @property
    def bounds(self) -> QueueBounds:
        """Where it begins and ends: the queue offsets of its first message, and of the one after its last."""
        found = self.queues.bounds(self.topic, self.queue_id)
        return self.stored.bounds(0) if found is None else found

    @property
    def stored(self) -> Queue:
        """The queue as it is stored, with whatever is wrong.

        Raises
        ------
        SegmentVanishedError
            If it is gone since it was asked for.
        """
        found = self.queues.get(self.topic, self.queue_id)
        if found is None:
            raise SegmentVanishedError(
                f"{self.queues.root}: queue {self.queue_id} of topic {self.topic!r} is gone since it was asked for"
            ).advised("Open the store again, or refresh it, to see what there is now")
        return found

    def units(self, begin: int | None = None, end: int | None = None) -> pa.Table:
        """Return its units between two queue offsets, by default all, that lead to records.

        Columns are `queue_offset`, `physical_offset` and `store_size`, all int64; a unit of a batch has the offset of
        its first message.
        """
        bounds = self.bounds
        first = bounds.min_offset if begin is None else max(begin, bounds.min_offset)
        last = bounds.max_offset if end is None else min(end, bounds.max_offset)
        found = list(self.queues.units(self.topic, self.queue_id, first, last))
        arrays = [np.concatenate([getattr(each, name) for each in found] or [_NONE]) for name in _ARRAYS]
        return pa.table(dict(zip(_COLUMNS, arrays, strict=True)))


_COLUMNS: Final = ("queue_offset", "physical_offset", "store_size")
_ARRAYS: Final = ("offsets", "starts", "sizes")
_NONE: Final = np.empty(0, np.int64)


class Queues:
    """The consume queues of one store; nothing is written or locked, and files are opened when they are needed.

    A RocksDB stays open until the block of a ``with`` statement ends, or `close`. Queues can be pickled: another
    process opens what it needs, on its own disk.

    Parameters
    ----------
    root : Path
        The store's root.
    log : QueuedLog, optional
        The log that they lead into. With it, bounds end where the log does, and the queues of a RocksDB have what was
        not flushed, which is read now; without it they are as their files have them.
    file_system : FileSystem, optional
    end : int, optional
        Physical offset: bounds are as if the log had ended there.

    Attributes
    ----------
    database : Path or None
        The RocksDB that all queues are in; None if they are files.
    unflushed : dict
        By topic and queue id: what only the log has, as of now.
    notes : dict of str to None
        What was left out when queues were listed, in order.

    Raises
    ------
    CorruptDatabaseError, UnsupportedStoreError
        If the queues are in a RocksDB that is damaged, or whose library is missing.

    Examples
    --------
    >>> with Queues(Path("/data/store")) as queues:  # doctest: +SKIP
    ...     queues.bounds("orders", 0)
    QueueBounds(min_offset=0, max_offset=7, first=(0, 312), last=(2184, 312))
    """

    def __init__(
        self,
        root: Path,
        log: QueuedLog | None = None,
        file_system: FileSystem = _FILES,
        *,
        end: int | None = None,
    ) -> None:
        self.root = root
        self.log = log
        self.end = end
        self.database = queue_database(root, file_system)
        self.unflushed: dict[QueueName, Unflushed] = {}
        self.notes: dict[str, None] = {}
        self._files = file_system
        self._start()
        if self.database is not None and log is not None:
            from store_core.snapshot.database_queues import unflushed_of  # noqa: PLC0415 -- few have a RocksDB

            with self:
                self.unflushed = unflushed_of(log, self._stored(self.database).dispatched_offset)

    def _start(self) -> None:
        self._resources = ExitStack()
        self._databases: dict[Path, RocksdbQueues] = {}
        self._asked: tuple[QueueName, Queue | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is open."""
        fields = ("root", "log", "end", "database", "unflushed", "notes")
        return {name: getattr(self, name) for name in fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin with nothing open, on the files of the process."""
        self.__dict__.update(state)
        self._files = _FILES
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open; it is opened again when it is needed."""
        self._resources.close()
        self._start()

    # ---- which queues there are

    @property
    def exist(self) -> bool:
        """Whether there is a place for queues at all."""
        return self.database is not None or any((self.root / name).is_dir() for name in DIRECTORIES.values())

    @property
    def dispatched(self) -> int | None:
        """Physical offset up to which a RocksDB has all units; None for files, or if it is not known."""
        found = -1 if self.database is None else self._stored(self.database).dispatched_offset
        return found if found >= 0 else None

    def names(self, wanted: TopicFilter = EVERY_QUEUE) -> Iterator[QueueName]:
        """Yield the names of the queues that are asked for; see `each`."""
        return (queue.name for queue in self.each(wanted))

    def each(self, wanted: TopicFilter = EVERY_QUEUE) -> Iterator[Queue]:
        """Yield the queues that are asked for, by kind, topic and id. None of their files is listed or opened.

        Directories that can't be those of queues are left out, with a note. Light queues that only a RocksDB has,
        beside other queues that are files, are found if they are asked for by name.
        """
        if self.database is not None:
            yield from self._in_database(self.database, wanted)
            return
        yield from self.in_files(wanted)
        if any(map(is_light, wanted.topics)) and self.light_database is not None:
            yield from self._in_database(self.light_database, wanted)

    def in_files(self, wanted: TopicFilter = EVERY_QUEUE) -> Iterator[FileQueue]:
        """Yield those of the queues that `each` yields which have a directory, also beside a RocksDB."""
        for kind in DIRECTORIES:
            yield from (FileQueue(name, kind, self.root, self._files) for name in self._names_in(kind, wanted))

    def _in_database(self, database: Path, wanted: TopicFilter) -> Iterator[Queue]:
        for name in self._stored(database).names:
            if wanted.takes(*name) and (database == self.database or is_light(name[0])):
                yield self._queue_in(database, name)

    def _queue_in(self, database: Path, name: QueueName) -> Queue:
        from store_core.snapshot.database_queues import DatabaseQueue  # noqa: PLC0415 -- few have a RocksDB

        return DatabaseQueue(self._stored(database), name, self.unflushed.get(name), self.log)

    def topics(self) -> set[str]:
        """Return the topics that have a place for queues, without looking at their queues."""
        if self.database is not None:
            return {topic for topic, _ in self.names()}
        return {
            topic
            for name in DIRECTORIES.values()
            for topic in names_in(self.root / name, self._files)
            if refusal_of(topic, 0) is None
        }

    def _names_in(self, kind: QueueKind, wanted: TopicFilter) -> Iterator[QueueName]:
        directory = self.root / DIRECTORIES[kind]
        with explained_access(self.root):
            topics = self._topics(directory, wanted)
        for topic in topics:
            queue_ids = []
            with explained_access(self.root):
                names = names_in(directory / topic, self._files)
            for name in names:
                queue_id = parse_queue_id(name)
                if queue_id is None or str(queue_id) != name or refusal_of(topic, queue_id) is not None:
                    self.notes[f"ignored {directory / topic / name}: expected a number, the queue's id"] = None
                elif not wanted.queue_ids or queue_id in wanted.queue_ids:
                    queue_ids.append(queue_id)
            yield from ((topic, queue_id) for queue_id in sorted(queue_ids))

    def _topics(self, directory: Path, wanted: TopicFilter) -> list[str]:
        """Return the topics that may have a directory; those that are asked for by name are not searched for."""
        if wanted.topics:
            named = (topic for topic in dict.fromkeys(wanted.topics) if refusal_of(topic, 0) is None)
            return sorted(topic for topic in named if wanted.takes_topic(topic) and (directory / topic).is_dir())
        return [topic for topic in names_in(directory, self._files) if wanted.takes_topic(topic)]

    # ---- one queue

    def __getitem__(self, name: QueueName) -> NamedQueue:
        """Return a queue by its topic and id.

        Raises `KeyError`: If there is none.
        """
        if self.get(*name) is None:
            raise KeyError(name)
        return NamedQueue(self, *name)

    def get(self, topic: str, queue_id: int) -> Queue | None:
        """Return a queue; None if there is none, or can't be. Asked for again, it is the same, files and all."""
        name = topic, queue_id
        if self._asked is None or self._asked[0] != name:
            self._asked = name, self._found(name)
        return self._asked[1]

    def _found(self, name: QueueName) -> Queue | None:
        database = self.database
        if database is None:
            if refusal_of(*name) is not None:
                return None
            for kind in DIRECTORIES:
                queue = FileQueue(name, kind, self.root, self._files)
                if queue.exists:
                    return queue
            database = self.light_database if is_light(name[0]) else None
        if database is None or (name not in self._stored(database) and name not in self.unflushed):
            return None
        return self._queue_in(database, name)

    @cached_property
    def light_database(self) -> Path | None:
        """The RocksDB that alone has the light queues, where other queues are files."""
        from store_core.queue.rocksdb.rocksdb_queues import light_queue_database  # noqa: PLC0415 -- few have one

        return light_queue_database(self.root, self._files) if self.database is None else None

    def _stored(self, database: Path) -> RocksdbQueues:
        from store_core.queue.rocksdb.rocksdb_queues import RocksdbQueues  # noqa: PLC0415 -- few have one

        if database not in self._databases:
            self._databases[database] = self._resources.enter_context(RocksdbQueues.open(database))
        return self._databases[database]

    # ---- where queues begin and end

    def bounds(self, topic: str, queue_id: int, log_end: int | None = None) -> QueueBounds | None:
        """Return where a queue begins and ends as a broker that loads the store has it; None if there is none.

        That is its offsets in ``getMinOffsetInQueue`` and ``getMaxOffsetInQueue``. Units of records that the log does
        not have, because they begin at or after its end, are left out
        (RocketMQ: ``ConsumeQueue.truncateDirtyLogicFiles``, after the log is recovered).

        Parameters
        ----------
        topic, queue_id
        log_end : int or None
            Physical offset: as if the log had ended there.

        Raises
        ------
        SegmentVanishedError
            If a file is gone since the queue was listed.
        CorruptDatabaseError
            If the RocksDB is damaged.
        """
        queue = self.get(topic, queue_id)
        found = None if queue is None else queue.bounds(0 if self.log is None else self.log.start)
        if found is None or found.last is None:
            return found
        end = None if self.log is None else self.log.end_before(*found.last)
        most = self.end if log_end is None else log_end
        return self.before(topic, queue_id, self.before(topic, queue_id, found, end), most)

    def before(self, topic: str, queue_id: int, bounds: QueueBounds | None, log_end: int | None) -> QueueBounds | None:
        """Return the bounds of a queue without the units of records from a position in the log on; None for all."""
        if bounds is None or log_end is None or bounds.last is None or bounds.last[0] < log_end:
            return bounds
        end = self.first_at(topic, queue_id, log_end, bounds.min_offset, bounds.max_offset)
        last = next(self.units(topic, queue_id, end - 1, end), None) if end > bounds.min_offset else None
        if last is None:
            return QueueBounds(bounds.min_offset, bounds.min_offset)
        return QueueBounds(bounds.min_offset, end, bounds.first, last.place(-1))

    def first_at(self, topic: str, queue_id: int, position: int, begin: int, end: int) -> int:
        """Return the queue offset of the first unit of a record at or after a position in the log; else the end.

        Parameters
        ----------
        topic, queue_id
        position : int
            Physical offset.
        begin, end : int
            Queue offsets, between which the units' records ascend.
        """
        queue = self.get(topic, queue_id)
        return end if queue is None else queue.first_at(position, begin, end)

    def units(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[Units]:
        """Yield the units of messages between two queue offsets that lead to records, some thousands at a time.

        Raises
        ------
        SegmentVanishedError
            If a file is gone since the queue was listed.
        """
        queue = self.get(topic, queue_id) if begin < end else None
        return leading(() if queue is None else queue.units(begin, end), begin, end)
