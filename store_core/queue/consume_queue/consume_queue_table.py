# SPDX-License-Identifier: Apache-2.0
"""The table of a store's consume queues: found on disk, or created for a topic and a queue id."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Final, TypeAlias

from store_core.errors import InvalidOptionError, SegmentLayoutError, UnsupportedStoreError
from store_core.files.file_system import names_in
from store_core.files.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from store_core.files.overlay_file_system import OverlayFileSystem
from store_core.files.segment_file import MAX_OPEN_QUEUES, OpenFiles
from store_core.files.store_kind import StoreUse, check_store_kind, queue_database
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue, QueueServices
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt
from store_core.queue.consume_queue.rocksdb_consume_queue import RocksdbConsumeQueue
from store_core.queue.queue_path import is_light, parse_queue_id, queue_path, refusal_of
from store_core.queue.rocksdb_queues import RocksdbQueues, light_queue_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


Queue: TypeAlias = ConsumeQueue | BatchConsumeQueue

MAX_QUEUES: Final = 1_000_000
"""How many queues a log may create; a real broker has some ten thousands at most."""

_NAMELESS: Final = ("", 0)


class ConsumeQueueTable:
    """All queues of a store by topic and id (RocketMQ: ``consumeQueueTable``).

    However many queues there are, few have their files open, see `OpenFiles`. So get a queue from here for each use,
    and do not keep it.

    * `root`: The store's root; queues lie below it in ``consumequeue``, ``batchconsumequeue`` and ``consumequeue_ext``.
    * `max_queues`: How many queues there may be.

    * `in_use`: The queues whose files are open; report the use of many queues there.
    """

    def __init__(self, root: Path, services: QueueServices, max_queues: int) -> None:
        rules = services.rules
        self.in_use = OpenFiles(MAX_OPEN_QUEUES // 2 if rules.is_ext_enabled else MAX_OPEN_QUEUES)
        self._root = root
        self._rules = rules
        self._file_system = services.file_system
        self._services = services
        self._max_queues = max_queues
        self._stored: RocksdbQueues | None = None
        self._has_files = True
        self._lock = RLock()
        self._queues: dict[tuple[str, int], Queue] = {}

    @property
    def is_in_rocksdb(self) -> bool:
        """Whether the queues are in a RocksDB, and not only light ones."""
        return not self._has_files

    def __len__(self) -> int:
        """Count the queues."""
        return len(self._queues)

    def __contains__(self, name: tuple[str, int]) -> bool:
        """Return whether there is a queue of this topic and id that has, or can have, a directory."""
        return name in self._queues and name != _NAMELESS

    def has_room(self, queues: int) -> bool:
        """Return whether this many may be added."""
        return len(self._queues) + queues <= self._max_queues

    def get(self, topic: str, queue_id: int) -> Queue | None:
        """Return a queue; None if there is none."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            self.in_use.use(queue.close)
        return queue

    def queues(self) -> Iterator[Queue]:
        """Yield all current queues, by topic and id."""
        for key in sorted(self._queues):
            queue = self.get(*key)
            if queue is not None:
                yield queue

    def snapshot(self) -> tuple[Queue, ...]:
        """Return all queues in no particular order, for uses that need none of their files."""
        return tuple(self._queues.values())

    def find_or_create(self, topic: str, queue_id: int) -> Queue:
        """Return a queue, creating it if needed; its directory is created with its first unit.

        It is a batch queue if the topic is one, see `QueueRules.batch_topics`.
        """
        queue = self.obtain(topic, queue_id)
        if isinstance(queue, str):
            raise InvalidOptionError(f"no queue {queue_id} of topic {topic[:255]!r}: {queue}")
        return queue

    def obtain(self, topic: str, queue_id: int) -> Queue | str:
        """Return a queue, or the reason why it can't exist."""
        queue = self.get(topic, queue_id)
        if queue is not None:
            return queue
        reason = refusal_of(topic, queue_id)
        if reason is not None:
            return reason
        with self._lock:
            if len(self._queues) >= self._max_queues:
                return f"there are {len(self._queues)} queues, and no more are made"
            queue = self._queues.setdefault((topic, queue_id), self._make(topic, queue_id))
        self.in_use.use(queue.close)
        return queue

    def obtain_nameless(self) -> ConsumeQueue:
        """Return queue 0 of the topic with an empty name, which is kept in memory.

        Release 4.3 writes it to ``consumequeue/0``, where the next start mistakes its file for an empty queue of a
        topic named 0. So there, too, it lasts only as long as the process.
        """
        with self._lock:
            queue = self._queues.get(_NAMELESS)
            if not isinstance(queue, ConsumeQueue):
                clock = self._services.clock
                memory = QueueServices(self._rules, OverlayFileSystem(self._file_system, clock), clock)
                queue = ConsumeQueue(*_NAMELESS, self._root / CONSUME_QUEUE / "0", memory)
                self._queues[_NAMELESS] = queue
        self.in_use.use(queue.close)
        return queue

    def _make(self, topic: str, queue_id: int) -> Queue:
        services = self._services
        directory = queue_path(self._root / CONSUME_QUEUE, topic, queue_id)
        if self._stored is not None and (is_light(topic) or not self._has_files):
            return RocksdbConsumeQueue(topic, queue_id, directory, services, self._stored)
        if topic in self._rules.batch_topics:
            directory = queue_path(self._root / BATCH_CONSUME_QUEUE, topic, queue_id)
            return BatchConsumeQueue(topic, queue_id, directory, services)
        ext = None
        if self._rules.is_ext_enabled:
            place = queue_path(self._root / CONSUME_QUEUE_EXT, topic, queue_id)
            ext = ConsumeQueueExt(place, self._rules, self._file_system)
        return ConsumeQueue(topic, queue_id, directory, services, ext)

    # ---- files

    def load(self) -> tuple[str, ...]:
        """Load the queues on disk: directories ``TOPIC/NUMBER``, including batch queues if the release has any.

        Returns: What was skipped.
        """
        use = StoreUse.READ_QUEUES if self._services.reads_rocksdb else StoreUse.OPEN_QUEUES
        notes = list(check_store_kind(self._root, self._file_system, use))
        database = queue_database(self._root, self._file_system)
        if database is not None:
            self._has_files = False
            return (*notes, *self._load_from(database))
        notes += self._load_below(CONSUME_QUEUE, is_batch=False)
        if self._rules.features.has_batch_queues:
            notes += self._load_below(BATCH_CONSUME_QUEUE, is_batch=True)
        database = light_queue_database(self._root, self._file_system) if self._rules.is_lmq_enabled else None
        return tuple(notes) if database is None else (*notes, *self._load_from(database))

    def _load_from(self, database: Path) -> Iterator[str]:
        """Load the queues in a RocksDB, and yield notes on what was skipped."""
        self._stored = RocksdbQueues.open(database)
        names = [name for name in self._stored.names if is_light(name[0]) or not self._has_files]
        if names and not self._services.reads_rocksdb:
            raise UnsupportedStoreError(
                f"{self._root} has its light queues in the RocksDB {database} (combineCQUseRocksdbForLmq), which is "
                f"read and never written: expected files of {names[0][0]} in {self._root / CONSUME_QUEUE}, found none. "
                f"Nothing was changed. The store can be read, also opened read-only; for a broker that goes back to "
                f"files, make them from the log: commitlog rebuild queues {self._root} --to files --replace"
            )
        for topic, queue_id in names:
            queue = self.obtain(topic, queue_id)
            if isinstance(queue, str):
                yield f"skipped queue {queue_id} of {topic[:255]!r} in {database}: {queue}"

    def close(self) -> None:
        """Close the files of all queues, and the database if they are in one."""
        for queue in self.snapshot():
            queue.close()
        if self._stored is not None:
            self._stored.close()

    def _load_below(self, kind: str, *, is_batch: bool) -> Iterator[str]:
        """Load the queues of one kind, and yield notes on what was skipped."""
        for topic in names_in(self._root / kind, self._file_system):
            directory = self._root / kind / topic
            numbers = {name: parse_queue_id(name) for name in names_in(directory, self._file_system)}
            for name in (name for name, number in numbers.items() if number is None):
                yield f"skipped {directory / name}: expected a number, the queue's id"
            queue_ids = sorted({number for number in numbers.values() if number is not None})
            if queue_ids:
                self._check_type(directory, topic, is_batch=is_batch)
            for queue_id in queue_ids:
                yield from self._load_queue(directory / str(queue_id), topic, queue_id)

    def _check_type(self, directory: Path, topic: str, *, is_batch: bool) -> None:
        if (topic in self._rules.batch_topics) == is_batch:
            return
        wanted, found = ("SimpleCQ", "BatchCQ") if is_batch else ("BatchCQ", "SimpleCQ")
        raise SegmentLayoutError(
            f"{directory}: expected queues of type {wanted}, as the topic's attribute queue.type says (SimpleCQ "
            f"without one), found {found}. RocketMQ refuses to load such a store: correct the attribute, or move the "
            f"directory elsewhere to have the queues rebuilt"
        )

    def _load_queue(self, directory: Path, topic: str, queue_id: int) -> tuple[str, ...]:
        queue = self.obtain(topic, queue_id)
        if isinstance(queue, str):
            return (f"skipped {directory}: {queue}",)
        status = self._file_system.status(directory)
        if status is not None and not status.is_directory:
            return (f"{directory} is a file: expected a directory, so the queue is empty",)
        return queue.load()

    def sync_topics(self) -> None:
        """Sync the topics' directories: after a killed process they may exist in memory only."""
        kinds = (self._root / kind for kind in (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE))
        for directory in (*kinds, self._root):
            status = self._file_system.status(directory)
            if status is not None and status.is_directory:
                self._file_system.sync_directory(directory)
