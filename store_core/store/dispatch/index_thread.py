# SPDX-License-Identifier: Apache-2.0
"""Building the key index in parallel with the queues."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self

from store_core.files.worker_thread import WorkerThread

if TYPE_CHECKING:
    from concurrent.futures import Future

    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.index.index_service import IndexService

__all__ = ["IndexThread"]

_MOST_WAITING: Final = 3
"""Maximum batches waiting for, or being processed by, the thread when another arrives."""


class IndexThread:
    """Context manager that puts keys of batches into the index in one thread and syncs them in another.

    NumPy releases the interpreter lock in its loops, so queues and index use two processors.

    Parameters
    ----------
    index : IndexService
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
