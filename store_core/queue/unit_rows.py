# SPDX-License-Identifier: Apache-2.0
"""Units for many queues as columns, and how they fall to the queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.queue.dispatch_batch import DispatchBatch

__all__ = ["LightRow", "UnitRows", "sorted_places"]

_SMALL: Final = 2**15 - 1


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
        codes: npt.NDArray[np.int64] = np.concatenate((batch.queue_codes[rows], extra[:, 1]))
        offsets = np.concatenate((batch.queue_offset[rows], extra[:, 2]))
        # Stable, so that a record's own unit stays before its further ones.
        order = np.lexsort((all_rows, codes)) if light else sorted_places(codes)
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
        """Yield the number of each queue, and its units."""
        for code, start, stop in self.bounds():
            yield code, self.slice(start, stop)

    def bounds(self) -> Iterator[tuple[int, int, int]]:
        """Return the number of each queue, and where its units begin and end."""
        starts = np.flatnonzero(np.diff(self.code, prepend=-1))
        stops = np.append(starts[1:], len(self.code))
        return zip(self.code[starts].tolist(), starts.tolist(), stops.tolist(), strict=True)

    def slice(self, start: int, stop: int) -> UnitRows:
        """Return the units of some places; no copy."""
        return _take(self, slice(start, stop))

    def since(self, physical_offset: int) -> UnitRows:
        """Return the units of records that begin at or behind an offset of the log; themselves if that is all."""
        kept = self.physical_offset >= physical_offset
        return self if kept.all() else _take(self, kept)


def sorted_places(codes: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.int64]:
    """Sort numbers of queues stably; 16 bits, where they are enough, are sorted without comparing."""
    few = len(codes) > 0 and int(codes.max()) <= _SMALL
    return np.argsort(codes.astype(np.int16, copy=False) if few else codes, kind="stable")


def _take(units: UnitRows, part: slice | npt.NDArray[np.bool_]) -> UnitRows:
    return UnitRows(
        units.row[part],
        units.code[part],
        units.physical_offset[part],
        units.size[part],
        units.tags_code[part],
        units.queue_offset[part],
        units.store_timestamp[part],
        units.message_base_offset[part],
        units.batch_size[part],
        units.is_light[part],
    )
