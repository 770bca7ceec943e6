# SPDX-License-Identifier: Apache-2.0
"""All consume queues of a store: found, made, filled with records, recovered, truncated and flushed."""

from __future__ import annotations

import logging
from threading import RLock
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from store_core.errors import InvalidOptionError, SegmentLayoutError, UnsupportedStoreError
from store_core.files.file_system import names_in
from store_core.files.mapped_file import MAX_OPEN_QUEUES, OpenFiles
from store_core.files.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from store_core.files.overlay_file_system import OverlayFileSystem
from store_core.files.store_kind import StoreUse, check_store_kind, queue_database
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue, PutUnits, QueueServices
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt
from store_core.queue.consume_queue.rocksdb_consume_queue import RocksdbConsumeQueue
from store_core.queue.consume_queue_unit import UNIT_DTYPE
from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest, QueueNumbering
from store_core.queue.queue_assignment import (
    AssignedUnit,
    BatchAssignment,
    RefusedUnit,
    UnitBuffer,
    UnitRows,
    assign,
    assign_batch,
)
from store_core.queue.queue_path import is_light, parse_queue_id, queue_path, refusal_of
from store_core.queue.rocksdb_queues import RocksdbQueues, light_queue_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt


_LOG: Final = logging.getLogger("store_core")

Queue: TypeAlias = ConsumeQueue | BatchConsumeQueue

MAX_QUEUES: Final = 1_000_000
"""How many queues a log may create; a real broker has some ten thousands at most."""

_NAMELESS: Final = ("", 0)
_REFUSED_KEPT: Final = 1000
_MOST_GATHERED: Final = 1 << 17
"""Units gathered: with 64 queues a write is 40 KB for each, and the columns, 6 MiB, stay in a processor's cache."""

_FILES_RECOVERED: Final = 3
"""How many of a queue's last files recovery reads."""


class ConsumeQueueStore:
    """All queues of a store (RocketMQ 5.x: ``ConsumeQueueStore``; before: ``DefaultMessageStore.consumeQueueTable``).

    One thread puts; others look queues up and read them at the same time. However many queues there are, few have their
    files open: get a queue for each use, and do not keep it, see `store_core.files.mapped_file`.

    * `root`: The store's root; queues lie below it in ``consumequeue``, ``batchconsumequeue`` and ``consumequeue_ext``.
    * `on_put`: Called with store timestamp (ms) and physical offset of each record that was put; for a batch with those
      of the last one (RocketMQ: ``StoreCheckpoint.setLogicsMsgTimestamp``).
    * `max_queues`: How many queues there may be; units of further ones are refused.
    * `most_gathered`: Most units that `gather_batch` holds back.

    * `notes`: What `load`, `recover` and `truncate_dirty` skipped or dropped.
    * `refused`: The first 1,000 units that were not written.
    * `refused_count`: How many were not written in all.
    """

    def __init__(
        self,
        root: Path,
        services: QueueServices,
        on_put: Callable[[int, int], None],
        *,
        max_queues: int = MAX_QUEUES,
        most_gathered: int = _MOST_GATHERED,
    ) -> None:
        rules = services.rules
        self._in_use = OpenFiles(MAX_OPEN_QUEUES // 2 if rules.is_ext_enabled else MAX_OPEN_QUEUES)
        self._root = root
        self._rules = rules
        self._file_system = services.file_system
        self._services = services
        self._max_queues = max_queues
        self._stored: RocksdbQueues | None = None
        self._has_files = True
        self._lock = RLock()
        self._queues: dict[tuple[str, int], Queue] = {}
        self.notes: list[str] = []
        self.refused: list[RefusedUnit] = []
        self.stopped_at: RefusedUnit | None = None
        self.refused_count = 0
        self._on_put = on_put
        self._gathered = UnitBuffer(most_gathered)
        self._gathered_queues = QueueNumbering()
        self._new_queues = 0

    # ---- queues

    @property
    def is_in_rocksdb(self) -> bool:
        """Whether the queues are in a RocksDB, and not only light ones."""
        return not self._has_files

    def __len__(self) -> int:
        """Count the queues."""
        return len(self._queues)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a queue of this topic and id that has, or can have, a directory."""
        return name in self._queues and name != _NAMELESS

    def has_room(self, queues: int) -> bool:
        """Return whether this many may be added."""
        return len(self._queues) + queues <= self._max_queues

    def get(self, topic: str, queue_id: int) -> Queue | None:
        """Return a queue; None if there is none."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            self._in_use.use(queue.close)
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
        self._in_use.use(queue.close)
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
        self._in_use.use(queue.close)
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

    # ---- opening

    def load(self) -> None:
        """Load the queues on disk, and keep in `notes` what was skipped, unless that fails."""
        self.notes += self._loaded()

    def _loaded(self) -> tuple[str, ...]:
        """Load directories ``TOPIC/NUMBER``, including batch queues if the release has any; return what was skipped."""
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

    def recover(self) -> int:
        """Find the end of every queue.

        Returns: How far the queues cover the log: the largest `max_physical_offset`, -1 without units. For a simple
        queue it is the end of its last record, in release 4.3 the start; for a batch queue always the start.
        """
        for queue in self.queues():
            self.notes += queue.recover()
        return self.max_physical_offset

    @property
    def max_physical_offset(self) -> int:
        """The largest `max_physical_offset` of the queues; -1 if there are none (``getMaxPhyOffsetInConsumeQueue``)."""
        return max((queue.max_physical_offset for queue in self.snapshot()), default=-1)

    def queue_offsets(self) -> dict[tuple[str, int], int]:
        """Return the next index of every queue by topic and id (``recoverOffsetTable``)."""
        return {(queue.topic, queue.queue_id): queue.max_offset_in_queue for queue in self.snapshot()}

    def light_queue_offsets(self) -> dict[str, int]:
        """Return the next index of every light queue by name; their queue id is 0."""
        return {
            topic: offset
            for (topic, queue_id), offset in self.queue_offsets().items()
            if is_light(topic) and not queue_id
        }

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Move every queue's first index to the first record still in the log, which starts at an offset."""
        for queue in self.queues():
            queue.correct_min_offset(min_physical_offset)

    # ---- putting

    def put(self, request: DispatchRequest) -> None:
        """Put a record into the queues that `store_core.queue.queue_assignment.assign` selects.

        Refused units are noted in `refused`, including those whose queue can't be created because there are as many as
        allowed, and those whose queue has reached the end of its last possible file. The record's others are put.
        """
        self.put_gathered()
        assigned = assign(request, self._rules)
        if assigned.units:
            queue = self._obtain(assigned.units[0], request)
            if queue is not None:
                if not queue.put_message_position_info_wrapper(request):
                    return
                self._on_put(request.store_timestamp, request.physical_offset)
        for refused in assigned.refused:
            self._refuse(refused)
        for unit in assigned.units[1:]:
            queue = self._obtain(unit, request)
            if isinstance(queue, ConsumeQueue):
                stored = np.array([(request.physical_offset, request.message_size, request.tags_code)], UNIT_DTYPE)
                queue.put(PutUnits(stored, np.array([unit.queue_offset]), self._rules.features), 0, 1)

    def _obtain(self, unit: AssignedUnit, request: DispatchRequest) -> Queue | None:
        """Return the queue of a unit; None, after noting the refusal, if the queue can't be created or is full."""
        queue = self.obtain(unit.topic, unit.queue_id)
        reason = queue if isinstance(queue, str) else _full(queue)
        if isinstance(queue, str) or reason is not None:
            self._refuse(RefusedUnit(unit.topic, unit.queue_id, request.physical_offset, str(reason)))
            return None
        return queue

    def put_nameless(self, request: DispatchRequest) -> None:
        """Put what release 4.3 reads from a record of the wrong size into a queue that is kept in memory."""
        self.put_gathered()
        if self.obtain_nameless().put_message_position_info_wrapper(request):
            self._on_put(request.store_timestamp, request.physical_offset)

    def _refuse(self, unit: RefusedUnit) -> None:
        self.refused_count += 1
        if unit.stops_broker and self.stopped_at is None:
            self.stopped_at = unit
        if len(self.refused) < _REFUSED_KEPT:
            self.refused.append(unit)
            _LOG.warning("the record at %d is not indexed: %s", unit.physical_offset, unit.reason)

    def put_batch(self, batch: DispatchBatch) -> None:
        """Put many records, as `put` one by one; their units are gathered by queue, and written together.

        If they need more queues than allowed, they are put one by one. A batch has no filter bit maps: records for
        which a broker computes these are for `put`.
        """
        self.put_gathered()
        assigned = assign_batch(batch, self._rules, self)
        if self.has_room(len(self._new_among(assigned))):
            for unit in assigned.refused:
                self._refuse(unit)
            self._put_ordered(UnitRows.of(batch, assigned).ordered(), assigned.queues)
        else:
            for request in batch.requests():
                self.put(request)

    def _new_among(self, assigned: BatchAssignment) -> list[tuple[str, int]]:
        """Return the queues with units that do not exist yet."""
        return [queue for queue in map(assigned.queues.__getitem__, assigned.used_codes) if queue not in self]

    def gather_batch(self, batch: DispatchBatch) -> None:
        """Put many records as `put_batch`, but later, together with further batches: by `put_gathered` at the latest.

        Until then no queue may be read. It saves most if a batch has only a few records for each of many queues.
        """
        assigned = assign_batch(batch, self._rules, self)
        if not self._gather(batch, assigned):
            self.put_gathered()
            if not self._gather(batch, assigned):
                self.put_batch(batch)

    def _gather(self, batch: DispatchBatch, assigned: BatchAssignment) -> bool:
        """Gather the units of a batch; False, and none are gathered, if there is no room for them or their queues."""
        numbers = self._gathered_queues
        new = [queue for queue in self._new_among(assigned) if queue not in numbers]
        has_queues = self.has_room(self._new_queues + len(new))
        if not has_queues or len(assigned.codes) + len(assigned.light) > self._gathered.room:
            return False
        self._new_queues += len(new)
        for unit in assigned.refused:
            self._refuse(unit)
        codes = np.zeros(len(assigned.queues), np.int64)
        for code in assigned.used_codes:
            codes[code] = numbers.number(assigned.queues[code])
        units = UnitRows.of(batch, assigned)
        self._gathered.add(units._replace(code=codes.take(units.code)))
        return True

    def put_gathered(self) -> None:
        """Put the gathered units."""
        if len(self._gathered):
            queues = self._gathered_queues.queues
            self._gathered_queues, self._new_queues = QueueNumbering(), 0
            self._put_ordered(self._gathered.take(), queues)

    def _put_ordered(self, units: UnitRows, queues: Sequence[tuple[str, int]]) -> None:
        """Put units ordered by queue; their codes are positions in `queues`."""
        is_put = ~units.is_light
        stored = self._to_put(units, units.tags_code)
        for code, start, stop in units.bounds():
            queue = self.find_or_create(*queues[code])
            room = stored.largest_index, stop - start
            if isinstance(queue, ConsumeQueue) and queue.ext is None and queue.surely_has_room(*room):
                is_put[start:stop] &= queue.put(stored, start, stop)
            else:
                is_put[start:stop] &= self._put_units(queue, units.slice(start, stop))
        if is_put.any():
            last = np.where(is_put, units.row, -1).argmax()
            self._on_put(int(units.store_timestamp[last]), int(units.physical_offset[last]))

    def _to_put(self, units: UnitRows, tags_code: npt.NDArray[np.int64]) -> PutUnits:
        return PutUnits.of(units.physical_offset, units.size, tags_code, units.queue_offset, self._rules.features)

    def _put_units(self, queue: Queue, units: UnitRows) -> npt.NDArray[np.bool_] | bool:
        """Put units of a queue; return which of them are in it, or whether all are."""
        if isinstance(queue, BatchConsumeQueue):
            return queue.put_units(units.batch_units())
        if not queue.surely_has_room(int(units.queue_offset.max(initial=0)), len(units.row)):
            return self._put_units_singly(queue, units)
        return self._put_into_simple(queue, units)

    def _put_units_singly(self, queue: ConsumeQueue, units: UnitRows) -> npt.NDArray[np.bool_]:
        """Put units that may fill the queue's last possible file."""
        is_put = np.zeros(len(units.row), np.bool_)
        for place in range(len(is_put)):
            if (reason := _full(queue)) is None:
                is_put[place] = self._put_into_simple(queue, units.slice(place, place + 1))
            else:
                self._refuse(RefusedUnit(queue.topic, queue.queue_id, int(units.physical_offset[place]), reason))
        return is_put

    def _put_into_simple(self, queue: ConsumeQueue, units: UnitRows) -> bool:
        tags_code = units.tags_code
        if queue.ext is not None and self._services.can_write():
            tags_code = queue.ext.put_rows(units)
        return queue.put(self._to_put(units, tags_code), 0, len(units.row))

    # ---- truncating and closing

    def truncate_dirty(self, physical_offset: int) -> tuple[str, ...]:
        """Drop the units of all queues that point at or after the log's new end.

        For when a release does this see `store_core.store.recovery.store_recovery`.

        Returns: What was dropped.
        """
        notes: list[str] = []
        for queue in self.queues():
            notes += queue.truncate_dirty_logic_files(physical_offset)
        self.notes += notes
        return tuple(notes)

    def clear_tails(self) -> None:
        """Zero the bytes after the queues' ends; the last step of a recovery, see `ConsumeQueue.clear_tail`."""
        for queue in self.queues():
            queue.clear_tail()

    def force(self) -> None:
        """Sync what a recovery found or changed in the last files of all queues, see `MappedFileQueue.force`."""
        for queue in self.queues():
            files = queue.mapped_file_queue
            files.force(files.max_offset - _FILES_RECOVERED * files.file_size)
            if isinstance(queue, ConsumeQueue) and queue.ext is not None:
                queue.ext.mapped_file_queue.force(0)
        # After a killed process the topics' directories may exist in memory only.
        kinds = (self._root / kind for kind in (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE))
        for directory in (*kinds, self._root):
            status = self._file_system.status(directory)
            if status is not None and status.is_directory:
                self._file_system.sync_directory(directory)

    def destroy_all(self) -> None:
        """Delete the files of all queues, as when the log is gone; the queues remain, empty."""
        for queue in self.queues():
            queue.destroy()

    def flush(self, least_pages: int = 0) -> bool:
        """Flush all queues to disk; True if **nothing changed**, as in Java."""
        unchanged, first_error = True, None
        for queue in self.queues():
            try:
                unchanged = _flush(queue, least_pages) and unchanged
            except OSError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return unchanged

    def close(self) -> None:
        """Close the files of all queues, and the database if they are in one."""
        for queue in self.snapshot():
            queue.close()
        if self._stored is not None:
            self._stored.close()


def _flush(queue: Queue, least_pages: int) -> bool:
    """Flush a queue; without a page rule all that is there now, where one flush crosses at most one file's border.

    RocketMQ flushes once, and up to three times when it closes: what a queue has in more new files is lost then if the
    power fails, although the store counts as closed (``DefaultMessageStore.FlushConsumeQueueService.doFlush``).
    """
    unchanged = queue.flush(least_pages)
    if least_pages == 0 and not unchanged:
        for _ in queue.mapped_file_queue.mapped_files:
            if queue.flush(0):
                break
    return unchanged


def _full(queue: Queue) -> str | None:
    """Return why a queue accepts no unit at all; None if it does."""
    return queue.full_refusal() if isinstance(queue, ConsumeQueue) else None
