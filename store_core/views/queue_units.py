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

    from store_core.files.segment_source import PagedBytes, SparseBytes

__all__ = ["count_sound", "count_written", "fillers", "sound_units_of", "units_of_file"]

_WINDOW: Final = 3 << 10
"""Units examined in one step, about 64 KiB."""

_FIRST_STEP: Final = 3 << 10
"""Units of a file on another machine that are loaded first; each further step is longer."""

_FILLER_SIZE: Final = 2**31 - 1


def units_of_file(opened: SparseBytes, kind: QueueKind) -> npt.NDArray[np.void]:
    """Return all units of a file, also those not written, as a view; an incomplete one at the end is left out."""
    whole = opened.raw.size - opened.raw.size % kind.dtype.itemsize
    return opened.raw[:whole].view(kind.dtype)


def count_written(opened: SparseBytes, kind: QueueKind) -> int:
    """Return the number of units up to the last that has a size: those after it were never written.

    Holes of a sparse file are skipped. Zeros between units are counted: they are lost units.
    """
    units, size = units_of_file(opened, kind), kind.dtype.itemsize
    written = position = 0
    while position < len(units):
        position = max(position, opened.next_data(position * size) // size)
        stop = _data_stop(opened, position * size, size)
        for first in range(position, stop, _WINDOW):
            sizes = units["store_size"][first : min(first + _WINDOW, stop)]
            if sizes.any():
                written = first + len(sizes) - int((sizes[::-1] != 0).argmax())
        position = max(stop, position + 1)
    return written


def sound_units_of(opened: PagedBytes, kind: QueueKind) -> npt.NDArray[np.void]:
    """Load and return the units of a file before the first that ends a queue when a broker loads it.

    Little more is loaded: the rest of a queue's last file was never written.
    """
    size = kind.dtype.itemsize
    units = units_of_file(opened, kind)[: _data_stop(opened, 0, size)]
    begin, step = 0, _FIRST_STEP
    while begin < len(units):
        end = min(begin + step, len(units))
        opened.load(begin * size, end * size)
        count = count_sound(units[begin:end], kind)
        if begin + count < end:
            return units[: begin + count]
        begin, step = end, step * 4
    return units


def _data_stop(opened: SparseBytes, position: int, size: int) -> int:
    """Return the number of units before the first hole after a position, with one that reaches into it and is not zero.

    The hole itself is not touched: mapping a page of it takes 70 times as long as mapping one with data.
    """
    hole = opened.next_hole(position)
    whole = hole // size
    return whole + bool(opened.raw[whole * size : hole].any())


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
    if kind is not QueueKind.SIMPLE:
        return np.zeros(len(units), np.bool_)
    found: npt.NDArray[Any] = (units["store_size"] == _FILLER_SIZE) & (units["physical_offset"] == 0)
    return found
