# SPDX-License-Identifier: Apache-2.0
"""What follows from a record in the log: its units in queues, its keys in the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.queue.dispatch_batch import RequestBatch
from store_core.queue.stored_batch import StoredBatch

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.consume_queue_store import ConsumeQueueStore
    from store_core.queue.dispatch_batch import DispatchBatch
    from store_core.queue.dispatch_request import DispatchRequest
    from store_core.queue.index_service import IndexService

__all__ = ["Dispatcher", "select_rows"]


class Dispatcher:
    """Gives records to the consume queues, then to the index (RocketMQ: ``DefaultMessageStore.dispatcherList``).

    One thread dispatches at a time.

    Attributes
    ----------
    dispatched : int
        Records given on so far.
    """

    def __init__(self, queues: ConsumeQueueStore, index: IndexService) -> None:
        self._queues = queues
        self._index = index
        self.dispatched = 0

    def dispatch(self, request: DispatchRequest) -> None:
        """Give one record on (``DefaultMessageStore.doDispatch``)."""
        self._queues.put(request)
        self._index.build_index(request)
        self.dispatched += 1

    def dispatch_batch(self, batch: DispatchBatch) -> None:
        """Give many records on, equal to `dispatch` of one after the other.

        Keys that are put are not all in the index file yet; `write_back` brings them there.
        """
        self._queues.put_batch(batch)
        self._index.build_indexes(batch, write_back=False)
        self.dispatched += len(batch)

    def write_back(self) -> None:
        """Bring keys that were put to the index file; before a checkpoint or the end of ``abort`` vouches for them.

        Raises
        ------
        OSError
            As the system says.
        """
        self._index.write_back()


def select_rows(batch: DispatchBatch, chosen: npt.NDArray[np.bool_]) -> DispatchBatch | None:
    """Give the chosen rows of a batch as a batch; None if there are none.

    Offsets ascend in a sound log, so of many batches one or two are cut, and those at one place.
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
