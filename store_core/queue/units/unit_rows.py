# SPDX-License-Identifier: Apache-2.0
"""Units for many queues, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.units.queue_assignment import BatchAssignment

__all__ = ["UnitRows", "queue_bounds", "sorted_places"]

_SMALL: Final = 2**16 - 1


class UnitRows(NamedTuple):
    """Units in log order, or `ordered` by queue; arrays of shape (n,).

    Attributes
    ----------
    row : array of int64
        The record's row in its batch.
    code : array of int
        Number of the queue.
    physical_offset, size, tags_code, queue_offset, store_timestamp, message_base_offset, batch_size : array
        As in `DispatchBatch`.
    is_light : array of bool
        Whether it is an additional unit of its record, in a light queue.
    """

    row: npt.NDArray[np.int64]
    code: npt.NDArray[np.signedinteger[Any]]
    physical_offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    tags_code: npt.NDArray[np.int64]
    queue_offset: npt.NDArray[np.int64]
    store_timestamp: npt.NDArray[np.int64]
    message_base_offset: npt.NDArray[np.int64]
    batch_size: npt.NDArray[np.int16]
    is_light: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, batch: DispatchBatch, assigned: BatchAssignment) -> UnitRows:
        """Return the units of a batch in log order; those in light queues follow their record's own."""
        if assigned.rows is None:  # views of whole columns
            units = cls._at(batch, np.arange(len(batch)), slice(None), assigned.codes, batch.queue_offset)
        else:
            rows = assigned.rows
            units = cls._at(batch, rows, rows, assigned.codes, batch.queue_offset[rows])
        if not assigned.light:
            return units
        rows, codes, offsets = np.array(assigned.light, np.int64).T
        light = cls._at(batch, rows, rows, codes, offsets)._replace(is_light=np.ones(len(rows), np.bool_))
        joined = [np.concatenate((getattr(units, name), getattr(light, name))) for name in cls._fields]
        return cls(*joined).take(np.argsort(joined[0], kind="stable"))

    @classmethod
    def _at(
        cls,
        batch: DispatchBatch,
        rows: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64] | slice,
        codes: npt.NDArray[np.signedinteger[Any]],
        offsets: npt.NDArray[np.int64],
    ) -> UnitRows:
        """Return units of the records at some places of a batch, none of them light."""
        return cls(
            rows,
            codes,
            batch.physical_offset[places],
            batch.message_size[places],
            batch.tags_code[places],
            offsets,
            batch.store_timestamp[places],
            batch.message_base_offset[places],
            batch.batch_size[places],
            np.zeros(len(rows), np.bool_),
        )

    def take(self, places: npt.NDArray[np.signedinteger[Any]]) -> UnitRows:
        """Return the units at some places, in that order."""
        columns: list[npt.NDArray[Any]] = [column.take(places) for column in self]
        return UnitRows(*columns)

    def ordered(self) -> UnitRows:
        """Return the units ordered by queue; those of one queue keep their order."""
        return self.take(sorted_places(self.code))

    def bounds(self) -> Iterator[tuple[int, int, int]]:
        """Yield the number of each queue, and where its units begin and end; the units must be `ordered`."""
        return queue_bounds(self.code)

    def slice(self, start: int, stop: int) -> UnitRows:
        """Return the units of a range of places, without copying."""
        columns: list[npt.NDArray[Any]] = [column[start:stop] for column in self]
        return UnitRows(*columns)

    def chosen(self, is_chosen: npt.NDArray[np.bool_]) -> UnitRows:
        """Return the chosen units; itself if that is all of them."""
        return self if is_chosen.all() else self.take(np.flatnonzero(is_chosen))


def sorted_places(codes: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.int64]:
    """Return the places that sort queue numbers stably; if 16 bits hold them, by a radix sort without comparisons."""
    few = len(codes) > 0 and int(codes.max()) <= _SMALL
    return np.argsort(codes.astype(np.uint16) if few else codes, kind="stable")


def queue_bounds(codes: npt.NDArray[np.signedinteger[Any]]) -> Iterator[tuple[int, int, int]]:
    """Yield each queue's number, and where its units begin and end; the units must be ordered by these numbers."""
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    stops = np.append(starts, len(codes))[1:]
    return zip(codes[starts].tolist(), starts.tolist(), stops.tolist(), strict=True)
