# SPDX-License-Identifier: Apache-2.0
"""Many encoded records, and their completion with what is known only inside the put lock.

`store_core.format.record.encode` completes the records of one put.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.checksums import body_crcs
from store_core.format.layout import field_position, head_dtype
from store_core.format.properties import CRC_RESERVED, PROPERTY_CRC

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["EncodedBatch", "complete_batch"]

_OFFSET_PAIR: Final = np.dtype([("queue_offset", ">i8"), ("physical_offset", ">i8")])
_TIME: Final = np.dtype(">i8")
_CRC_DIGITS: Final = 10
_CRC_NAME: Final = np.frombuffer(f"{PROPERTY_CRC}\x01".encode(), np.uint8)


@dataclass(frozen=True, eq=False)
class EncodedBatch:
    """Records that are complete except for physical offset, queue offset and store time; can be pickled."""

    data: npt.NDArray[np.uint8]  # uint8, writable: the records, end to end
    starts: npt.NDArray[np.int64]
    """int64, shape (n + 1,): where each record begins in `data`, and where the last one ends."""
    queues: tuple[tuple[str, int], ...]  # the distinct topics and queue ids
    queue_index: npt.NDArray[np.int32]  # int32, shape (n,): the queue of each record
    is_queued: npt.NDArray[np.bool_]  # bool, shape (n,): False for prepared and rolled-back transaction messages
    v6_bits: npt.NDArray[np.uint8]  # uint8, shape (n,): host bits of each record's sys_flag
    append_property_crc: bool = False  # whether records end with space for their property CRC
    property_lengths: npt.NDArray[np.int64] | None = None
    """int64, shape (n,): bytes of each record's properties, which end the record; None if not known."""

    def __len__(self) -> int:
        return int(self.queue_index.size)

    @cached_property
    def queue_counts(self) -> npt.NDArray[np.int64]:
        """How many indexes each queue assigns to these records: int64, shape (number of queues,)."""
        return np.bincount(self.queue_index[self.is_queued], minlength=len(self.queues)).astype(np.int64)

    @cached_property
    def queue_ranks(self) -> npt.NDArray[np.int64]:
        """How many indexes a record's queue has assigned to records before it: int64, shape (n,)."""
        # numpy sorts 16-bit integers by radix sort, in a tenth of the time.
        few = len(self.queues) <= np.iinfo(np.uint16).max
        order = np.argsort(self.queue_index.astype(np.uint16) if few else self.queue_index, kind="stable")
        queues = self.queue_index[order]
        first = np.searchsorted(queues, np.arange(len(self.queues), dtype=np.int32))[queues]
        before = np.arange(len(self))
        if not self.is_queued.all():
            queued = self.is_queued[order]
            before = np.cumsum(queued) - queued
            first = before[first]
        ranks = np.empty(len(self), np.int64)
        ranks[order] = before - first
        return ranks

    def queue_offsets(self, first_offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return each record's queue offset if the queues start at `first_offsets`; 0 for records not queued."""
        return np.where(self.is_queued, first_offsets[self.queue_index] + self.queue_ranks, 0)


def complete_batch(
    batch: EncodedBatch,
    rows: slice,
    physical_offset: int,
    queue_offsets: npt.NDArray[np.int64],
    store_timestamp: int | npt.NDArray[np.int64],
) -> memoryview:
    """Complete some of the records in place, and return their bytes.

    * `rows`: Which records; they go to the log back to back.
    * `physical_offset`: Physical offset of the first of them.
    * `queue_offsets`: int64, shape (n,): those of all records of the batch.
    * `store_timestamp`: One time for all of them, or int64, shape (n,), for each record of the batch; ms.
    """
    if rows.start == rows.stop:
        return memoryview(b"")
    starts, first = batch.starts[rows], int(batch.starts[rows.start])
    pairs = np.empty(starts.size, _OFFSET_PAIR)
    pairs["queue_offset"] = queue_offsets[rows]
    pairs["physical_offset"] = starts - first + physical_offset
    _scatter(batch.data, starts + field_position(head_dtype(), "queue_offset"), pairs)
    times = np.empty(starts.size, _TIME)
    times[:] = store_timestamp if isinstance(store_timestamp, int) else store_timestamp[rows]
    _scatter(batch.data, starts + _time_positions(batch.v6_bits[rows]), times)
    if batch.append_property_crc:
        _complete_crcs(batch, rows)
    return memoryview(batch.data)[first : int(batch.starts[rows.stop])]  # type: ignore[arg-type]  # arrays have buffers


def _time_positions(v6_bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64] | int:
    if (v6_bits == v6_bits[0]).all():
        return field_position(head_dtype(int(v6_bits[0])), "store_timestamp")
    table = np.zeros(int(v6_bits.max()) + 1, np.int64)
    for bits in np.unique(v6_bits).tolist():
        table[bits] = field_position(head_dtype(bits), "store_timestamp")
    return table[v6_bits]


def _scatter(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], items: npt.NDArray[np.generic]) -> None:
    """Write items of fixed size at any positions: the bytes are viewed as overlapping items one byte apart."""
    if not positions.size:
        return
    size = items.dtype.itemsize
    kind = np.dtype(f"V{size}")
    overlapping = np.ndarray((data.size - size + 1,), kind, data, strides=(1,))
    overlapping[positions] = items.view(kind)


def _complete_crcs(batch: EncodedBatch, rows: slice) -> None:
    """Write each record's CRC at its end, as ``__CRC32#``: ten digits, the least significant first."""
    starts, ends = batch.starts[rows], batch.starts[rows.start + 1 : rows.stop + 1] - CRC_RESERVED
    crcs = body_crcs(batch.data, starts, ends)
    items = np.empty((starts.size, CRC_RESERVED), np.uint8)
    items[:, : _CRC_NAME.size] = _CRC_NAME
    for digit in range(_CRC_DIGITS):
        items[:, _CRC_NAME.size + digit] = ord("0") + crcs % 10
        crcs //= 10
    items[:, -1] = 2
    _scatter(batch.data, ends, items.view(f"V{CRC_RESERVED}").ravel())
