# SPDX-License-Identifier: Apache-2.0
"""Building the key index beside everything else that follows from records."""

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
"""Batches that wait for the thread, or are at it, when another one comes."""


class IndexThread:
    """Puts the keys of batches in a thread of its own, and has the disk take them in another; a context.

    NumPy lets go of the interpreter in its loops, so queues and index take two processors.

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
        """Put the keys of a batch soon; what failed for one before is raised."""
        self._builder.take(self._build, batch)

    def _build(self, batch: DispatchBatch) -> None:
        self._index.build_indexes(batch, write_back=False)
        if self._syncing is None or self._syncing.done():
            self._syncing = self._syncer.submit(self._index.sync_ahead)

    def wait(self) -> None:
        """Wait until the keys of all batches are put; what failed is raised."""
        self._builder.wait()
