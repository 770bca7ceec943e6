# SPDX-License-Identifier: Apache-2.0
"""A whole store: the commit log, and what opens, guards and closes it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from store_core.errors import StoreError
from store_core.files.abort_file import AbortFile
from store_core.files.access import explained_access
from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.files.overlay_file_system import OverlayFileSystem
from store_core.files.store_lock import StoreLock
from store_core.format.append_result import PutMessageStatus
from store_core.store.broker_config import BrokerConfig
from store_core.store.checked_config import check_is_there, checked_config
from store_core.store.clean.services import CleanServices
from store_core.store.commit_log import CommitLog
from store_core.store.derived import DerivedStructures
from store_core.store.log_adoption import LogAdoption
from store_core.store.put_checks import default_hooks
from store_core.store.put_outcome import as_future, wait_for
from store_core.store.put_result import PutMessageResult
from store_core.store.put_service import PutService
from store_core.store.recovery_report import RecoveryReport
from store_core.store.store_checkpoint import StoreCheckpoint
from store_core.store.store_layout import allocate_service, disk_space, log_paths
from store_core.store.store_reading import StoreReading

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.files.overlay_file_system import FileChange
    from store_core.format.batch_append import EncodedBatch
    from store_core.format.message import Message
    from store_core.store.bulk_append import AppendBatchResult
    from store_core.store.config import MessageStoreConfig
    from store_core.store.dispatcher import FilterBitMap
    from store_core.store.put_checks import PutMessageHook
    from store_core.store.replication import ReplicaService
    from store_core.store.running_flags import RunningFlags
    from store_core.store.store_stats import StoreStats

__all__ = ["DefaultMessageStore"]

_BUSY_LIMIT_MS: Final = 10_000_000


class DefaultMessageStore(StoreReading):
    """A message store that can be written (RocketMQ: ``DefaultMessageStore``); made by `open`.

    Attributes
    ----------
    path : Path
    config : MessageStoreConfig
    commit_log : CommitLog
    checkpoint : StoreCheckpoint
    put_message_hooks : list of PutMessageHook
        What looks at each message before release 5.3 puts it; the broker's own at first.
    recovery_report : RecoveryReport
        What opening found.
    clean_services : CleanServices
        What deletes old segments, and the queue and index files behind them.
    """

    def __init__(  # noqa: PLR0913 -- made by `open`
        self,
        path: Path,
        config: MessageStoreConfig,
        broker: BrokerConfig,
        clock: Clock,
        file_system: FileSystem,
        replicas: ReplicaService | None,
        batch_topics: Collection[str],
        *,
        read_only: bool,
        broker_hooks: bool,
        cleans: bool,
        filter_bit_map: FilterBitMap | None = None,
    ) -> None:
        self.path = path
        self.config = config
        self.is_read_only = read_only
        self._clock = clock
        self._overlay = OverlayFileSystem(file_system, clock) if read_only else None
        file_system = self._file_system = self._overlay or file_system
        self._batch_topics = frozenset(batch_topics)
        self._is_shutdown = read_only
        self._lock = StoreLock(path, file_system)
        self._abort = AbortFile(path, file_system)
        self._allocate = allocate_service(config, clock, file_system)
        self.checkpoint = StoreCheckpoint(path, file_system, config.release)
        self._cleans = cleans
        space = disk_space(path, config, file_system)
        self.commit_log = CommitLog(
            log_paths(path, config, space.full_paths),
            config,
            file_system,
            clock,
            broker=broker,
            allocate=self._allocate,
            checkpoint=self.checkpoint,
            replicas=replicas,
            is_batch_topic=self.is_batch_topic,
        )
        rules, is_master = config.queue_rules(self._batch_topics), broker.broker_id == 0
        self._derived = DerivedStructures(
            path, self.commit_log, self.checkpoint, rules, file_system, clock, is_master=is_master,
            notifies=_notifies(config, broker),
            filter_bit_map=filter_bit_map if broker.enable_calc_filter_bit_map else None,
        )  # fmt: skip
        self.clean_services = CleanServices(
            config, self.commit_log, space, self.consume_queue_store, self.index_service, clock
        )
        self.put_message_hooks: list[PutMessageHook] = default_hooks(config, self) if broker_hooks else []
        self._puts = PutService(self.commit_log, self, self.put_message_hooks)
        self.recovery_report = self._derived.recovery.report

    @classmethod
    def open(  # noqa: PLR0913 -- a path and a configuration do; the rest is for brokers and tests
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
    ) -> Self:
        """Open a store, or make one.

        Steps: 1. lock it; 2. see whether it was closed; 3. load log, queues, checkpoint and index, and bring them to
        one end, see `store_core.store.recovery`; 4. start the services; 5. leave an ``abort`` file until it is closed.

        Parameters
        ----------
        path : path-like
            The store's root.
        config : MessageStoreConfig, optional
            Sizes of files that it does not give are taken from the files that are there.
        read_only : bool
            Take no lock, write nothing, start nothing. The same is done as for writing, but in memory; the report's
            `changes` tell what. A store that a broker is writing may be opened so, and is seen as it was then.
        broker : BrokerConfig, optional
        broker_hooks : bool
            With release 5.3: check and rewrite messages as a broker's hooks do. Without them only inner batches are
            checked. 4.x checks in the store itself.
        batch_topics : collection of str
            Topics with the attribute ``queue.type=BatchCQ``.
        replicas : ReplicaService, optional
        clock : Clock, optional
        file_system : FileSystem, optional
        cleans : bool
            Delete what is too old, and refuse messages when the disk is full, as a broker does by ``fileReservedTime``,
            ``deleteWhen`` and the disk ratios; see `store_core.store.clean.services`. A store that is opened to have
            something added keeps all it has.
        filter_bit_map : FilterBitMap, optional
            Says which SQL92 consumers a message is for, e.g. `ConsumerFilterManager.bit_map`. With the broker's
            ``enableCalcFilterBitMap`` it is asked before a record goes to its queue.

        Raises
        ------
        StoreLockedError
            If a broker, or another writer, has the store.
        StoreNotFoundError
            If there is nothing to read.
        InvalidOptionError
            If the path is no root, or a size that the configuration gives contradicts the files.
        UnsupportedStoreError
            If it is a DLedger store, or its queues are in a RocksDB; see `store_core.files.store_kind`.
        SegmentLayoutError
            If the log's files are not what the configuration and release expect.
        OSError
            As the system says.
        """
        root, file_system = Path(path), file_system or OsFileSystem()
        if read_only:
            check_is_there(root, config, file_system)
        store = cls(
            root,
            checked_config(root, config, file_system),
            broker or BrokerConfig(),
            clock or SystemClock(),
            file_system,
            replicas,
            batch_topics,
            read_only=read_only,
            broker_hooks=broker_hooks,
            cleans=cleans,
            filter_bit_map=filter_bit_map,
        )
        if read_only:
            store._load_to_read()
            return store
        store._lock.acquire()
        try:
            store._load()
            store._start()
        except BaseException:
            store._let_go()
            raise
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        """Report what opening a store for writing would do, and do it in memory only.

        It is the same code, so the report is that of the opening itself, with `changes`. A store that would be refused
        gives a report that says why.

        Raises
        ------
        StoreNotFoundError
            If there is nothing.
        InvalidOptionError
            If the path is not a root, as in `open`.
        OSError
            As the system says.
        """
        root, file_system = Path(path), file_system or OsFileSystem()
        check_is_there(root, config, file_system)
        try:
            config = checked_config(root, config, file_system)
        except StoreError as error:
            return RecoveryReport(release=config.release if config is not None else "5.3", refusal=str(error))
        store = cls(
            root, config, BrokerConfig(), clock or SystemClock(), file_system, None, batch_topics,
            read_only=True, broker_hooks=False, cleans=False,
        )  # fmt: skip
        try:
            store._load_to_read()
        except StoreError as error:
            return replace(store._derived.recovery.refuse(error), changes=store._changes)
        finally:
            store._let_go()
        return store.recovery_report

    def _load_to_read(self) -> None:
        self._load()
        self.recovery_report = replace(self.recovery_report, changes=self._changes)

    @property
    def _changes(self) -> tuple[FileChange, ...]:
        return self._overlay.changes if self._overlay is not None else ()

    def _load(self) -> None:
        with explained_access(self.path):
            self.recovery_report = self._derived.recover(last_exit_ok=not self._abort.exists)

    def _start(self) -> None:
        self._allocate.start()
        self.commit_log.start()
        self._derived.start()
        if self._cleans:
            self.clean_services.start()
        self._abort.create(os.getpid(), self.config.release)

    def close(self) -> None:
        """Close the store: it takes no more messages, and everything is flushed.

        Steps: 1. refuse messages; 2. flush the log; 3. dispatch what is left, and flush queues and index; 4. delete
        files made ahead; 5. write the checkpoint; 6. delete ``abort``, if all that succeeded, everything is dispatched
        and the store was writeable; 7. let go of files and lock. Closing twice is fine.
        """
        if self.is_read_only:
            self._let_go()
            return
        if self._is_shutdown:
            return
        self._is_shutdown = True
        try:
            ended = self.clean_services.shutdown()
            ended = self.commit_log.shutdown() and ended
            ended = self._derived.shutdown() and ended
            ended = self._allocate.shutdown() and ended
            self.checkpoint.flush()
            done = self.commit_log.is_flushed and self._derived.dispatch_behind_bytes == 0
            if ended and done and self.is_writeable:
                self._abort.remove()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self.checkpoint.close()
        self._derived.close()
        self.commit_log.close()
        self._lock.release()

    # ---- state

    @property
    def is_shutdown(self) -> bool:
        """Whether it takes no messages any more."""
        return self._is_shutdown

    @property
    def running_flags(self) -> RunningFlags:
        """Why it may not be read or written at the moment."""
        return self.commit_log.running_flags

    @property
    def is_writeable(self) -> bool:
        """Whether its running flags allow puts."""
        return self.running_flags.is_writeable

    @property
    def is_os_page_cache_busy(self) -> bool:
        """Whether the append under way has held the lock longer than ``osPageCacheBusyTimeOutMills``."""
        held = self._clock.now_ms() - self.commit_log.begin_time_in_lock
        return self.config.os_page_cache_busy_time_out_mills < held < _BUSY_LIMIT_MS

    def now_ms(self) -> int:
        """Wall clock, ms."""
        return self._clock.now_ms()

    @property
    def stats(self) -> StoreStats:
        """What it has counted."""
        return self.commit_log.stats

    # ---- putting

    def put_message(self, message: Message) -> PutMessageResult:
        """Check a message, then do as `CommitLog.put_message`."""
        return self._wait(self._puts.put(message))

    def async_put_message(self, message: Message) -> Future[PutMessageResult]:
        """Put a message; the future has the result of `put_message`."""
        return as_future(self._puts.put(message))

    def put_messages(self, messages: Sequence[Message] | Message) -> PutMessageResult:
        """Check a batch, then do as `CommitLog.put_messages`: all messages or none.

        Parameters
        ----------
        messages : sequence of Message, or Message
            Messages of one topic, or one whose body holds them as a client encodes them.

        Raises
        ------
        InvalidOptionError
            If the messages can't be one batch, see `client_batch`.
        """
        return self._wait(self._puts.put_batch(messages))

    def async_put_messages(self, messages: Sequence[Message] | Message) -> Future[PutMessageResult]:
        """Put a batch; the future has the result of `put_messages`."""
        return as_future(self._puts.put_batch(messages))

    def _wait(self, outcome: PutMessageResult | Future[PutMessageResult]) -> PutMessageResult:
        return wait_for(outcome, self.commit_log.put_timeout, PutMessageResult(PutMessageStatus.UNKNOWN_ERROR))

    def encode_messages(self, messages: pa.RecordBatch | pa.Table) -> tuple[EncodedBatch, ...]:
        """Encode many messages for `append_batch`; delayed ones go to the schedule topic as with `put_message`."""
        return self._puts.encode_messages(messages)

    def append_batch(
        self, messages: Sequence[EncodedBatch] | pa.RecordBatch | pa.Table, *, waits: bool = True
    ) -> AppendBatchResult:
        """Check many messages, then do as `CommitLog.append_batch`.

        Of the hooks only the broker's own rules on topics and delays are applied.
        """
        return self._puts.append_batch(messages, waits=waits)

    def prepare_adoption(self) -> LogAdoption:
        """Prepare the store to take over records that something else writes after its log's end.

        Nobody may put messages until they are adopted, or given up.

        Raises
        ------
        OSError
            As the system says.
        """
        return LogAdoption(self.commit_log, self.checkpoint, self.reput_message_service, self._file_system)


def _notifies(config: MessageStoreConfig, broker: BrokerConfig) -> bool:
    """Return whether listeners hear of messages (``ReputMessageService.doReput``): in 4.x not those of a slave."""
    return broker.long_polling_enable and (config.release == "5.3" or config.broker_role != "SLAVE")
