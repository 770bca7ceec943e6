# SPDX-License-Identifier: Apache-2.0
"""Building the key index beside everything else that follows from records."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from concurrent.futures import Future

    from store_core.queue.dispatch_batch import DispatchBatch
    from store_core.queue.index_service import IndexService

__all__ = ["IndexThread"]

_MOST_WAITING: Final = 4
"""Batches that wait for the thread."""


class IndexThread:
    """Puts the keys of batches in a thread of its own, and has the disk take them in another; a context.

    NumPy lets go of the interpreter in its loops, so queues and index take two processors.

    Parameters
    ----------
    index : IndexService
    """

    def __init__(self, index: IndexService) -> None:
        self._index = index
        self._builder = ThreadPoolExecutor(1, "index")
        self._syncer = ThreadPoolExecutor(1, "sync")
        self._waiting: deque[Future[None]] = deque()
        self._syncing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._builder.shutdown()
        self._syncer.shutdown()

    def build(self, batch: DispatchBatch) -> None:
        """Put the keys of a batch soon; what failed for one before is raised."""
        self._waiting.append(self._builder.submit(self._build, batch))
        self.wait(_MOST_WAITING)

    def _build(self, batch: DispatchBatch) -> None:
        self._index.build_indexes(batch, write_back=False)
        if self._syncing is None or self._syncing.done():
            self._syncing = self._syncer.submit(self._index.sync_ahead)

    def wait(self, most_waiting: int = 0) -> None:
        """Wait until the keys of all batches are put, but of some; what failed is raised."""
        while len(self._waiting) > most_waiting:
            self._waiting.popleft().result()
