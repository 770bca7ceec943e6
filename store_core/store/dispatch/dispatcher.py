# SPDX-License-Identifier: Apache-2.0
"""Dispatching records of the log: units to the queues, keys to the index, which may be built in parallel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, Self

import numpy as np

from store_core.files.service_thread import WorkerThread
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, RequestBatch
from store_core.queue.dispatch.stored_batch import StoredBatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    import numpy.typing as npt

    from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.index.index_service import IndexService

__all__ = ["Dispatcher", "FilterBitMap", "IndexThread", "select_rows"]


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
        self._index.build_indexes(batch, write_back=False)
        if self._syncing is None or self._syncing.done():
            self._syncing = self._syncer.submit(self._index.sync_ahead)

    def wait(self) -> None:
        """Wait until the keys of all batches are put; raise any failure."""
        self._builder.wait()


class FilterBitMap(Protocol):
    """Computes which SQL92 consumers a message is for (RocketMQ: ``CommitLogDispatcherCalcBitMap``)."""

    def __call__(self, request: DispatchRequest, /) -> bytes:
        """Return the bit map of a message; empty if no consumer of its topic has such a filter."""
        ...


class Dispatcher:
    """Passes records to the consume queues, then to the index (RocketMQ: ``DefaultMessageStore.dispatcherList``).

    Only one thread may dispatch at a time.

    * `filter_bit_map`: Called for every record before it goes to its queue.

    * `dispatched`: Number of records dispatched so far.
    """

    def __init__(
        self, queues: ConsumeQueueStore, index: IndexService, filter_bit_map: FilterBitMap | None = None
    ) -> None:
        self._queues = queues
        self._index = index
        self._filter_bit_map = filter_bit_map
        self.dispatched = 0
        self._beside: IndexThread | None = None

    @contextmanager
    def indexing_beside(self) -> Iterator[None]:
        """Build the index in a separate thread during the context; on exit it is complete."""
        with IndexThread(self._index) as beside:
            self._beside = beside
            try:
                yield
                beside.wait()
            finally:
                self._beside = None

    def dispatch(self, request: DispatchRequest) -> DispatchRequest:
        """Dispatch one record (``DefaultMessageStore.doDispatch``); return it with its bit map."""
        if self._filter_bit_map is not None:
            request = replace(request, bit_map=self._filter_bit_map(request))
        self._queues.put(request)
        self._index.build_index(request)
        self.dispatched += 1
        return request

    def dispatch_nameless(self, size: int) -> None:
        """Dispatch what release 4.3, after a crash, makes of a record whose parts do not add up to its size.

        That is a message of a topic without a name, whose unit in queue 0 points to the start of the log.
        """
        request = DispatchRequest("", 0, 0, size, 0, 0, 0, keys="", properties={})
        self._queues.put_nameless(request)
        self._index.build_index(request)
        self.dispatched += 1

    def dispatch_batch(self, batch: DispatchBatch, *, gather: bool = False) -> DispatchBatch:
        """Dispatch many records, equivalent to calling `dispatch` on each.

        Some keys may not be in the index file until `write_back`. With `gather`, for when no one reads queues
        meanwhile, the same goes for units and their queues.
        """
        mapped = None if self._filter_bit_map is None else self._with_bit_maps(batch, self._filter_bit_map)
        if mapped is None and gather:
            self._queues.gather_batch(batch)
        elif mapped is None:
            self._queues.put_batch(batch)
        else:
            batch = mapped
            for request in batch.requests():
                self._queues.put(request)
        self._build_indexes(batch)
        self.dispatched += len(batch)
        return batch

    def _build_indexes(self, batch: DispatchBatch) -> None:
        if self._beside is None:
            self._index.build_indexes(batch, write_back=False)
        else:  # the queues have already computed the shared columns, so the threads never compute the same one
            self._beside.build(batch)

    @staticmethod
    def _with_bit_maps(batch: DispatchBatch, filter_bit_map: FilterBitMap) -> DispatchBatch | None:
        """Return the batch with maps; None if no record has one."""
        requests = [replace(request, bit_map=filter_bit_map(request)) for request in batch.requests()]
        has_maps = any(request.bit_map for request in requests)
        return RequestBatch(requests, batch.starts.tolist()) if has_maps else None

    def write_back(self) -> None:
        """Write what was dispatched to queues and index; needed before a checkpoint or clean exit covers it."""
        self._queues.put_gathered()
        if self._beside is not None:
            self._beside.wait()
        self._index.write_back()


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
