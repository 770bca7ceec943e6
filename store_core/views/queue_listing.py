# SPDX-License-Identifier: Apache-2.0
"""The consume queues of a store and their files, as directories list them; no file is opened."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Self, TypeVar

from store_core.errors import StoreNotFoundError
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.store_parts import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from store_core.files.store_path import segments_in
from store_core.queue.queue_path import parse_queue_id, refusal_of
from store_core.queue.units.batch_consume_queue_unit import BATCH_UNIT_DTYPE
from store_core.queue.units.consume_queue_unit import UNIT_DTYPE
from store_core.store.read.stored_topics import hint_of, stored_topics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    import numpy as np

    from store_core.files.segment_source import Segment
    from store_core.store.read.read_options import ReadOptions

__all__ = ["ListedQueue", "QueueKind", "TopicFilter", "has_queues", "list_queues", "missing_queues", "queue_files"]

_log: Final = logging.getLogger("store_core")

T = TypeVar("T")


class QueueKind(Enum):
    """The kinds of queues that are files; the value is the column ``kind``."""

    SIMPLE = "simple"
    BATCH = "batch"

    @property
    def directory(self) -> str:
        """Name of the directory of all queues of this kind, below the root."""
        return CONSUME_QUEUE if self is QueueKind.SIMPLE else BATCH_CONSUME_QUEUE

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The type of a unit, as stored."""
        return UNIT_DTYPE if self is QueueKind.SIMPLE else BATCH_UNIT_DTYPE


@dataclass(frozen=True, slots=True)
class ListedQueue:
    """A queue as its directory lists it.

    Attributes
    ----------
    topic : str
        Name of the directory.
    queue_id : int
    kind : QueueKind
    files : tuple of Segment
        In order; a start offset counts bytes of units.
    """

    topic: str
    queue_id: int
    kind: QueueKind
    files: tuple[Segment, ...]


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
    for kind in QueueKind:
        for topic in _topics(root / kind.directory, wanted):
            found = sorted(_queue_ids(root / kind.directory / topic))
            missing -= {topic} if found else set()
            for queue_id in found:
                if wanted.takes(topic, queue_id):
                    directory = root / kind.directory / topic / str(queue_id)
                    yield ListedQueue(topic, queue_id, kind, queue_files(directory))
    for topic in sorted(missing):
        _log.warning("topic %r has no queue below %s: %s", topic, root, hint_of(topic, stored_topics([root])))


def has_queues(root: Path) -> bool:
    """Return whether there is a directory for queues."""
    return any((root / kind.directory).is_dir() for kind in QueueKind)


def missing_queues(root: Path) -> StoreNotFoundError:
    """Return the error that a store has no queues at all."""
    places = " nor ".join(str(root / kind.directory) for kind in QueueKind)
    return StoreNotFoundError(
        f"no consume queues: expected directories TOPIC/NUMBER, found neither {places}. Give the root of a whole "
        f"store, or make queues from the log: commitlog-rebuild-consume-queue {root} --output DIRECTORY. With "
        f"fail_on_data_loss=false (failOnDataLoss in Spark) there are no rows"
    )


def queue_files(directory: Path) -> tuple[Segment, ...]:
    """Return the files of a queue, in order; empty files are left out, other names with a warning."""
    notes: list[str] = []
    try:
        found = tuple(file for file in segments_in(directory, notes) if file.size)
    except (FileNotFoundError, NotADirectoryError):
        return ()
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
