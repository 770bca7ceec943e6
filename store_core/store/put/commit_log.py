# SPDX-License-Identifier: Apache-2.0
"""The commit log: appending messages under the put lock, whose holder is its only writer, and flushing them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import SegmentLayoutError
from store_core.files.flush import (
    CommitRealTimeService,
    FlushDiskWatcher,
    FlushRealTimeService,
    GroupCommitRequest,
    GroupCommitService,
    Pace,
)
from store_core.files.mapped_file import MAX_OPEN_SEGMENTS, RECORD_SEAL
from store_core.files.mapped_file_queue import AllocateMappedFileService, MappedFileQueue
from store_core.format.columnar.encode_batch import EncodedBatch, complete_batch, encode_batch
from store_core.format.message import AppendMessageResult, AppendMessageStatus, Message, PutMessageStatus
from store_core.format.record.encode import EncodedRecords, Refusal, do_append, fill_segments, misfit, write_blank
from store_core.store.message_store_config import BrokerConfig, MessageStoreConfig
from store_core.store.put.put_preparation import (
    AppendBatchResult,
    LmqQueues,
    PutMessageResult,
    PutPreparation,
    QueueOffsets,
    ReplicaService,
    Replication,
    join_results,
    refused,
    settle,
    wait_for,
)
from store_core.store.store_state import RunningFlag, RunningFlags, StoreCheckpoint, StoreStats

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy.typing as npt
    import pyarrow as pa

    from store_core.files.file_system import FileSystem
    from store_core.files.machine import Clock
    from store_core.files.mapped_file import AppendCallback, MappedFile
    from store_core.files.segment_listing import SegmentPaths
    from store_core.store.put.put_preparation import Pending


_LOG: Final = logging.getLogger("store_core")


def append_records(
    queue: MappedFileQueue, batch: EncodedBatch, queue_offsets: npt.NDArray[np.int64], store_timestamp: int
) -> AppendBatchResult:
    """Append all records, in order; the caller holds the put lock, and no record is a `misfit`.

    Steps, for each file: 1. if it is not the first, close the previous file with a blank record; 2. create the file if
    it is new, then complete and append as many records as `fill_segments` says, in one write.

    * `queue_offsets`: int64, shape (n,).
    * `store_timestamp`: ms.
    """
    begin, done = queue.max_wrote_position, 0
    physical = np.empty(len(batch), np.int64)
    status = PutMessageStatus.PUT_OK
    for number, rows in enumerate(fill_segments(batch.starts, _room(queue), queue.file_size)):
        if number and not _close(queue, store_timestamp):
            status = PutMessageStatus.UNKNOWN_ERROR
            break
        if rows.start == rows.stop:
            continue
        offset, status = _append(queue, batch, rows, queue_offsets, store_timestamp)
        if status is not PutMessageStatus.PUT_OK:
            break
        physical[rows] = batch.starts[rows] - batch.starts[rows.start] + offset
        done = rows.stop
    end = queue.max_wrote_position
    return AppendBatchResult(status, done, begin, end, store_timestamp, physical[:done], queue_offsets[:done])


def _room(queue: MappedFileQueue) -> int:
    """Return the bytes left in the file that `_append` appends to."""
    last = queue.last_mapped_file
    return queue.file_size if last is None or last.is_full else last.file_size - last.wrote_position


def _append(
    queue: MappedFileQueue,
    batch: EncodedBatch,
    rows: slice,
    queue_offsets: npt.NDArray[np.int64],
    store_timestamp: int,
) -> tuple[int, PutMessageStatus]:
    """Append records to the last file, or a new one if that is full; return the offset at which they begin."""
    file = queue.get_last_mapped_file()
    if file is None:
        return 0, PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    offset = file.file_from_offset + file.wrote_position
    try:
        file.append(complete_batch(batch, rows, offset, queue_offsets, store_timestamp), seal=RECORD_SEAL)
    except OSError:
        return offset, PutMessageStatus.UNKNOWN_ERROR
    file.store_timestamp = store_timestamp
    return offset, PutMessageStatus.PUT_OK


def _close(queue: MappedFileQueue, store_timestamp: int) -> bool:
    """Close the last file with a blank record; return False if that can't be written."""
    file = queue.last_mapped_file
    if file is None:
        return False

    def blank(_: int, view: memoryview, room: int) -> AppendMessageResult:
        write_blank(view)
        return AppendMessageResult(AppendMessageStatus.END_OF_FILE, queue.max_wrote_position, room, "", store_timestamp)

    return file.append_with(blank).status is AppendMessageStatus.END_OF_FILE


_SLOW_MS: Final = 500


class LogAppender:
    """Appends prepared messages under the put lock.

    * `preparation`: Encodes what must be encoded under the lock.

    * `begin_time_in_lock`: Time at which the current append took the lock, ms; 0 if there is none.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        clock: Clock,
        preparation: PutPreparation,
        offsets: QueueOffsets,
        stats: StoreStats,
    ) -> None:
        self.begin_time_in_lock = 0
        self._queue = queue
        self._clock = clock
        self._preparation = preparation
        self._offsets = offsets
        self._stats = stats
        self._lock = Lock()

    def append(self, pending: Pending) -> PutMessageResult:
        """Append a message or a batch (steps 2 to 5 of `CommitLog.put`), and count it."""
        with self._lock:
            begin = self.begin_time_in_lock = self._clock.now_ms()
            try:
                result = self._append_locked(pending, begin)
            finally:
                self.begin_time_in_lock = 0
            elapsed = self._clock.now_ms() - begin
        appended = result.append_message_result
        if appended is None or result.status is not PutMessageStatus.PUT_OK:
            return result
        if elapsed > 0:
            appended = replace(appended, pagecache_rt=elapsed)
            result = replace(result, append_message_result=appended)
        if elapsed > _SLOW_MS:
            _LOG.warning("an append to %s held the lock for %d ms: %s", pending.message.topic, elapsed, appended)
        self._stats.add_put(pending.message.topic, appended.msg_num, appended.wrote_bytes)
        return result

    def _append_locked(self, pending: Pending, now: int) -> PutMessageResult:
        message = pending.message
        index = self._offsets.next_offset(message.topic, message.queue_id) if pending.is_queued else 0
        encoded = pending.encoded
        if encoded is None:
            made = self._preparation.encode_in_lock(pending, index)
            if isinstance(made, PutMessageResult):
                return made
            encoded = made
        result = self._append_to_file(encoded, pending, index, now)
        if result.is_ok:
            if pending.is_queued:
                self._offsets.advance(message.topic, message.queue_id, pending.message_num)
            if pending.is_light and pending.properties is not None:
                self._preparation.lmq_queues.advance(message, pending.properties)
        return result

    def _append_to_file(self, encoded: EncodedRecords, pending: Pending, index: int, now: int) -> PutMessageResult:
        """Append to the last file, or to the next if that has no room."""
        result: AppendMessageResult | None = None
        for _ in range(2):
            file = self._queue.get_last_mapped_file()
            if file is None:
                return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, result)
            result = file.append_with(self._append_callback(file, encoded, pending, index, now))
            if result.status is AppendMessageStatus.UNKNOWN_ERROR:
                return PutMessageResult(PutMessageStatus.UNKNOWN_ERROR, result)
            if result.status is not AppendMessageStatus.END_OF_FILE:
                break
        return PutMessageResult(PutMessageStatus.PUT_OK, result)

    def _append_callback(
        self, file: MappedFile, encoded: EncodedRecords, pending: Pending, index: int, now: int
    ) -> AppendCallback:
        def callback(file_from_offset: int, view: memoryview, _room: int) -> AppendMessageResult:
            return do_append(
                encoded,
                view,
                file_from_offset + file.wrote_position,
                queue_offset=index,
                store_timestamp=now,
                append_property_crc=self._preparation.rules.append_property_crc,
                is_queued=pending.is_queued,
                message_num=pending.message_num,
            )

        return callback

    def append_batches(self, batches: Sequence[EncodedBatch]) -> AppendBatchResult:
        """Append batches with `append_records` until one fails, and count them."""
        results = []
        with self._lock:
            now = self.begin_time_in_lock = self._clock.now_ms()
            try:
                for batch in batches:
                    results.append(self._append_batch(batch, now))
                    if not results[-1].is_ok:
                        break
            finally:
                self.begin_time_in_lock = 0
        for batch, result in zip(batches, results, strict=False):
            self._count(batch, result.msg_num)
        return join_results(results)

    def _append_batch(self, batch: EncodedBatch, now: int) -> AppendBatchResult:
        indexes = batch.queue_offsets(self._offsets.next_offsets(batch.queues))
        result = append_records(self._queue, batch, indexes, now)
        taken = batch.queue_index[: result.msg_num][batch.is_queued[: result.msg_num]]
        counts = np.bincount(taken, minlength=len(batch.queues)).astype(np.int64)
        self._offsets.advance_all(batch.queues, counts)
        return result

    def adopt(self, before: int, end_offset: int, store_timestamp: int, offsets: QueueOffsets) -> None:
        """Extend the log over records that another writer has written and flushed to its segments.

        * `before`: Physical offset at which the log ended before they were written.
        * `end_offset`: Where the last of them ends; the segments up to there are opened or created.
        * `store_timestamp`: Store time of the last of them, ms.
        * `offsets`: The next index of every queue after them.
        """
        with self._lock:
            found = self._queue.max_wrote_position
            if found != before or end_offset < found:  # records that were put meanwhile would be lost
                raise SegmentLayoutError(
                    f"the log in {self._queue.paths.paths[0]} can't be extended to {end_offset}: expected its end at "
                    f"{before}, found {found}. Nobody else may put messages meanwhile; close the store and open it "
                    f"again"
                )
            self._offsets.replace(offsets.as_mapping(), offsets.lmq_queues())
            last = self._queue.last_mapped_file
            while last is None or end_offset > last.end_offset:
                if last is not None:
                    last.set_position(last.file_size)
                last = self._queue.get_last_mapped_file()
                if last is None:
                    raise self._queue.create_error or OSError(f"the segment of {end_offset} can't be opened")
            last.set_position(end_offset - last.file_from_offset)
            last.store_timestamp = store_timestamp
            self._queue.flushed_where = self._queue.committed_where = end_offset

    def _count(self, batch: EncodedBatch, messages: int) -> None:
        sizes = np.diff(batch.starts)[:messages]
        index = batch.queue_index[:messages]
        counts = np.bincount(index, minlength=len(batch.queues)).tolist()
        totals = np.bincount(index, sizes, minlength=len(batch.queues)).tolist()
        for (topic, _), count, total in zip(batch.queues, counts, totals, strict=True):
            if count:
                self._stats.add_put(topic, count, int(total))


_MS: Final = 1000.0


class LogFlusher:
    """The flush services of a commit log (RocketMQ: ``CommitLog.DefaultFlushManager``).

    * `log`: Is told up to where it is on disk, of errors, and when it has moved, for who follows it.
    * `has_pool`: Whether appends go through a write buffer; only then is there anything to commit.
    """

    def __init__(self, log: CommitLog, clock: Clock) -> None:
        config, queue = log.config, log.mapped_file_queue
        self._clock, self._config, self._log = clock, config, log
        self.has_pool = uses_pool(config)
        self.group_commit: GroupCommitService | None = None
        self._watcher = FlushDiskWatcher(clock)
        if config.flush_disk_type == "SYNC_FLUSH":
            self.group_commit = GroupCommitService(
                queue, clock, config.release, log.note_flushed, log.note_error, log.note_moved
            )
            self.flush_service: GroupCommitService | FlushRealTimeService = self.group_commit
        else:
            self.flush_service = FlushRealTimeService(
                queue, clock, _flush_pace(config), log.note_flushed, log.note_error
            )
        self.commit_service = CommitRealTimeService(
            queue, clock, self._note_committed, _commit_pace(config), log.note_error
        )

    def _note_committed(self) -> None:
        self.flush_service.wakeup()
        self._log.note_moved()

    def start(self) -> None:
        """Start the services' threads."""
        self.flush_service.start()
        if self.group_commit is not None:
            self._watcher.start()
        if self.has_pool:
            self.commit_service.start()

    def shutdown(self) -> bool:
        """Commit and flush everything, and stop the threads; return False if one hangs."""
        ended = self.commit_service.shutdown() if self.has_pool else True
        ended = self.flush_service.shutdown() and ended
        return self._watcher.shutdown() and ended

    def handle_disk_flush(self, next_offset: int, *, waits: bool) -> Future[PutMessageStatus] | None:
        """Flush after an append as the flush type requires.

        * `waits`: Whether the producer waits until it is on disk (property WAIT).

        Returns: With synchronous flush, resolves to PUT_OK or FLUSH_DISK_TIMEOUT; None if there is nothing to wait for.
        """
        if self.group_commit is None:
            if self.has_pool:
                self._wake(self.commit_service, by_config=self._config.wake_commit_when_put_message)
            else:
                self._wake(self.flush_service, by_config=self._config.wake_flush_when_put_message)
            return None
        if not waits:
            self.group_commit.wakeup()
            return None
        deadline = self._clock.monotonic() + self._config.sync_flush_timeout / _MS
        request = GroupCommitRequest(next_offset, deadline)
        self._watcher.add(request)
        self.group_commit.put_request(request)
        return request.future

    def _wake(
        self, service: FlushRealTimeService | GroupCommitService | CommitRealTimeService, *, by_config: bool
    ) -> None:
        if by_config or not self._config.features.has_wake_flush_switches:
            service.wakeup()


def uses_pool(config: MessageStoreConfig) -> bool:
    """Return whether appends go through write buffers (``DefaultMessageStore.isTransientStorePoolEnable``).

    A slave never has them, nor does a 4.x store with synchronous flush.
    """
    takes_part = config.flush_disk_type == "ASYNC_FLUSH" or config.features.pools_buffers_with_sync_flush
    return config.transient_store_pool_enable and config.broker_role != "SLAVE" and takes_part


def _flush_pace(config: MessageStoreConfig) -> Pace:
    return Pace(
        config.flush_interval_commit_log / _MS,
        config.flush_commit_log_least_pages,
        config.flush_commit_log_thorough_interval / _MS,
        timed=config.flush_commit_log_timed,
    )


def _commit_pace(config: MessageStoreConfig) -> Pace:
    return Pace(
        config.commit_interval_commit_log / _MS,
        config.commit_commit_log_least_pages,
        config.commit_commit_log_thorough_interval / _MS,
    )


_BATCH_ROWS: Final = 1 << 15
"""Messages encoded at once: enough to amortise the fixed costs, few enough for the processor's caches."""

_UNKNOWN: Final = PutMessageStatus.UNKNOWN_ERROR
_WAIT_MARGIN: Final = 5.0
"""Seconds a put waits beyond the longer of its two timeouts."""


class CommitLog:
    """The commit log of a store (RocketMQ: ``CommitLog``).

    Appends are serialised by the put lock: log order, the order of indexes within a queue and the order of store times
    are all the order in which the lock was taken. A put returns when its record is in the page cache or write buffer,
    or with synchronous flush when it is on disk.

    A message that could not be stored or read back is refused with MESSAGE_ILLEGAL before anything is written: one
    larger than a file, or whose topic does not fit its length field. RocketMQ wastes two files on the former, and
    truncates its log at the latter when it restarts.

    * `checkpoint`: Is told up to which store time the log is on disk.
    * `is_batch_topic`: Returns whether a topic is a BatchCQ topic.

    * `on_moved`: Called after each append, commit and group flush, in the thread that made it, to wake whoever follows
      the log: `confirm_offset` may have moved. It must not block.
    """

    def __init__(  # noqa: PLR0913 -- the files, how they are written, and the services involved
        self,
        paths: SegmentPaths,
        config: MessageStoreConfig,
        file_system: FileSystem,
        clock: Clock,
        *,
        broker: BrokerConfig | None = None,
        allocate: AllocateMappedFileService | None = None,
        checkpoint: StoreCheckpoint | None = None,
        replicas: ReplicaService | None = None,
        is_batch_topic: Callable[[str], bool] = lambda _: False,
    ) -> None:
        broker = broker or BrokerConfig()
        size = config.mapped_file_size_commit_log
        self.config = config
        self._features = config.features
        self.mapped_file_queue = MappedFileQueue(paths, size, file_system, allocate, max_open=MAX_OPEN_SEGMENTS)
        self.queue_offsets = QueueOffsets()
        self.running_flags = RunningFlags()
        self.stats = StoreStats()
        self._store_host = broker.store_host
        self._clock = clock
        self._checkpoint = checkpoint
        lmq_queues = LmqQueues(config, self.queue_offsets)
        self.preparation = PutPreparation(config, broker.store_host, lmq_queues, is_batch_topic)
        self._appender = LogAppender(self.mapped_file_queue, clock, self.preparation, self.queue_offsets, self.stats)
        self._replication = Replication(config, broker, replicas or ReplicaService())
        self.on_moved: Callable[[], None] = lambda: None
        self.flusher = LogFlusher(self, clock)

    # ---- life

    def load(self) -> tuple[str, ...]:
        """Load the existing files; errors and notes are those of `MappedFileQueue.load`.

        As RocketMQ maps each of them, none may be one that can't be opened.
        """
        notes = self.mapped_file_queue.load(self.config.release)
        for file in self.mapped_file_queue.mapped_files:
            file.segment.check_opens()
        return notes

    def start(self) -> None:
        """Start the flush services."""
        self.flusher.start()

    def shutdown(self) -> bool:
        """Flush everything and stop the services; return False if one hangs."""
        return self.flusher.shutdown()

    def close(self) -> None:
        """Close the files."""
        self.mapped_file_queue.close()

    def note_flushed(self, store_timestamp: int) -> None:
        """Note that the log is on disk up to a store time, ms."""
        if self._checkpoint is not None:
            self._checkpoint.physic_msg_timestamp = store_timestamp

    def note_moved(self) -> None:
        """Wake whoever follows the log."""
        self.on_moved()

    def note_error(self, error: OSError) -> None:
        """Refuse further messages: what a failed ``fsync`` covered may be lost, and a later one would not report it.

        Whoever syncs the log, its directory included, calls it.
        """
        if self.refuse_puts():
            _LOG.error(
                "the commit log takes no more messages, as a flush failed and what it covered may be lost: %s. "
                "Make room, or mend the disk, then close the store and open it again, which recovers it",
                error,
            )

    def refuse_puts(self) -> bool:
        """Refuse messages until the store is reopened; return whether they were accepted before."""
        return self.running_flags.set(RunningFlag.NOT_WRITEABLE)

    # ---- positions

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest byte; -1 if there is no file.

        A first file that is to be deleted but that readers still hold does not count.
        """
        first = self.mapped_file_queue.first_mapped_file
        if first is None or first.is_available:
            return self.mapped_file_queue.min_offset
        return first.end_offset

    @property
    def max_offset(self) -> int:
        """Physical offset one past the last byte visible to readers."""
        return self.mapped_file_queue.max_offset

    @property
    def append_offset(self) -> int:
        """Physical offset one past the last byte appended, which may still be in a write buffer."""
        return self.mapped_file_queue.max_wrote_position

    @property
    def flushed_where(self) -> int:
        """Physical offset below which everything is on disk."""
        return self.mapped_file_queue.flushed_where

    @property
    def confirm_offset(self) -> int:
        """Offset up to which messages may be dispatched (``CommitLog.getConfirmOffset``).

        Normally the end of the log. In release 5.3 with synchronous flush, the end of what is on disk. With
        ``duplicationEnable``, the confirmed offset as noted; before 5.3 none is noted.
        """
        if self.config.duplication_enable:
            noted = self._checkpoint.confirm_physical_offset if self._checkpoint is not None else -1
            return noted if self._features.keeps_confirmed_offset else -1
        if self._features.dispatches_only_flushed_records and self.config.flush_disk_type == "SYNC_FLUSH":
            return self.flushed_where
        return self.max_offset

    @property
    def is_flushed(self) -> bool:
        """Whether everything is on disk."""
        return self.flushed_where >= self.append_offset

    @property
    def begin_time_in_lock(self) -> int:
        """Time at which the current append took the lock, ms; 0 if there is none."""
        return self._appender.begin_time_in_lock

    # ---- putting

    def put(self, message: Message) -> PutMessageResult | Future[PutMessageResult]:
        """Put a message; return a plain result, not a future, if there is nothing to `wait` for.

        Steps: 1. note the time, choose the version, compute the body's checksum, encode; 2. take the lock, and note the
        time again: this one is stored; 3. take the queue's next index; 4. append, in a new file if the last is full or
        has no room; 5. advance the index, and release the lock; 6. request flush and replication, at the same time. The
        future is done when both are.

        After a crash of the machine the log holds, in order, every message whose put ended with PUT_OK and synchronous
        flush, and possibly one torn record after them, which recovery cuts off. A put that is refused leaves no trace.
        """
        now = self._clock.now_ms()
        delayed = self.preparation.delayed(message)
        if isinstance(delayed, Refusal):
            return refused(delayed)
        waits, copies = self._copies(delayed)
        if copies is None:
            return PutMessageResult(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        pending = self.preparation.single(delayed, now)
        if isinstance(pending, Refusal):
            return refused(pending)
        return self._settled(self._appender.append(pending), copies, waits=waits)

    def put_batch(self, batch: Message) -> PutMessageResult | Future[PutMessageResult]:
        """Put the messages of a batch as separate records, all of them or none, and all in one file, as `put`.

        * `batch`: Its body holds the messages; see `store_core.format.record.decode.client_batch`.

        Returns: ``msg_id`` has one id per message, joined by commas.
        """
        now = self._clock.now_ms()
        pending = self.preparation.batch(batch, now)
        if isinstance(pending, Refusal):
            return refused(pending)
        waits, copies = self._copies(batch)
        if copies is None:
            return PutMessageResult(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        return self._settled(self._appender.append(pending), copies, waits=waits)

    def _copies(self, message: Message) -> tuple[bool, int | None]:
        """Return whether the producer waits, and for how many copies: 0 for none, None if there can't be enough."""
        waits = self.preparation.waits(message)
        if not self._replication.is_needed(waits=waits):
            return waits, 0
        return waits, self._replication.acknowledgements(self.append_offset)

    # ---- many messages

    def append_batch(
        self, messages: Sequence[EncodedBatch] | pa.RecordBatch | pa.Table, *, waits: bool = True
    ) -> AppendBatchResult:
        """Put many messages under one lock, into one or several files.

        The log is the same as if they had been put one by one, except that all have the same store time. Messages can
        be encoded beforehand with `encode_messages`, also in other threads or processes.

        * `messages`: Tables have the columns of `store_core.format.columnar.input_columns.INPUT_COLUMNS`.
        * `waits`: Whether to wait for synchronous flush and replicas, once for all of them.
        """
        batches = messages if isinstance(messages, Sequence) else self.encode_messages(messages)
        offset = self.append_offset
        if not batches:
            return AppendBatchResult.refused(PutMessageStatus.PUT_OK, offset)
        if any(misfit(batch.starts, self.config.mapped_file_size_commit_log) for batch in batches):
            return AppendBatchResult.refused(PutMessageStatus.MESSAGE_ILLEGAL, offset)
        copies = self._replication.acknowledgements(offset) if self._replication.is_needed(waits=waits) else 0
        if copies is None:
            return AppendBatchResult.refused(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, offset)
        result = self._appender.append_batches(batches)
        if result.status is not PutMessageStatus.PUT_OK or not result.msg_num:
            return result
        flush, replicas = self._ask(result.next_offset, copies, waits=waits)
        return wait_for(settle(result, flush, replicas), self.put_timeout, replace(result, status=_UNKNOWN))

    def adopt(self, before: int, end_offset: int, store_timestamp: int, offsets: QueueOffsets) -> None:
        """Extend the log over records that another writer has appended to its segments, see `LogAppender.adopt`."""
        self._appender.adopt(before, end_offset, store_timestamp, offsets)

    def encode_messages(
        self, messages: pa.RecordBatch | pa.Table, *, schedules: bool = False
    ) -> tuple[EncodedBatch, ...]:
        """Encode many messages for `append_batch` by this log's configuration, in batches of suitable size.

        * `schedules`: Whether to send delayed messages to the schedule topic. In 4.x the log always does, in 5.x the
          broker.
        """
        levels = len(self.config.delay_levels) if schedules or not self._features.schedules_by_hook else None
        now = self._clock.now_ms()
        return tuple(
            encode_batch(
                messages.slice(row, _BATCH_ROWS),
                self.preparation.rules,
                store_host=self._store_host,
                born_timestamp=now,
                max_delay_level=levels,
                first_row=row,
            )
            for row in range(0, max(messages.num_rows, 1), _BATCH_ROWS)
        )

    # ---- flush and replicas

    def _settled(
        self, result: PutMessageResult, copies: int, *, waits: bool
    ) -> PutMessageResult | Future[PutMessageResult]:
        appended = result.append_message_result
        if appended is None or result.status is not PutMessageStatus.PUT_OK:
            return result
        flush, replicas = self._ask(appended.wrote_offset + appended.wrote_bytes, copies, waits=waits)
        return settle(result, flush, replicas)

    def _ask(
        self, next_offset: int, copies: int, *, waits: bool
    ) -> tuple[Future[PutMessageStatus] | None, Future[PutMessageStatus] | None]:
        """Wake whoever follows the log, and request flush and replication up to an offset."""
        self.note_moved()
        flush = self.flusher.handle_disk_flush(next_offset, waits=waits)
        return flush, self._replication.handle_ha(next_offset, copies) if copies else None

    def wait(self, outcome: PutMessageResult | Future[PutMessageResult]) -> PutMessageResult:
        """Wait for the result of `put` or `put_batch`; UNKNOWN_ERROR after `put_timeout`."""
        if isinstance(outcome, PutMessageResult):
            return outcome
        return wait_for(outcome, self.put_timeout, PutMessageResult(_UNKNOWN))

    @property
    def put_timeout(self) -> float:
        """Seconds a put waits for flush and replicas, in case these exceed their own timeouts."""
        return max(self.config.sync_flush_timeout, self.config.slave_timeout) / 1000 + _WAIT_MARGIN
