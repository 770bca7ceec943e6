# SPDX-License-Identifier: Apache-2.0
"""Units for many queues as columns, and how they fall to the queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.queue.dispatch_batch import DispatchBatch

__all__ = ["LightRow", "UnitRows"]


class LightRow(NamedTuple):
    """A further unit of a record.

    Attributes
    ----------
    row : int
        The record's row in its batch.
    code : int
        Number of the further queue.
    queue_offset : int
        The record's index in it.
    """

    row: int
    code: int
    queue_offset: int


class UnitRows(NamedTuple):
    """Units, ordered by queue, and those of a queue by where their records stand in the log; arrays of shape (n,).

    Attributes
    ----------
    row : array of int64
        The record's row in its batch.
    code : array of int64
        Number of the queue.
    physical_offset, size, tags_code, queue_offset, store_timestamp, message_base_offset, batch_size : array
        As in `DispatchBatch`.
    is_light : array of bool
        Whether it is a further unit of its record.
    """

    row: npt.NDArray[np.int64]
    code: npt.NDArray[np.int64]
    physical_offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    tags_code: npt.NDArray[np.int64]
    queue_offset: npt.NDArray[np.int64]
    store_timestamp: npt.NDArray[np.int64]
    message_base_offset: npt.NDArray[np.int64]
    batch_size: npt.NDArray[np.int16]
    is_light: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, batch: DispatchBatch, rows: npt.NDArray[np.int64], light: list[LightRow]) -> UnitRows:
        """Take some rows of a batch, and further units of them."""
        extra = np.array(light, np.int64).reshape(-1, len(LightRow._fields))
        all_rows = np.concatenate((rows, extra[:, 0]))
        codes = np.concatenate((batch.queue_codes[rows], extra[:, 1]))
        offsets = np.concatenate((batch.queue_offset[rows], extra[:, 2]))
        # Stable, so that a record's own unit stays before its further ones.
        order = np.lexsort((all_rows, codes)) if light else np.argsort(codes, kind="stable")
        ordered = all_rows[order]
        return cls(
            ordered,
            codes[order].astype(np.int64),
            batch.physical_offset[ordered],
            batch.message_size[ordered],
            batch.tags_code[ordered],
            offsets[order],
            batch.store_timestamp[ordered],
            batch.message_base_offset[ordered],
            batch.batch_size[ordered],
            order >= len(rows),
        )

    def by_queue(self) -> Iterator[tuple[int, UnitRows]]:
        """Give the number of each queue, and its units."""
        starts = np.flatnonzero(np.diff(self.code, prepend=-1)).tolist()
        for start, stop in zip(starts, [*starts[1:], len(self.code)], strict=True):
            yield int(self.code[start]), self.slice(start, stop)

    def slice(self, start: int, stop: int) -> UnitRows:
        """Give the units of some places; no copy."""
        part = slice(start, stop)
        return UnitRows(
            self.row[part],
            self.code[part],
            self.physical_offset[part],
            self.size[part],
            self.tags_code[part],
            self.queue_offset[part],
            self.store_timestamp[part],
            self.message_base_offset[part],
            self.batch_size[part],
            self.is_light[part],
        )

    def since(self, physical_offset: int) -> UnitRows:
        """Give the units of records that begin at or behind an offset of the log; themselves if that is all."""
        kept = self.physical_offset >= physical_offset
        return self if kept.all() else UnitRows(*(column[kept] for column in self))
