# SPDX-License-Identifier: Apache-2.0
"""Columns known when records are written, kept until the records are dispatched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.queue.dispatch.precomputed_batch import KnownColumns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.store.sink.hidden_append import WrittenRows
    from store_core.store.sink.staged_batch import StagedBatch

__all__ = ["KnownRecords"]

_MOST_BYTES: Final = 256 << 20
"""Maximum memory used; records beyond that are read from the log."""


class KnownRecords:
    """Columns of the first records of an append, up to a memory limit and as long as all are known.

    Parameters
    ----------
    most_bytes : int
        Maximum memory used.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._parts: list[KnownColumns] = []
        self._left = most_bytes
        self._is_over = False

    def add(
        self,
        batch: StagedBatch,
        written: list[WrittenRows],
        queue_offsets: npt.NDArray[np.int64],
        times: int | npt.NDArray[np.int64],
    ) -> None:
        """Keep the known columns of the next records."""
        derived = batch.derived
        for place in written:
            if self._is_over or derived is None or self._left <= 0:
                self._is_over = True
                return
            records, rows = batch.records, place.rows
            starts = records.starts[rows.start : rows.stop + 1]
            self._parts.append(
                KnownColumns(
                    place.physical_offset,
                    (starts - starts[0]).astype(np.int32),
                    records.queues,
                    records.queue_index[rows],
                    queue_offsets[rows],
                    times if isinstance(times, int) else times[rows],
                    records.is_queued[rows],
                    derived.rows(rows),
                )
            )
            self._left -= self._parts[-1].held_bytes

    def take(self) -> Iterator[KnownColumns]:
        """Yield the columns in log order, releasing each."""
        self._parts.reverse()
        while self._parts:
            yield self._parts.pop()
