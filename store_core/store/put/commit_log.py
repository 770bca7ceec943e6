# SPDX-License-Identifier: Apache-2.0
"""The log of all messages, and how one gets into it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.format.append_result import PutMessageStatus
from store_core.format.columnar.encode_batch import encode_batch
from store_core.format.record.encode import Refusal
from store_core.store.config.broker_config import BrokerConfig
from store_core.store.put.bulk_append import AppendBatchResult, fits
from store_core.store.put.lmq_queues import LmqQueues
from store_core.store.put.log_appender import LogAppender
from store_core.store.put.log_flusher import LogFlusher
from store_core.store.put.put_outcome import settle, wait_for
from store_core.store.put.put_preparation import PutPreparation, refused
from store_core.store.put.put_result import PutMessageResult
from store_core.store.put.queue_offsets import QueueOffsets
from store_core.store.put.replication import NoReplicas, Replication
from store_core.store.state.running_flags import RunningFlag, RunningFlags
from store_core.store.state.store_stats import StoreStats

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    import pyarrow as pa

    from store_core.files.allocate import AllocateMappedFileService
    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.files.segment_paths import SegmentPaths
    from store_core.format.columnar.encoded_batch import EncodedBatch
    from store_core.format.message import Message
    from store_core.store.config.message_store_config import MessageStoreConfig
    from store_core.store.put.replication import ReplicaService
    from store_core.store.state.store_checkpoint import StoreCheckpoint

__all__ = ["CommitLog"]

_LOG: Final = logging.getLogger("store_core")
_BATCH_ROWS: Final = 1 << 15
"""Messages encoded at once: enough to forget the fixed costs, few enough for the processor's caches."""

_UNKNOWN: Final = PutMessageStatus.UNKNOWN_ERROR
_WAIT_MARGIN: Final = 5.0
"""Seconds that a put waits beyond the longer of its two time-outs."""


class CommitLog:
    """The commit log of a store (RocketMQ: ``CommitLog``).

    Appends are serialised by the put lock: the order of the log, of indexes within a queue and of store times is the
    order in which the lock was taken. What a producer is told comes after: a put returns when its record is in the page
    cache or write buffer, or with synchronous flush when it is on disk.

    A message that could never be stored, or not be read again, is refused with MESSAGE_ILLEGAL before anything is
    written: one larger than a file, or whose topic does not fit its length field. RocketMQ burns two files on the one,
    and ends its log at the other when it restarts.

    Parameters
    ----------
    paths : SegmentPaths
    config : MessageStoreConfig
    file_system : FileSystem
    clock : Clock
    broker : BrokerConfig, optional
    allocate : AllocateMappedFileService, optional
        Makes files ahead.
    checkpoint : StoreCheckpoint, optional
        Learns up to which store time the log is on disk.
    replicas : ReplicaService, optional
    is_batch_topic : callable, optional
        Whether a topic is a BatchCQ topic.
    writable : bool

    Attributes
    ----------
    mapped_file_queue : MappedFileQueue
    queue_offsets : QueueOffsets
    running_flags : RunningFlags
    stats : StoreStats
    preparation : PutPreparation
        What is done to messages before they are appended.
    flusher : LogFlusher
        The flush services.
    on_moved : callable
        Called after each append, commit and group flush, in the thread that made it: `confirm_offset` may have moved,
        so whoever follows the log is woken. It must not block.
    """

    def __init__(  # noqa: PLR0913 -- the files, how they are written, and the services around
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
        writable: bool = True,
    ) -> None:
        broker = broker or BrokerConfig()
        size = config.mapped_file_size_commit_log
        self.config = config
        self._features = config.features
        self.mapped_file_queue = MappedFileQueue(paths, size, file_system, clock, allocate, writable=writable)
        self.queue_offsets = QueueOffsets()
        self.running_flags = RunningFlags()
        self.stats = StoreStats()
        self._store_host = broker.store_host
        self._clock = clock
        self._checkpoint = checkpoint
        lmq_queues = LmqQueues(config, self.queue_offsets)
        self.preparation = PutPreparation(config, broker.store_host, lmq_queues, is_batch_topic)
        self._appender = LogAppender(
            self.mapped_file_queue,
            clock,
            self.preparation,
            self.queue_offsets,
            lmq_queues,
            self.stats,
            is_reentrant=config.use_reentrant_lock_when_put_message,
        )
        self._replication = Replication(config, broker, replicas or NoReplicas())
        self.on_moved: Callable[[], None] = _nobody_follows
        self.flusher = LogFlusher(
            config, self.mapped_file_queue, clock, self._note_flushed, self._note_error, self._note_moved
        )

    # ---- life

    def load(self) -> tuple[str, ...]:
        """Take in the files that are there; errors and notes are those of `MappedFileQueue.load`."""
        return self.mapped_file_queue.load(self.config.release)

    def start(self) -> None:
        """Start the flush services."""
        self.flusher.start()

    def shutdown(self) -> bool:
        """Flush everything and end the services; False if one hangs."""
        return self.flusher.shutdown()

    def close(self) -> None:
        """Let go of the files."""
        self.mapped_file_queue.close()

    def _note_flushed(self, store_timestamp: int) -> None:
        if self._checkpoint is not None:
            self._checkpoint.physic_msg_timestamp = store_timestamp

    def _note_moved(self) -> None:
        self.on_moved()

    def _note_error(self, error: OSError) -> None:
        """Take no more messages: what a failed ``fsync`` covered may be lost, and a later one would not report it."""
        if self.refuse_puts():
            _LOG.error("the commit log takes no more messages: %s", error)

    def refuse_puts(self) -> bool:
        """Take no more messages until the store is opened again; return whether it took them before."""
        return self.running_flags.set(RunningFlag.NOT_WRITEABLE)

    # ---- positions

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest byte; -1 without a file.

        A first file that is to be deleted, and that readers hold still, does not count any more.
        """
        first = self.mapped_file_queue.first_mapped_file
        if first is None or first.is_available:
            return self.mapped_file_queue.min_offset
        return self.roll_next_file(first.file_from_offset)

    @property
    def max_offset(self) -> int:
        """Physical offset after the last byte that readers see."""
        return self.mapped_file_queue.max_offset

    @property
    def append_offset(self) -> int:
        """Physical offset after the last byte that was appended, which may still be in a write buffer."""
        return self.mapped_file_queue.max_wrote_position

    @property
    def flushed_where(self) -> int:
        """Physical offset below which everything is on disk."""
        return self.mapped_file_queue.flushed_where

    @property
    def confirm_offset(self) -> int:
        """Offset up to which messages may be dispatched (``CommitLog.getConfirmOffset``).

        That is the end of the log. In release 5.3 with synchronous flush, what is on disk; with ``duplicationEnable``
        what is noted as confirmed, and before 5.3 nothing is.
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

    def roll_next_file(self, offset: int) -> int:
        """Return the start of the file after the one that holds `offset`."""
        size = self.config.mapped_file_size_commit_log
        return offset + size - offset % size

    @property
    def begin_time_in_lock(self) -> int:
        """Clock when the append under way took the lock, ms; 0 without one."""
        return self._appender.begin_time_in_lock

    # ---- putting

    def put_message(self, message: Message) -> PutMessageResult:
        """Put a message, and wait until it is as safe as the configuration asks.

        Steps: 1. note the time, choose the version, work out the body's checksum, encode; 2. take the lock, and note
        the time again: this one is stored; 3. take the queue's next index; 4. append, in a new file if the last is full
        or has no room; 5. move the index on, and let go of the lock; 6. ask for flush and replication, at the same
        time; 7. wait for both.

        After a crash of the machine the log holds, in order, every message whose put returned PUT_OK with synchronous
        flush, and possibly one torn record after them, which recovery cuts off. A put that is refused leaves no trace.
        """
        return self.wait(self.put(message))

    def put_messages(self, batch: Message) -> PutMessageResult:
        """Put the messages of a batch as records of their own, all of them or none, and never over a file's end.

        Parameters
        ----------
        batch : Message
            Its body holds the messages; see `store_core.format.record.client_batch.client_batch`.

        Returns
        -------
        PutMessageResult
            ``msg_id`` has an id for each message, joined by commas.
        """
        return self.wait(self.put_batch(batch))

    def put(self, message: Message) -> PutMessageResult | Future[PutMessageResult]:
        """Do steps 1 to 6 of `put_message`; a result that needs no waiting comes without a future."""
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
        """Do the same for a batch."""
        now = self._clock.now_ms()
        pending = self.preparation.batch(batch, now)
        if isinstance(pending, Refusal):
            return refused(pending)
        waits, copies = self._copies(batch)
        if copies is None:
            return PutMessageResult(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        return self._settled(self._appender.append(pending), copies, waits=waits)

    def _copies(self, message: Message) -> tuple[bool, int | None]:
        """Return whether the producer waits, and for how many copies: 0 for none, None if they can't be had."""
        waits = self.preparation.waits(message)
        if not self._replication.is_needed(waits=waits):
            return waits, 0
        return waits, self._replication.acknowledgements(self.append_offset)

    # ---- many messages

    def append_batch(
        self, messages: Sequence[EncodedBatch] | pa.RecordBatch | pa.Table, *, waits: bool = True
    ) -> AppendBatchResult:
        """Put many messages under one lock, over as many files as they need.

        The log is the same as if they had been put one by one, but that all have one store time. Encode beforehand with
        `encode_messages`, in other threads or processes if that pays.

        Parameters
        ----------
        messages : pyarrow.RecordBatch or Table, or sequence of EncodedBatch
            Tables have the columns of `store_core.format.columnar.input_columns.INPUT_COLUMNS`.
        waits : bool
            Wait for a synchronous flush, and for replicas, of all of them together.

        Raises
        ------
        InvalidOptionError, UnsupportedStoreError
            As `store_core.format.columnar.encode_batch.encode_batch`; nothing is appended then.
        """
        batches = messages if isinstance(messages, Sequence) else self.encode_messages(messages)
        offset = self.append_offset
        if not batches:
            return AppendBatchResult.refused(PutMessageStatus.PUT_OK, offset)
        if not all(fits(batch, self.config.mapped_file_size_commit_log) for batch in batches):
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
        """Extend the log over records that something else has written to its segments, see `LogAppender.adopt`."""
        self._appender.adopt(before, end_offset, store_timestamp, offsets)

    def encode_messages(
        self, messages: pa.RecordBatch | pa.Table, *, schedules: bool = False
    ) -> tuple[EncodedBatch, ...]:
        """Encode many messages for `append_batch`, by this log's configuration, in batches of a good size.

        Parameters
        ----------
        messages : pyarrow.RecordBatch or Table
        schedules : bool
            Send delayed messages to the schedule topic. In 4.x the log always does, in 5.x the broker.
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
        """Wake who follows the log, and ask for flush and replication up to an offset."""
        self._note_moved()
        flush = self.flusher.handle_disk_flush(next_offset, waits=waits)
        return flush, self._replication.handle_ha(next_offset, copies) if copies else None

    def wait(self, outcome: PutMessageResult | Future[PutMessageResult]) -> PutMessageResult:
        """Wait for the result of `put` or `put_batch`; it is UNKNOWN_ERROR if that takes longer than `put_timeout`."""
        if isinstance(outcome, PutMessageResult):
            return outcome
        return wait_for(outcome, self.put_timeout, PutMessageResult(_UNKNOWN))

    @property
    def put_timeout(self) -> float:
        """How long a put waits for flush and replicas that do not keep their own time-outs; seconds."""
        return max(self.config.sync_flush_timeout, self.config.slave_timeout) / 1000 + _WAIT_MARGIN


def _nobody_follows() -> None:
    pass
