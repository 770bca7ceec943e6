# SPDX-License-Identifier: Apache-2.0
"""Dispatching what the log has and queues and index do not: units to the queues, keys to the index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias

import numpy as np

from store_core.errors import SegmentLayoutError
from store_core.files.service_thread import ServiceThread, WorkerThread
from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest, MessageCheck, RequestBatch
from store_core.queue.dispatch.dispatch_reader import WindowReader
from store_core.queue.dispatch.stored_batch import KnownBatch, KnownColumns, StoredBatch, StoredFile
from store_core.queue.queue_assignment import AssignedUnit, UnfitListsError, lmq_units

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.machine import Clock
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.format.segment_view import SegmentView
    from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
    from store_core.queue.index_service import IndexService
    from store_core.queue.queue_path import QueueRules
    from store_core.store.message_store_config import MessageStoreConfig
    from store_core.store.store_state import StoreCheckpoint


_MS: Final = 1000.0

_MOST_WAITING: Final = 3
"""Maximum batches waiting for, or being processed by, the thread when another arrives."""


class IndexThread:
    """Context manager that puts keys of batches into the index in one thread and syncs them in another.

    NumPy releases the interpreter lock in its loops, so queues and index use two processors.
    """

    def __init__(self, index: IndexService) -> None:
        self._index = index
        self._builder = WorkerThread("index", _MOST_WAITING)
        self._syncer = ThreadPoolExecutor(1, "sync")
        self._syncing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._builder.close()
        self._syncer.shutdown()

    def build(self, batch: DispatchBatch) -> None:
        """Queue a batch whose keys are to be put; raise any earlier failure."""
        self._builder.take(self._build, batch)

    def _build(self, batch: DispatchBatch) -> None:
        self._index.build_indexes(batch)
        if self._syncing is None or self._syncing.done():
            self._syncing = self._syncer.submit(self._index.sync_ahead)

    def wait(self) -> None:
        """Wait until the keys of all batches are put; raise any failure."""
        self._builder.wait()


FilterBitMap: TypeAlias = Callable[[DispatchRequest], bytes]
"""Returns the bit map of the SQL92 consumers that a message is for (RocketMQ: ``CommitLogDispatcherCalcBitMap``).

It is empty if no consumer of the message's topic has such a filter."""


class Dispatcher:
    """Passes records to the consume queues, then to the index (RocketMQ: ``DefaultMessageStore.dispatcherList``).

    Only one thread may dispatch at a time.

    * `filter_bit_map`: Called for every record before it goes to its queue.
    """

    def __init__(
        self, queues: ConsumeQueueStore, index: IndexService, filter_bit_map: FilterBitMap | None = None
    ) -> None:
        self.queues = queues
        self.index = index
        self._filter_bit_map = filter_bit_map
        self.dispatched = 0
        self._beside: IndexThread | None = None

    @contextmanager
    def indexing_beside(self) -> Iterator[None]:
        """Build the index in a separate thread during the context; on exit it is complete."""
        with IndexThread(self.index) as beside:
            self._beside = beside
            try:
                yield
                beside.wait()
            finally:
                self._beside = None

    def dispatch_nameless(self, size: int) -> None:
        """Dispatch what release 4.3, after a crash, makes of a record whose parts do not add up to its size.

        That is a message of a topic without a name, whose unit in queue 0 points to the start of the log.
        """
        request = DispatchRequest("", 0, 0, size, 0, 0, 0, keys="", properties={})
        self.queues.put_nameless(request)
        self.index.build_index(request)
        self.dispatched += 1

    def dispatch_batch(self, batch: DispatchBatch, *, gather: bool = False) -> DispatchBatch:
        """Dispatch records (``DefaultMessageStore.doDispatch``); return them with their bit maps.

        Some keys may not be in the index file until `write_back`. With `gather`, for when no one reads queues
        meanwhile, the same goes for units and their queues.
        """
        mapped = None if self._filter_bit_map is None else self._with_bit_maps(batch, self._filter_bit_map)
        if mapped is None and gather:
            self.queues.gather_batch(batch)
        elif mapped is None:
            self.queues.put_batch(batch)
        else:
            batch = mapped
            for request in batch.requests():
                self.queues.put(request)
        if self._beside is None:
            self.index.build_indexes(batch)
        else:  # the queues have already computed the shared columns, so the threads never compute the same one
            self._beside.build(batch)
        self.dispatched += len(batch)
        return batch

    @staticmethod
    def _with_bit_maps(batch: DispatchBatch, filter_bit_map: FilterBitMap) -> DispatchBatch | None:
        """Return the batch with maps; None if no record has one."""
        requests = [replace(request, bit_map=filter_bit_map(request)) for request in batch.requests()]
        has_maps = any(request.bit_map for request in requests)
        return RequestBatch(requests, batch.starts.tolist()) if has_maps else None

    def write_back(self) -> None:
        """Write what was dispatched to queues and index; needed before a checkpoint or clean exit covers it."""
        self.queues.put_gathered()
        if self._beside is not None:
            self._beside.wait()
        self.index.write_back()


def select_rows(batch: DispatchBatch, chosen: npt.NDArray[np.bool_]) -> DispatchBatch | None:
    """Return the chosen rows of a batch as a batch; None if there are none.

    Offsets ascend in a sound log, so of many batches only one or two are split, each at one place.
    """
    count = int(np.count_nonzero(chosen))
    if count == len(batch):
        return batch
    if not count:
        return None
    if isinstance(batch, StoredBatch) and chosen[:count].all():
        return batch.first(count)
    rows = np.flatnonzero(chosen)
    return RequestBatch([batch.request(row) for row in rows.tolist()], batch.starts[rows].tolist())


_CHECKPOINT_SECONDS: Final = 1.0


class FlushConsumeQueueService(ServiceThread):
    """Flushes the queues periodically (RocketMQ: ``DefaultMessageStore.FlushConsumeQueueService``).

    Every second it flushes queues with two new pages, and every minute all of them and then the checkpoint, which
    covers what had been dispatched before that flush began.

    * `config`: ``flushIntervalConsumeQueue``, ``flushConsumeQueueLeastPages``, ``flushConsumeQueueThoroughInterval``.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        queues: ConsumeQueueStore,
        checkpoint: StoreCheckpoint,
        clock: Clock,
    ) -> None:
        super().__init__(clock)
        self._config = config
        self._queues = queues
        self._checkpoint = checkpoint
        self._last_thorough: float | None = None

    def pause(self) -> None:
        """Wait for the next interval, or until woken up."""
        self.wait_for_running(self._config.flush_interval_consume_queue / _MS)

    def run_once(self) -> None:
        """Flush by the page rule, or thoroughly if due; the first time it is."""
        now = self._clock.monotonic()
        interval = self._config.flush_consume_queue_thorough_interval / _MS
        if self._last_thorough is None or now >= self._last_thorough + interval:
            self._last_thorough = now
            self.flush_thoroughly()
        else:
            self._queues.flush(self._config.flush_consume_queue_least_pages)

    def flush_thoroughly(self) -> None:
        """Flush all queues, then the checkpoint with the time of what was dispatched before."""
        self._flush_noted(keeps_offset=self._config.features.keeps_flushed_queue_offset)
        self._checkpoint.flush()

    def _flush_noted(self, *, keeps_offset: bool) -> None:
        """Flush all queues, then note in the checkpoint what had been dispatched before."""
        put = self._checkpoint.last_put
        self._queues.flush(0)
        self._checkpoint.cover_queues(put, keeps_offset=keeps_offset)

    def finish(self) -> None:
        """Flush all that was dispatched; a release whose checkpoint holds an offset notes that only by the minute."""
        if self._config.features.keeps_flushed_queue_offset:
            self._queues.flush(0)
        else:
            self._flush_noted(keeps_offset=False)


class FlushCheckpointService(ServiceThread):
    """Flushes the checkpoint every second if it has changed (RocketMQ 5.x)."""

    def __init__(self, checkpoint: StoreCheckpoint, clock: Clock) -> None:
        super().__init__(clock)
        self._checkpoint = checkpoint

    def pause(self) -> None:
        """Wait a second."""
        self.wait_until_stopped(_CHECKPOINT_SECONDS)

    def run_once(self) -> None:
        """Flush the checkpoint."""
        if self._checkpoint.is_changed:
            self._checkpoint.flush()


_IDLE_SECONDS: Final = 0.1
"""How long the service waits unless woken up, which happens when the log's end moves. RocketMQ polls every ms."""

_GATHER_SECONDS: Final = 0.002
"""How long it lets records accumulate: the overhead of a batch equals some dozen records."""

_WRITE_BACK_SECONDS: Final = 0.5
"""How long keys may be missing from the index file, for readers of the disk, while there is always more to dispatch."""

_LAZY_SECONDS: Final = 0.02
"""The same if there are no listeners: readers of this store dispatch what they need themselves, so puts go first."""


class MessageArrivingListener(Protocol):
    """Is notified of messages (RocketMQ: ``MessageArrivingListener``); from 4.9 on also of those of light queues.

    The store calls it only if the broker's ``longPollingEnable`` is set, and in 4.x not if its role is SLAVE.
    """

    def arriving(  # noqa: PLR0913 -- RocketMQ's own
        self,
        topic: str,
        queue_id: int,
        logic_offset: int,
        tags_code: int,
        store_timestamp: int,
        filter_bit_map: bytes,
        properties: Mapping[str, str],
    ) -> None:
        """Handle a message's arrival; `logic_offset` is the index after it in its queue."""


@dataclass(slots=True)
class _SelectedBuffer:
    """The readable part of one file, from an offset on.

    `read_size` follows RocketMQ, where it lags `position` after a record of the wrong size is skipped.
    """

    segment: SegmentView
    position: int
    size: int
    read_size: int = 0


def _light_units(request: DispatchRequest, rules: QueueRules) -> list[AssignedUnit]:
    with suppress(UnfitListsError):
        return lmq_units(request, rules)
    return []


class ReputMessageService(ServiceThread):
    """Follows the log and dispatches new records (RocketMQ: ``DefaultMessageStore.ReputMessageService``).

    `run_once` dispatches all there is. At bytes that are not a record, a master skips to the end of what is readable of
    the file; a slave waits. A record whose parts do not add up to its size is skipped by that size, while reading
    continues after the parts.

    * `end_offset`: Returns the offset at which dispatching has to stop, see `CommitLog.confirm_offset`.
    * `is_master`: Whether bytes that are not a record are skipped.
    * `notifies`: Whether `listeners` are called at all.

    * `reput_from_offset`: Where dispatching continues.
    """

    def __init__(  # noqa: PLR0913 -- the log, how it is read, and where records go
        self,
        queue: MappedFileQueue,
        dispatcher: Dispatcher,
        rules: QueueRules,
        clock: Clock,
        end_offset: Callable[[], int],
        *,
        is_master: bool = True,
        notifies: bool = True,
    ) -> None:
        super().__init__(clock)
        self.reput_from_offset = 0
        self.listeners: list[MessageArrivingListener] = []
        self._queue = queue
        self._dispatcher = dispatcher
        self._rules = rules
        self._end_offset = end_offset
        self._is_master = is_master
        self._notifies = notifies
        self._lock = RLock()

    @property
    def behind(self) -> int:
        """Bytes still to be dispatched; negative if queues point past the end of the log (``behind``)."""
        return self._end_offset() - self.reput_from_offset

    @property
    def _has_listeners(self) -> bool:
        return self._notifies and bool(self.listeners)

    def pause(self) -> None:
        """Wait until the log's end has moved, then briefly for more."""
        self.wait_for_running(_IDLE_SECONDS)
        if self.behind > 0:
            self.wait_until_stopped(_GATHER_SECONDS if self._has_listeners else _LAZY_SECONDS)

    def run_once(self, *, gather: bool = False, known: Iterable[KnownColumns] = ()) -> None:
        """Dispatch all there is (``doReput``); callable from any thread, one at a time.

        * `gather`: Whether units may reach queues late, since no one reads these meanwhile; see
          `Dispatcher.dispatch_batch`.
        * `known`: Columns of the next records, which then need not be read.
        """
        with self._lock:
            if self._rules.features.moves_dispatch_into_log:
                self.reput_from_offset = max(self.reput_from_offset, self._queue.min_offset)
            before = self._dispatcher.dispatched
            with self._dispatcher.indexing_beside() if gather else nullcontext():
                self._dispatch_known(known, gather=gather)
                self._reput_all(gather=gather)
            if self._dispatcher.dispatched != before:
                self._dispatcher.write_back()

    def _dispatch_known(self, known: Iterable[KnownColumns], *, gather: bool) -> None:
        """Dispatch records that were just written, skipping blank records between them."""
        file: StoredFile | None = None
        for columns in known:
            if file is None or columns.physical_offset >= file.start_offset + file.raw.size:
                file = self._file_of(columns.physical_offset)
            if file is None:
                return
            self._dispatch(KnownBatch(file, columns), gather=gather)
            self.reput_from_offset = columns.end_offset

    def _file_of(self, physical_offset: int) -> StoredFile | None:
        file = self._queue.find_mapped_file_by_offset(physical_offset)
        if file is None:
            return None
        segment = file.view()
        return StoredFile(segment.chunk(0, segment.size), file.file_from_offset, self._rules)

    def _reput_all(self, *, gather: bool) -> None:
        written = self._clock.monotonic()
        while self.behind > 0:
            buffer = self._select()
            if buffer is None or not self._reput_buffer(buffer, gather=gather):
                break
            if not gather and self._clock.monotonic() - written > _WRITE_BACK_SECONDS:
                self._dispatcher.write_back()
                written = self._clock.monotonic()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Prevent dispatching during the context."""
        with self._lock:
            yield

    def catch_up(self) -> None:
        """Dispatch the rest of the log, as a store of release 4.9 does before it starts."""
        while self.behind > 0:
            before = self.reput_from_offset
            self.run_once()
            if self.reput_from_offset == before:
                raise SegmentLayoutError(
                    f"the log has no bytes at {before}, and continues to {self._end_offset()}: a segment is missing. "
                    f"RocketMQ {self._rules.release} waits there forever when it starts. Restore the segment, "
                    f"or move those before the gap elsewhere and remove the queues"
                )

    def _select(self) -> _SelectedBuffer | None:
        """Return what is readable from the current dispatch offset on (``CommitLog.getData``)."""
        offset = self.reput_from_offset
        file = self._queue.find_mapped_file_by_offset(offset, return_first=offset == 0)
        if file is None:
            return None
        position = offset % self._queue.file_size
        if position >= file.read_position or not file.is_available:
            return None
        self.reput_from_offset = file.file_from_offset + position
        segment = file.view()
        return _SelectedBuffer(segment, position, segment.size - position)

    def _reput_buffer(self, buffer: _SelectedBuffer, *, gather: bool) -> bool:
        """Dispatch the records of a buffer; return False if dispatching stops for now."""
        stops_early = self._rules.features.stops_dispatch_at_confirmed_offset
        while buffer.read_size < buffer.size and (self.behind > 0 or not stops_early):
            reader = WindowReader(buffer.segment, buffer.position, self._rules)
            if not self._reput_records(buffer, reader, gather=gather):
                return False
            if buffer.read_size >= buffer.size:
                return True
            if not self._pass(buffer, reader.end):
                return False
        return True

    def _reput_records(self, buffer: _SelectedBuffer, reader: WindowReader, *, gather: bool) -> bool:
        """Dispatch records; return False if one ends after the offset where dispatching has to stop."""
        for batch, _ in reader:
            sizes = batch.message_size
            ends = np.cumsum(sizes)
            fits = np.ones(len(batch), bool)
            if self._rules.features.stops_dispatch_at_confirmed_offset:
                fits = ends <= self._end_offset() - self.reput_from_offset
            chosen = select_rows(batch, fits)
            if chosen is not None:
                self._dispatch(chosen, gather=gather)
                done = int(ends[len(chosen) - 1])
                self.reput_from_offset += done
                buffer.read_size += done
                buffer.position += done
            if chosen is None or len(chosen) < len(batch):
                return False
        return True

    def _dispatch(self, batch: DispatchBatch, *, gather: bool) -> None:
        batch = self._dispatcher.dispatch_batch(batch, gather=gather and not self._has_listeners)
        if self._has_listeners:
            for request in batch.requests():
                self._notify(request)

    def _notify(self, request: DispatchRequest) -> None:
        queues = [(request.topic, request.queue_id, request.consume_queue_offset), *_light_units(request, self._rules)]
        for listener in self.listeners:
            for topic, queue_id, queue_offset in queues:
                listener.arriving(
                    topic,
                    queue_id,
                    queue_offset + 1,
                    request.tags_code,
                    request.store_timestamp,
                    request.bit_map,
                    request.properties,
                )

    def _pass(self, buffer: _SelectedBuffer, end: MessageCheck) -> bool:
        """Skip what is not a record; return False if dispatching stops for now."""
        if self._rules.features.stops_dispatch_at_confirmed_offset and end.size > self.behind:
            return False
        if end.is_blank:
            size = self._queue.file_size
            self.reput_from_offset += size - self.reput_from_offset % size
            buffer.read_size = buffer.size
            return True
        if end.size > 0:
            self.reput_from_offset += end.size
            buffer.position += end.parsed
            return True
        if self._is_master:
            self.reput_from_offset += buffer.size - buffer.read_size
        return False

    def finish(self) -> None:
        """Dispatch what is left, as far as possible; RocketMQ allows its thread five seconds for that."""
        before = -1
        while self.behind > 0 and self.reput_from_offset != before:
            before = self.reput_from_offset
            self.run_once()
