# SPDX-License-Identifier: Apache-2.0
"""The first and the last message of a queue, found from a few units, as a broker finds them when it loads the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.segment_source import open_pages
from store_core.views.queue_listing import QueueKind
from store_core.views.queue_units import fillers, sound_units_of, units_of_file

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.views.queue_listing import ListedQueue

__all__ = ["EMPTY", "QueueBounds", "find_bounds"]

_FILES_LOOKED_AT: Final = 3
"""How many files a broker checks for the queue's end (RocketMQ: ``ConsumeQueue.recover``)."""


class QueueBounds(NamedTuple):
    """A queue, from its first message that the log still has to the one after its last.

    Attributes
    ----------
    min_offset, max_offset : int
        Queue offsets; equal if it has no message.
    first, last : tuple of int or None
        Physical offset and size of the first and the last message's record; None if it has no message.
    """

    min_offset: int
    max_offset: int
    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None


EMPTY: Final = QueueBounds(0, 0)
"""The bounds of a queue without files."""


class _Units(NamedTuple):
    """Sound units of one file with their queue offsets, and the queue offset after the last."""

    units: npt.NDArray[np.void]
    offsets: npt.NDArray[np.int64]
    stop: int
    is_whole: bool


def find_bounds(queue: ListedQueue, log_start: int) -> QueueBounds:
    """Find where a queue begins and ends.

    It ends before the first invalid unit in its last three files (RocketMQ: ``ConsumeQueue.recover``). It begins at
    the first unit that is no filler, and whose record the log still has (``correctMinOffset``, which gives up where
    that unit is not in the queue's first file).

    Parameters
    ----------
    queue : ListedQueue
    log_start : int
        Physical offset at which the log starts.

    Raises
    ------
    SegmentVanishedError
        If a file is gone since the queue was listed.
    """
    last = _end_of(queue)
    if last is None:
        return EMPTY
    file_index, end = last
    unit = end.units[-1]
    if int(unit["physical_offset"]) < log_start or fillers(end.units[-1:], queue.kind)[0]:
        return QueueBounds(end.stop, end.stop)
    for file in queue.files[:file_index]:
        found = _first_live(_sound_units(file, queue.kind, check=False), queue.kind, log_start)
        if found is not None:
            return QueueBounds(found[0], end.stop, found[1], _place(unit))
    found = _first_live(end, queue.kind, log_start)
    return QueueBounds(end.stop, end.stop) if found is None else QueueBounds(found[0], end.stop, found[1], _place(unit))


def _end_of(queue: ListedQueue) -> tuple[int, _Units] | None:
    """Return the file that holds the queue's last unit, by its index, and its units; None without units."""
    start = max(len(queue.files) - _FILES_LOOKED_AT, 0)
    found: tuple[int, _Units] | None = None
    for index in range(start, len(queue.files)):
        units = _sound_units(queue.files[index], queue.kind, check=True)
        if len(units.units):
            found = index, units
        if not units.is_whole:
            break
    if found is None and start:
        return start - 1, _sound_units(queue.files[start - 1], queue.kind, check=False)
    return found


def _sound_units(file: Segment, kind: QueueKind, *, check: bool) -> _Units:
    """Return the units of a file, and with `check` only those before the first invalid one."""
    with open_pages(file) as opened:
        units = units_of_file(opened, kind)
        if not check:
            opened.load(0, file.size)
        some = sound_units_of(opened, kind) if check else units
    count = len(some)
    if kind is QueueKind.BATCH:
        offsets = some["msg_base_offset"].astype(np.int64)
        stop = int(offsets[-1]) + int(some["batch_size"][-1]) if count else 0
    else:
        first = file.start_offset // kind.dtype.itemsize
        offsets, stop = np.arange(first, first + count, dtype=np.int64), first + count
    return _Units(some, offsets, stop, count == len(units))


def _first_live(found: _Units, kind: QueueKind, log_start: int) -> tuple[int, tuple[int, int]] | None:
    """Return offset and record of the first unit that is in the log; None without one."""
    is_live = (found.units["physical_offset"] >= log_start) & (found.units["store_size"] > 0)
    is_live &= ~fillers(found.units, kind)
    if not is_live.any():
        return None
    index = int(is_live.argmax())
    return int(found.offsets[index]), _place(found.units[index])


def _place(unit: np.void) -> tuple[int, int]:
    return int(unit["physical_offset"]), int(unit["store_size"])
