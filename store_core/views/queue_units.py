# SPDX-License-Identifier: Apache-2.0
"""The units of one file of a queue, and where they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.queue.units.batch_consume_queue_unit import are_valid, count_true
from store_core.queue.units.consume_queue_unit import count_valid
from store_core.views.queue_listing import QueueKind

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt

    from store_core.files.segment_source import SegmentBytes

__all__ = ["count_sound", "count_written", "fillers", "units_of_file"]

_WINDOW: Final = 3 << 10
"""Units examined in one step, about 64 KiB."""

_FILLER_SIZE: Final = 2**31 - 1


def units_of_file(opened: SegmentBytes, kind: QueueKind) -> npt.NDArray[np.void]:
    """Return all units of a file, also those not written, as a view; an incomplete one at the end is left out."""
    whole = opened.raw.size - opened.raw.size % kind.dtype.itemsize
    return opened.raw[:whole].view(kind.dtype)


def count_written(opened: SegmentBytes, kind: QueueKind) -> int:
    """Return the number of units up to the last that has a size: those after it were never written.

    Holes of a sparse file are skipped. Zeros between units are counted: they are lost units.
    """
    units, size = units_of_file(opened, kind), kind.dtype.itemsize
    written = position = 0
    while position < len(units):
        position = max(position, opened.next_data(position * size) // size)
        sizes = units["store_size"][position : position + _WINDOW]
        if sizes.any():
            written = position + len(sizes) - int((sizes[::-1] != 0).argmax())
        position += _WINDOW
    return written


def count_sound(units: npt.NDArray[np.void], kind: QueueKind) -> int:
    """Return the number of units before the first that ends a queue when a broker loads it."""
    if kind is QueueKind.SIMPLE:
        return count_valid(units)
    found = 0
    while found < len(units):
        part = units[found : found + _WINDOW]
        count = count_true(are_valid(part))
        found += count
        if count < len(part):
            break
    return found


def fillers(units: npt.NDArray[np.void], kind: QueueKind) -> npt.NDArray[np.bool_]:
    """Report which units only fill a queue's first file (RocketMQ: ``ConsumeQueue.fillPreBlank``)."""
    if kind is QueueKind.BATCH:
        return np.zeros(len(units), np.bool_)
    found: npt.NDArray[Any] = (units["store_size"] == _FILLER_SIZE) & (units["physical_offset"] == 0)
    return found
