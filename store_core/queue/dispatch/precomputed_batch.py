# SPDX-License-Identifier: Apache-2.0
"""Dispatch requests of records whose columns the writer already knows: nothing is read for queues and index."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.queue.dispatch.stored_batch import StoredBatch

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.dispatch.derived_columns import DerivedColumns
    from store_core.queue.dispatch.dispatch_batch import IndexHashes
    from store_core.queue.dispatch.stored_batch import StoredFile

__all__ = ["KnownBatch", "KnownColumns"]


class KnownColumns(NamedTuple):
    """The known columns of `n` records that lie end to end.

    Attributes
    ----------
    physical_offset : int
        Of the first record.
    starts : numpy.ndarray
        int32 or int64, shape (n + 1,): where each record begins, and where the last one ends, relative to that.
    queues : tuple of tuple
        Topics and queue ids.
    queue_codes : numpy.ndarray
        int32, shape (n,): number of each record's queue in `queues`.
    queue_offset : numpy.ndarray
        int64, shape (n,).
    store_timestamp : int or numpy.ndarray
        ms; one for all records, or int64, shape (n,).
    is_queued : numpy.ndarray
        bool, shape (n,).
    derived : DerivedColumns
    """

    physical_offset: int
    starts: npt.NDArray[np.int32] | npt.NDArray[np.int64]
    queues: tuple[tuple[str, int], ...]
    queue_codes: npt.NDArray[np.int32]
    queue_offset: npt.NDArray[np.int64]
    store_timestamp: int | npt.NDArray[np.int64]
    is_queued: npt.NDArray[np.bool_]
    derived: DerivedColumns

    @property
    def end_offset(self) -> int:
        """Physical offset of the last record's end."""
        return self.physical_offset + int(self.starts[-1])

    @property
    def held_bytes(self) -> int:
        """Memory that the columns take."""
        keys = self.derived.index_hashes
        columns = (self.starts, self.queue_codes, self.queue_offset, self.is_queued, self.store_timestamp)
        held = (*columns, self.derived.tags_code, keys.rows, keys.hashes)
        return sum(column.nbytes for column in held if isinstance(column, np.ndarray))


class KnownBatch(StoredBatch):
    """A batch of records of a file, whose columns for queues and index are known; the others are read."""

    def __init__(self, file: StoredFile, known: KnownColumns) -> None:
        place = known.physical_offset - file.start_offset
        super().__init__(file, known.starts[:-1].astype(np.int64) + place)
        self._known = known
        self.physical_offset = self._starts + file.start_offset
        self.message_size = np.diff(known.starts).astype(np.int64)
        self.tags_code = known.derived.tags_code
        self.queue_offset = known.queue_offset
        self.is_queued = known.is_queued
        times = known.store_timestamp
        self.store_timestamp = np.full(len(self), times, np.int64) if isinstance(times, int) else times
        self.queues = known.queues

    @property
    def queue_codes(self) -> npt.NDArray[np.int32]:  # noqa: D102 -- see DispatchBatch
        return self._known.queue_codes

    def index_hashes(self, *, with_tags: bool) -> IndexHashes:  # noqa: ARG002, D102 -- see DispatchBatch; derived by the same rules
        return self._known.derived.index_hashes
