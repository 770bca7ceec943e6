# SPDX-License-Identifier: Apache-2.0
"""A message store that is opened to be written."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from store_core.errors import SegmentVanishedError, StoreError
from store_core.files.access import explained_access
from store_core.files.file_system import FileSystem, OsFileSystem
from store_core.files.machine import Clock, SystemClock, WaitlessClock, keep_freed_memory
from store_core.files.overlay_file_system import OverlayFileSystem
from store_core.files.store_kind import StoreUse
from store_core.files.store_lock import AbortFile, is_lock_held
from store_core.files.store_path import ConfiguredRoot
from store_core.queue.dispatch.rocketmq_check import Strictness, check_message_and_return_size
from store_core.store.get_message import StoreReading
from store_core.store.message_store_config import BrokerConfig, MessageStoreConfig
from store_core.store.put.put_preparation import AppendBatchResult, PutMessageResult, ReplicaService, as_future
from store_core.store.put.put_service import PutService, default_hooks
from store_core.store.recovery.log_recovery import RecoveryReport
from store_core.store.store_layout import check_is_store, check_is_there, checked_config, config_of, lock_of, log_paths
from store_core.store.store_life import LogAdoption, StoreServices, StoreSetup

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from store_core.format.columnar.encode_batch import EncodedBatch
    from store_core.format.message import Message
    from store_core.store.reput import FilterBitMap


_LOG: Final = logging.getLogger("store_core")
_BUSY_LIMIT_MS: Final = 10_000_000
"""A longer time is not an append but the time since 1970: no append is in progress."""


class DefaultMessageStore(StoreReading):
    """A message store for reading and writing (RocketMQ: ``DefaultMessageStore``); made by `open`.

    Readers see everything put before: queue and index queries first dispatch whatever is still undispatched.

    Attributes
    ----------
    path : Path
    config : MessageStoreConfig
    is_read_only : bool
    is_shutdown : bool
        Whether it no longer accepts messages, or never did.
    recovery_report : RecoveryReport
        What opening found.
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
        self.path = setup.path
        self._note = log_paths(setup.path, setup.config, setup.file_system).note
        self._overlay = OverlayFileSystem(setup.file_system, setup.clock) if setup.is_read_only else None
        if self._overlay is not None:
            # Queues try a failed write again for half a minute: what is in the way of a directory stays there.
            setup = replace(setup, file_system=self._overlay, clock=WaitlessClock(setup.clock))
        self._setup, services = setup, StoreServices(setup)
        self._lock = lock_of(setup.path, setup.config, setup.file_system)
        self._abort = AbortFile(setup.path, setup.file_system)
        super().__init__(setup, services)
        self.checkpoint, self.clean_services = services.checkpoint, services.clean
        self.consume_queue_store, self.index_service = services.queues, services.index
        self.reput_message_service = services.reput
        self.running_flags, self.stats = self.commit_log.running_flags, self.commit_log.stats
        self.is_shutdown, self.recovery_report = setup.is_read_only, services.recovery.report
        self.put_message_hooks = default_hooks(setup.config, self) if setup.broker_hooks else []
        self._puts = PutService(self.commit_log, self, self.put_message_hooks)

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
        cuts_messages: bool = True,
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
        cuts_messages : bool
            Cut off sound messages behind damage, as RocketMQ does when it recovers; if false, refuse such a store.
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
        RepairRefusedError
            If `cuts_messages` is false, and there are such messages.
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
        config = config_of(_configured(path, config, chooses=read_only), store_path_commit_log)
        if read_only:
            check_is_store(root, config, file_system)
        use = StoreUse.READ_QUEUES if read_only else StoreUse.OPEN_QUEUES
        config = checked_config(root, config, file_system, use, writes=not read_only)
        setup = StoreSetup(
            root, config, read_only, broker or BrokerConfig(), broker_hooks, frozenset(batch_topics), replicas,
            clock or SystemClock(), file_system, cleans, filter_bit_map, cuts_messages,
        )  # fmt: skip
        store = cls(setup)
        store._open()
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
        try:
            config = checked_config(root, config, file_system, writes=False)
        except StoreError as error:
            is_ok = _last_exit_ok(AbortFile(root, file_system))
            return RecoveryReport(release=config.release, last_exit_ok=is_ok, refusal=str(error))
        topics, clock = frozenset(batch_topics), clock or SystemClock()
        store = cls(
            StoreSetup(root, config, is_read_only=True, batch_topics=topics, clock=clock, file_system=file_system)
        )
        return store._try_out()

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
        if self.is_read_only:
            self._let_go()
            return
        if self.is_shutdown:
            return
        self.is_shutdown = True
        try:
            if self._services.shutdown() and self.is_writeable:
                self._abort.remove()
        finally:
            self._let_go()

    # ---- opening

    def _open(self) -> None:
        """Open the store, as `open` describes; release everything if that fails."""
        if self._note:
            _LOG.warning(self._note)
        if self.is_read_only:
            self._load()
            return
        with explained_access(self.path):
            self._lock.acquire()
        try:
            self._load()
            self._services.start()
            self._mark_open()
        except BaseException:
            self._let_go()
            raise

    def _mark_open(self) -> None:
        """Create ``abort``; if that fails, stop the services, which would go on without the store's lock."""
        try:
            self._abort.create(os.getpid(), self.config.release)
        except BaseException:
            with suppress(OSError):
                self._services.shutdown()
            raise

    def _try_out(self) -> RecoveryReport:
        """Load a read-only store, release it and report; if the store is refused, the report says why."""
        recovery = self._services.recovery
        recovery.is_live, recovery.is_prediction = is_lock_held(self.path), True
        try:
            self._load()
        except SegmentVanishedError:
            raise  # by what happened meanwhile, not by what a broker would find
        except StoreError as error:
            self._report(replace(recovery.refuse(error), last_exit_ok=_last_exit_ok(self._abort)))
        finally:
            self._let_go()
        return self.recovery_report

    def _load(self) -> None:
        with explained_access(self.path):
            self._report(self._services.recover(last_exit_ok=not self._abort.exists))

    def _report(self, report: RecoveryReport) -> None:
        """Keep a report, with what only the store knows."""
        if self._overlay is not None:
            with explained_access(self.path):
                report = replace(report, changes=self._overlay.changes)
        self.recovery_report = replace(report, notes=(self._note, *report.notes)) if self._note else report

    def _let_go(self) -> None:
        self._services.close()
        self._lock.release()

    # ---- its state

    @property
    def is_writeable(self) -> bool:
        """Whether its running flags allow puts."""
        return self.running_flags.is_writeable

    @property
    def is_os_page_cache_busy(self) -> bool:
        """Whether the current append has held the lock longer than ``osPageCacheBusyTimeOutMills``."""
        held = self.now_ms() - self.commit_log.begin_time_in_lock
        return self.config.os_page_cache_busy_time_out_mills < held < _BUSY_LIMIT_MS

    def now_ms(self) -> int:
        """Wall clock, ms."""
        return self._clock.now_ms()

    # ---- putting

    def put_message(self, message: Message) -> PutMessageResult:
        """Check a message, then put it as `CommitLog.put` does."""
        return self.commit_log.wait(self._puts.put(message))

    def async_put_message(self, message: Message) -> Future[PutMessageResult]:
        """Put a message; the future has the result of `put_message`."""
        return as_future(self._puts.put(message))

    def put_messages(self, messages: Sequence[Message] | Message) -> PutMessageResult:
        """Check a batch, then put it as `CommitLog.put_batch` does: all messages or none.

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
        services, files = self._services, self._setup.file_system
        return LogAdoption(self.commit_log, self.checkpoint, services.reput, files, services.complete_index)

    # ---- the log

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
        if offset < self.max_physical_offset:
            reput = self._services.reput
            with reput.paused():
                self._services.recovery.truncate(offset)
                reput.reput_from_offset = min(reput.reput_from_offset, offset)

    def truncate_files(self, offset: int) -> bool:
        """Truncate like `truncate_dirty_files` if a record begins there; else return False (``truncateFiles``, 5.x)."""
        if offset < self.max_physical_offset and not self._is_aligned(offset):
            return False
        self.truncate_dirty_files(offset)
        return True

    def _is_aligned(self, offset: int) -> bool:
        queue = self.commit_log.mapped_file_queue
        file = queue.find_mapped_file_by_offset(offset, return_first=offset == 0)
        view = file.select(0) if file is not None else None
        if view is None:
            return True
        position, rules = offset % queue.file_size, self._services.rules
        strictness = Strictness(check_crc=True, read_body=True)
        return check_message_and_return_size(view, position, len(view), rules, strictness).is_success


def _configured(
    path: str | os.PathLike[str], config: MessageStoreConfig | None, *, chooses: bool
) -> MessageStoreConfig:
    """Return the configuration of a store by a path that knows where its log is; who only reads has chosen that."""
    config = config or MessageStoreConfig()
    if not isinstance(path, ConfiguredRoot) or not path.log:
        return config
    log = ",".join(map(str, path.log))
    return config.with_log(log) if chooses else replace(config, store_path_commit_log=log)


def _last_exit_ok(abort: AbortFile) -> bool:
    """Return whether a refused store was closed; True where nothing tells."""
    try:
        return not abort.exists
    except OSError:
        return True
