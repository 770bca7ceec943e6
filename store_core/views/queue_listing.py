# SPDX-License-Identifier: Apache-2.0
"""The consume queues of a store, as directories list them without opening a file, or as a RocksDB does."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Self, TypeVar

from store_core.errors import StoreNotFoundError
from store_core.files.access import access_error, explained_access
from store_core.files.configured_root import log_directories
from store_core.files.dledger_log import dledger_logs
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.local_listing import segments_in
from store_core.files.store_kind import queue_database
from store_core.files.store_parts import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from store_core.queue.queue_path import parse_queue_id, refusal_of
from store_core.queue.rocksdb.rocksdb_queues import ROCKSDB_UNIT_DTYPE, RocksdbQueues
from store_core.queue.units.batch_consume_queue_unit import BATCH_UNIT_DTYPE
from store_core.queue.units.consume_queue_unit import UNIT_DTYPE
from store_core.store.read.stored_topics import hint_of, stored_topics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    import numpy as np

    from store_core.files.segment_source import Segment
    from store_core.store.read.read_options import ReadOptions

__all__ = [
    "ListedQueue",
    "QueueKind",
    "StoredRange",
    "TopicFilter",
    "has_queues",
    "list_queues",
    "missing_queues",
    "queue_files",
    "queue_in_files",
]

_log: Final = logging.getLogger("store_core")

T = TypeVar("T")


class QueueKind(Enum):
    """The kinds of queues; the value is the column ``kind``."""

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
    QueueKind.ROCKSDB: ROCKSDB_UNIT_DTYPE,
}
_DIRECTORIES: Final = {QueueKind.SIMPLE: CONSUME_QUEUE, QueueKind.BATCH: BATCH_CONSUME_QUEUE}
"""Of the kinds that are files, the directory of all their queues below the root."""


@dataclass(frozen=True, slots=True)
class StoredRange:
    """Units of a queue in a RocksDB.

    Attributes
    ----------
    database : Path
    begin, end : int
        Queue offsets; the end is exclusive.
    """

    database: Path
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class ListedQueue:
    """A queue as its directory, or the RocksDB that it is in, lists it.

    Attributes
    ----------
    topic : str
        Name of the directory.
    queue_id : int
    kind : QueueKind
    files : tuple of Segment
        In order; a start offset counts bytes of units. None in a RocksDB.
    stored : StoredRange or None
        All units of a queue in a RocksDB.
    """

    topic: str
    queue_id: int
    kind: QueueKind
    files: tuple[Segment, ...]
    stored: StoredRange | None = None


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Which topics and queues are requested.

    Attributes
    ----------
    topics : tuple of str
        Empty for all.
    pattern : re.Pattern or None
        Must match the whole topic.
    queue_ids : frozenset of int
        Empty for all.
    """

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    queue_ids: frozenset[int] = frozenset()

    @classmethod
    def of(cls, read: ReadOptions) -> Self:
        """Return the filter that options describe."""
        pattern = None if read.topics_pattern is None else re.compile(read.topics_pattern)
        return cls(read.topic, pattern, frozenset(read.queue_id))

    def takes_topic(self, topic: str) -> bool:
        """Return whether a topic is requested."""
        is_named = not self.topics or topic in self.topics
        return is_named and (self.pattern is None or self.pattern.fullmatch(topic) is not None)

    def narrowed(self, topics: Mapping[str, T]) -> dict[str, T]:
        """Return those of some topics that are requested."""
        return {topic: value for topic, value in topics.items() if self.takes_topic(topic)}

    def takes(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue is requested."""
        return (not self.queue_ids or queue_id in self.queue_ids) and self.takes_topic(topic)


def list_queues(root: Path, wanted: TopicFilter, known: Collection[str] = ()) -> Iterator[ListedQueue]:
    """Yield the requested queues of a store, by kind, topic and id.

    Directories that are not queues are left out with a warning; so is a topic that is requested by name, and has no
    queue.

    Parameters
    ----------
    root : Path
    wanted : TopicFilter
    known : collection of str
        Topics that are not missed.

    Raises
    ------
    OSError
        As raised by the system.
    """
    missing = set(wanted.topics) - set(known)
    database = queue_database(root, OsFileSystem())
    for topic, queue in _in_files(root, wanted) if database is None else _in_database(database, wanted):
        missing.discard(topic)
        if queue is not None:
            yield queue
    for topic in sorted(missing):
        _log.warning("topic %r has no queue below %s: %s", topic, root, hint_of(topic, stored_topics([root])))


def _in_files(root: Path, wanted: TopicFilter) -> Iterator[tuple[str, ListedQueue | None]]:
    """Yield the requested queues, and None for other queues of a requested topic."""
    for kind, name in _DIRECTORIES.items():
        with explained_access(root):
            topics = _topics(root / name, wanted)
        for topic in topics:
            with explained_access(root):
                queue_ids = sorted(_queue_ids(root / name / topic))
            for queue_id in queue_ids:
                directory = root / name / topic / str(queue_id)
                is_wanted = wanted.takes(topic, queue_id)
                yield topic, ListedQueue(topic, queue_id, kind, queue_files(directory)) if is_wanted else None


def _in_database(database: Path, wanted: TopicFilter) -> Iterator[tuple[str, ListedQueue | None]]:
    with RocksdbQueues.open(database) as queues:
        for topic, queue_id in queues.names:
            if wanted.takes(topic, queue_id):
                stored = StoredRange(database, queues.start_of(topic, queue_id), queues.end_of(topic, queue_id))
                yield topic, ListedQueue(topic, queue_id, QueueKind.ROCKSDB, (), stored)
            else:
                yield topic, None


def has_queues(root: Path) -> bool:
    """Return whether there is a directory for queues."""
    has_files = any((root / name).is_dir() for name in _DIRECTORIES.values())
    return has_files or queue_database(root, OsFileSystem()) is not None


def missing_queues(root: Path) -> StoreNotFoundError:
    """Return the error that a store has no queues at all."""
    places = " nor ".join(str(root / name) for name in _DIRECTORIES.values())
    can_make = any(any(log.glob("*")) for log in log_directories(root)) and not any(dledger_logs(root, OsFileSystem()))
    make = f", or make queues from the log: commitlog-rebuild-consume-queue {root} --output DIRECTORY" * can_make
    return StoreNotFoundError(
        f"no consume queues: expected directories TOPIC/NUMBER, found neither {places}. Give the root of a whole "
        f"store{make}. With failOnDataLoss=false there are no rows"
    )


def queue_in_files(root: Path, topic: str, queue_id: int) -> ListedQueue | None:
    """Return a queue that has a directory; None if it has none, or can't have one."""
    if refusal_of(topic, queue_id) is not None:
        return None
    for kind, name in _DIRECTORIES.items():
        directory = root / name / topic / str(queue_id)
        if directory.is_dir():
            return ListedQueue(topic, queue_id, kind, queue_files(directory))
    return None


def queue_files(directory: Path) -> tuple[Segment, ...]:
    """Return the files of a queue, in order; empty files are left out, other names with a warning."""
    notes: list[str] = []
    try:
        found = tuple(file for file in segments_in(directory, notes) if file.size)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except PermissionError as error:
        raise access_error(directory, error) from error
    for note in notes:
        _log.warning("%s", note)
    return tuple(sorted(found, key=lambda file: file.start_offset))


def _topics(directory: Path, wanted: TopicFilter) -> list[str]:
    """Return the requested topics that may have a directory; topics requested by name are not searched for."""
    if wanted.topics:
        named = (topic for topic in dict.fromkeys(wanted.topics) if refusal_of(topic, 0) is None)
        return sorted(topic for topic in named if wanted.takes_topic(topic) and (directory / topic).is_dir())
    return [topic for topic in names_in(directory, OsFileSystem()) if wanted.takes_topic(topic)]


def _queue_ids(directory: Path) -> Iterator[int]:
    """Yield the ids of a topic's queues: names that are a number as RocketMQ writes it."""
    for name in names_in(directory, OsFileSystem()):
        queue_id = parse_queue_id(name)
        if queue_id is not None and str(queue_id) == name:
            yield queue_id
        else:
            _log.warning("ignored %s: expected a number, the queue's id", directory / name)
