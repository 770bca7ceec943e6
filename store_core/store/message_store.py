# SPDX-License-Identifier: Apache-2.0
"""A message store that is opened to be written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.files.store_kind import StoreUse
from store_core.files.store_path import ConfiguredRoot
from store_core.queue.consume_queue.time_search import BoundaryType
from store_core.queue.dispatch.rocketmq_check import check_message_and_return_size
from store_core.store.checked_config import check_is_store, check_is_there, checked_config
from store_core.store.config.broker_config import BrokerConfig
from store_core.store.config.message_store_config import MessageStoreConfig
from store_core.store.dispatch.log_adoption import LogAdoption
from store_core.store.memory import keep_freed_memory
from store_core.store.put.put_result import as_future
from store_core.store.put.put_service import PutService, default_hooks
from store_core.store.query.store_reading import StoreQueues, StoreReading
from store_core.store.store_life import StoreLife, StoreSetup, dry_run

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.format.columnar.encode_batch import EncodedBatch
    from store_core.format.filter.message_selector import MessageFilter
    from store_core.format.message import Message, MessageExt
    from store_core.store.dispatch.reput import FilterBitMap
    from store_core.store.put.commit_log import CommitLog
    from store_core.store.put.put_result import AppendBatchResult, PutMessageResult, ReplicaService
    from store_core.store.query.get_message import GetMessageResult, QueryMessageResult
    from store_core.store.recovery.recovery_report import RecoveryReport
    from store_core.store.store_life import DerivedStructures

__all__ = ["DefaultMessageStore", "LogCut"]


class LogCut:
    """Truncates the log of an open store and what is derived from it."""

    def __init__(self, commit_log: CommitLog, derived: DerivedStructures) -> None:
        self._commit_log = commit_log
        self._derived = derived

    def truncate_dirty_files(self, offset: int) -> None:
        """Truncate log and queues at an offset while dispatching is paused, and dispatch from there on."""
        if offset < self._commit_log.max_offset:
            reput = self._derived.reput
            with reput.paused():
                self._derived.recovery.truncate(offset)
                reput.reput_from_offset = min(reput.reput_from_offset, offset)

    def truncate_files(self, offset: int) -> bool:
        """Truncate if a record begins at the offset; else return False."""
        if offset < self._commit_log.max_offset and not self._is_aligned(offset):
            return False
        self.truncate_dirty_files(offset)
        return True

    def _is_aligned(self, offset: int) -> bool:
        queue = self._commit_log.mapped_file_queue
        file = queue.find_mapped_file_by_offset(offset, return_first=offset == 0)
        view = file.select(0) if file is not None else None
        if view is None:
            return True
        position, rules = offset % queue.file_size, self._derived.rules
        return check_message_and_return_size(
            view, position, len(view), rules, check_crc=True, read_body=True
        ).is_success


class DefaultMessageStore:
    """A message store for reading and writing (RocketMQ: ``DefaultMessageStore``); made by `open`.

    Readers see everything put before: queue and index queries first dispatch whatever is still undispatched.

    Attributes
    ----------
    path : Path
    config : MessageStoreConfig
    is_read_only : bool
    commit_log : CommitLog
    checkpoint : StoreCheckpoint
    consume_queue_store : ConsumeQueueStore
    index_service : IndexService
    reput_message_service : ReputMessageService
        Follows the log and fills queues and index; its `listeners` are notified of new messages.
    put_message_hooks : list of PutMessageHook
        Called on each message before release 5.3 puts it; initially the broker's own.
    clean_services : CleanServices
        Delete old segments, and then the queue and index files that point to them.
    running_flags : RunningFlags
        Why the store can't currently be read or written.
    stats : StoreStats
        Operation counters.
    """

    def __init__(self, setup: StoreSetup) -> None:
        self.path, self.config, self.is_read_only = setup.path, setup.config, setup.is_read_only
        self._life = StoreLife(setup)
        services, condition, setup = self._life.services, self._life.condition, self._life.setup
        self.commit_log, self.checkpoint, self._derived = services.commit_log, services.checkpoint, services.derived
        self.consume_queue_store, self.index_service = self._derived.queues, self._derived.index
        self.reput_message_service, self.clean_services = self._derived.reput, services.clean
        self.running_flags, self.stats = self.commit_log.running_flags, self.commit_log.stats
        self.put_message_hooks = default_hooks(setup.config, condition) if setup.broker_hooks else []
        self._puts = PutService(self.commit_log, condition, self.put_message_hooks)
        self._queues = StoreQueues(setup, self._derived, self.commit_log.queue_offsets)
        self._reading = StoreReading(setup, services, self._queues)
        self._cut = LogCut(self.commit_log, self._derived)

    @classmethod
    def open(  # noqa: PLR0913 -- a path and a configuration suffice; the rest is for brokers and tests
        cls,
        path: str | os.PathLike[str],
        config: MessageStoreConfig | None = None,
        *,
        read_only: bool = False,
        broker: BrokerConfig | None = None,
        broker_hooks: bool = True,
        batch_topics: Collection[str] = (),
        replicas: ReplicaService | None = None,
        clock: Clock | None = None,
        file_system: FileSystem | None = None,
        cleans: bool = False,
        filter_bit_map: FilterBitMap | None = None,
        store_path_commit_log: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Open a store, or create one.

        Steps: 1. lock it; 2. check whether it was closed cleanly; 3. load log, queues, checkpoint and index, and make
        them consistent, see `store_core.store.recovery.store_recovery`; 4. start the services; 5. create an ``abort``
        file, which stays until the store is closed.

        Parameters
        ----------
        path : path-like
            The store's root.
        config : MessageStoreConfig, optional
            File sizes it does not specify are taken from the existing files.
        read_only : bool
            Take no lock, write nothing, start nothing. Recovery runs as for writing, but in memory; `changes` in the
            report lists what it would do. A store that a broker is writing may be opened this way: a snapshot is read.
        broker : BrokerConfig, optional
        broker_hooks : bool
            With release 5.3: check and rewrite messages as a broker's hooks do; if false, only inner batches are
            checked. In 4.x the store itself checks.
        batch_topics : collection of str
            Topics with the attribute ``queue.type=BatchCQ``.
        replicas, clock, file_system : ReplicaService, Clock, FileSystem, optional
        cleans : bool
            Delete expired files, and refuse messages when the disk is full, as a broker does by ``fileReservedTime``,
            ``deleteWhen`` and the disk ratios. By default nothing is deleted.
        filter_bit_map : FilterBitMap, optional
            Returns which SQL92 consumers a message is for, e.g. `ConsumerFilterManager.bit_map`. With the broker's
            ``enableCalcFilterBitMap`` it is called before a record is dispatched to its queue.
        store_path_commit_log : path-like, optional
            Which log is meant where the store has one and its configuration names another: the directory, or several
            separated by commas. Without it such a store is only read, with its own log, see
            `store_core.files.store_path`.

        Raises
        ------
        StoreLockedError
            If a broker, or another writer, holds the store, or the root above its log.
        StoreNotFoundError
            If there is nothing to read.
        InvalidOptionError
            If the path is not a store root, a configured size contradicts the files, or it is not certain which log
            is to be written.
        UnsupportedStoreError
            If it is a DLedger store, or its queues are in RocksDB and it is opened for writing, or the library that
            reads RocksDB is not installed.
        SegmentLayoutError
            If the log's files are not what the configuration and release expect.
        OSError
            If a system call fails.
        """
        keep_freed_memory()  # before there are threads
        root, file_system = Path(path), file_system or OsFileSystem()
        if read_only:
            check_is_store(root, config, file_system)
        use = StoreUse.READ_QUEUES if read_only else StoreUse.OPEN_QUEUES
        config = _configured(path, config, chooses=read_only)
        if store_path_commit_log is not None:
            config = (config or MessageStoreConfig()).with_log(store_path_commit_log)
        config = checked_config(root, config, file_system, use, writes=not read_only)
        setup = StoreSetup(
            root, config, read_only, broker or BrokerConfig(), broker_hooks, frozenset(batch_topics), replicas,
            clock or SystemClock(), file_system, cleans, filter_bit_map,
        )  # fmt: skip
        store = cls(setup)
        store._life.open()
        return store

    @classmethod
    def dry_run(
        cls,
        path: str | os.PathLike[str],
        config: MessageStoreConfig | None = None,
        *,
        batch_topics: Collection[str] = (),
        clock: Clock | None = None,
        file_system: FileSystem | None = None,
    ) -> RecoveryReport:
        """Report what opening for writing would do, without changing anything.

        This runs the code of `open` in memory; the report also has `changes`. If `open` would refuse the store, the
        report says why; but a path that is missing or not a store root raises, as with `open`.
        """
        root, file_system = Path(path), file_system or OsFileSystem()
        config = _configured(path, config, chooses=True)
        check_is_there(root, config, file_system)
        return dry_run(root, config, frozenset(batch_topics), clock or SystemClock(), file_system)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store: refuse further messages and flush everything.

        Steps: 1. refuse messages; 2. flush the log; 3. dispatch what is left, and flush queues and index; 4. delete
        preallocated files; 5. write the checkpoint; 6. delete ``abort``, if all that succeeded, everything is
        dispatched and the store was writeable; 7. release files and lock. Closing twice is harmless.
        """
        self._life.close()

    @property
    def recovery_report(self) -> RecoveryReport:
        """What opening found."""
        return self._life.recovery_report

    @property
    def is_shutdown(self) -> bool:
        """Whether it no longer accepts messages."""
        return self._life.condition.is_shutdown

    @property
    def is_writeable(self) -> bool:
        """Whether its running flags allow puts."""
        return self._life.condition.is_writeable

    @property
    def is_os_page_cache_busy(self) -> bool:
        """Whether the current append has held the lock longer than ``osPageCacheBusyTimeOutMills``."""
        return self._life.condition.is_os_page_cache_busy

    def now_ms(self) -> int:
        """Wall clock, ms."""
        return self._life.condition.now_ms()

    def is_batch_topic(self, topic: str) -> bool:
        """Whether a topic has the attribute ``queue.type=BatchCQ``."""
        return self._life.condition.is_batch_topic(topic)

    def put_message(self, message: Message) -> PutMessageResult:
        """Check a message, then put it as `CommitLog.put_message` does."""
        return self.commit_log.wait(self._puts.put(message))

    def async_put_message(self, message: Message) -> Future[PutMessageResult]:
        """Put a message; the future has the result of `put_message`."""
        return as_future(self._puts.put(message))

    def put_messages(self, messages: Sequence[Message] | Message) -> PutMessageResult:
        """Check a batch, then put it as `CommitLog.put_messages` does: all messages or none.

        Parameters
        ----------
        messages : sequence of Message, or Message
            Messages of one topic, or one whose body holds them as a client encodes them.

        Raises
        ------
        InvalidOptionError
            If the messages can't form one batch, see `client_batch`.
        """
        return self.commit_log.wait(self._puts.put_batch(messages))

    def async_put_messages(self, messages: Sequence[Message] | Message) -> Future[PutMessageResult]:
        """Put a batch; the future has the result of `put_messages`."""
        return as_future(self._puts.put_batch(messages))

    def encode_messages(self, messages: pa.RecordBatch | pa.Table) -> tuple[EncodedBatch, ...]:
        """Encode many messages for `append_batch`; delayed ones go to the schedule topic as with `put_message`."""
        return self._puts.encode_messages(messages)

    def append_batch(
        self, messages: Sequence[EncodedBatch] | pa.RecordBatch | pa.Table, *, waits: bool = True
    ) -> AppendBatchResult:
        """Check many messages, then append them as `CommitLog.append_batch` does.

        Hooks are not called, but the broker's own rules on topics and delays are applied.
        """
        return self._puts.append_batch(messages, waits=waits)

    def prepare_adoption(self) -> LogAdoption:
        """Prepare to adopt records that another writer appends after the log's end; `OSError` if a system call fails.

        No messages may be put until the records are adopted or abandoned.
        """
        derived, files = self._derived, self._life.setup.file_system
        return LogAdoption(self.commit_log, self.checkpoint, derived.reput, files, derived.complete_index)

    @property
    def max_physical_offset(self) -> int:
        """Physical offset one past the last byte visible to readers."""
        return self.commit_log.max_offset

    @property
    def min_physical_offset(self) -> int:
        """Physical offset of the oldest byte; -1 if there is no file."""
        return self.commit_log.min_offset

    def truncate_dirty_files(self, offset: int) -> None:
        """Truncate log and queues at an offset, and go on from there (``DefaultMessageStore.truncateDirtyFiles``, 5.x).

        A record must begin there; an offset after the end of the log changes nothing. No messages may be put meanwhile.
        The index is left as it is, as in RocketMQ: its entries for truncated messages find nothing, and new messages up
        to where it ended are not added to it.
        """
        self._cut.truncate_dirty_files(offset)

    def truncate_files(self, offset: int) -> bool:
        """Truncate like `truncate_dirty_files` if a record begins there; else return False (``truncateFiles``, 5.x)."""
        return self._cut.truncate_files(offset)

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log not yet dispatched to queues and index."""
        return self._derived.dispatch_behind_bytes

    def dispatch_now(self) -> None:
        """Dispatch all that may be dispatched to queues and index, and wait; a service also does so continuously.

        With synchronous flush and release 5.3 that is what has been flushed, with write buffers what is committed.
        """
        self._queues.dispatch_now()

    def get_max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """Return the index one past a queue's last readable message; 0 if there is none.

        With ``committed=False``, return the index the next message will get, which may be higher.
        """
        return self._queues.get_max_offset_in_queue(topic, queue_id, committed=committed)

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the index of the first message still in a queue.

        For an unknown queue, which RocketMQ creates on request: 0, or -1 for a batch topic.
        """
        return self._queues.get_min_offset_in_queue(topic, queue_id)

    def get_message_total_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the number of messages in a queue, by its bounds; 0 for an unknown queue, 1 if of a batch topic."""
        return self.get_max_offset_in_queue(topic, queue_id) - self.get_min_offset_in_queue(topic, queue_id)

    def get_message(  # noqa: PLR0913 -- RocketMQ's own arguments
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult | None:
        """Get messages of a queue starting at an offset; the get is counted in `stats`.

        Parameters
        ----------
        group, topic, queue_id : str, str, int
            The group has no effect.
        offset : int
            In the queue.
        max_msg_nums : int
            Upper bound; byte limits, and messages that are probably not in memory, may reduce it. The first message is
            always returned.
        message_filter : MessageFilter, optional
            E.g. a `MessageSelector`. Tags are matched by hash only, so the consumer has to compare the tags themselves.

        Returns
        -------
        GetMessageResult or None
            None if the store currently can't be read. An unknown queue counts as empty.

        Raises
        ------
        InvalidOptionError
            With release 4.9, as RocketMQ does, if `max_msg_nums` is negative and there is something to get.
        """
        del group
        return self._reading.get_message(topic, queue_id, offset, max_msg_nums, message_filter)

    def look_message_by_offset(self, physical_offset: int) -> MessageExt | None:
        """Return the message whose record begins at a physical offset; None if none does."""
        return self._reading.lookup.look_message_by_offset(physical_offset)

    def select_one_message_by_offset(self, physical_offset: int, size: int) -> memoryview | None:
        """Return a view of the record of `size` bytes at a physical offset; None if there is none of that size."""
        return self._reading.log.get_message(physical_offset, size)

    def look_message_by_id(self, msg_id: str) -> MessageExt | None:
        """Return the message with an offset message id of 32 or 56 hexadecimal digits; None if it is not there."""
        return self._reading.lookup.look_message_by_id(msg_id)

    def query_message(self, topic: str, key: str, max_num: int, begin: int, end: int) -> QueryMessageResult:
        """Find messages by key or unique key, through the index.

        Parameters
        ----------
        topic, key : str
        max_num : int
            How many of the newest to return at most; capped at ``maxMsgsNumBatch``.
        begin, end : int
            Store times in ms, both inclusive; the index has a resolution of one second.
        """
        return self._reading.dispatched.query_message(topic, key, max_num, begin, end)

    def get_offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """Return the queue offset of the message stored at a time in ms; 0 for a queue that does not exist.

        With release 5.3, `boundary` selects the first message not before the time, or the last one not after it.
        """
        return self._reading.dispatched.get_offset_in_queue_by_time(topic, queue_id, timestamp, boundary)

    def get_message_store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message in a queue, ms; -1 if it is not there."""
        return self._reading.dispatched.get_message_store_timestamp(topic, queue_id, queue_offset)

    def get_earliest_message_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the first message still in a queue, ms; -1 if there is none."""
        return self._reading.dispatched.get_earliest_message_time(topic, queue_id)

    def get_commit_log_offset_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the physical offset of a message in a queue; 0 if it is not there, as RocketMQ does."""
        return self._reading.dispatched.get_commit_log_offset_in_queue(topic, queue_id, queue_offset)


def _configured(
    path: str | os.PathLike[str], config: MessageStoreConfig | None, *, chooses: bool
) -> MessageStoreConfig | None:
    """Return the configuration of a store by a path that knows where its log is; who only reads has chosen that."""
    if not isinstance(path, ConfiguredRoot) or not path.log:
        return config
    config = config or MessageStoreConfig()
    log = ",".join(map(str, path.log))
    return config.with_log(log) if chooses else replace(config, store_path_commit_log=log)
