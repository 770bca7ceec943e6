# SPDX-License-Identifier: Apache-2.0
"""Placement of records in a log of segments: which record has room, and what closes a full segment.

A record is in one segment, and after it there is always room for the head of a blank record. `place_records` is the
definition, for one record after the other; `fill_segments` returns the same places for many records at once.

RocketMQ 4.3.0 to 5.3.3: ``CommitLog.DefaultAppendMessageCallback.doAppend``, ``END_FILE_MIN_BLANK_LENGTH``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import InvalidOptionError
from store_core.format.layout import BLANK_SIZE, MagicCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt


_BLANK: Final = struct.Struct(">ii")


def room_for_records(room: int) -> int:
    """Return how many bytes of records fit into the last `room` bytes of a segment; negative if no blank fits."""
    return room - BLANK_SIZE


def has_room(size: int, room: int) -> bool:
    """Return whether records of `size` bytes fit into a segment with `room` bytes left."""
    return size <= room_for_records(room)


def blank_head(room: int) -> bytes:
    """Return the bytes that close a segment with `room` bytes left.

    That is the head of a blank record that spans all of them: RocketMQ, too, writes no more since 4.9.1. No writer
    leaves fewer bytes than a head; in a foreign file that does, they become zeros.
    """
    return _BLANK.pack(room, MagicCode.BLANK) if room >= BLANK_SIZE else bytes(room)


def place_records(sizes: Iterable[int], room: int, segment_size: int) -> list[tuple[int, int]]:
    """Place records one after the other.

    * `sizes`: Bytes of each record.
    * `room`: Bytes left in the segment in which the log ends; 0 without one.
    * `segment_size`: Bytes of each segment after that.

    Returns: For each record the number of its segment, 0 for the one with `room` bytes left, and its position there, in
    bytes from the segment's start; in segment 0 from the end of the log. A segment that is followed by another is
    closed by `blank_head`.
    """
    segment = position = 0
    places = []
    for row, size in enumerate(sizes):
        if not has_room(size, room):
            segment, position, room = segment + 1, 0, segment_size
            if not has_room(size, room):
                raise _too_large(row, size, segment_size)
        places.append((segment, position))
        position += size
        room -= size
    return places


def fill_segments(starts: npt.NDArray[np.int64], room: int, segment_size: int) -> Iterator[slice]:
    """Yield the records that go to each segment; equal to `place_records`.

    * `starts`: int64, shape (n + 1,): where each record begins if they are placed back to back, and where the last one
      ends.

    Yields: Rows that are placed back to back: first those in the segment with `room` bytes left, which may be empty,
    then those in each segment after it.
    """
    row, count = 0, starts.size - 1
    while True:
        stop = int(np.searchsorted(starts, starts[row] + room_for_records(room), side="right")) - 1
        stop = max(stop, row)
        yield slice(row, stop)
        if stop == count:
            return
        row, room = stop, segment_size
        if not has_room(size := int(starts[row + 1] - starts[row]), room):
            raise _too_large(row, size, segment_size)


def _too_large(row: int, size: int, segment_size: int) -> InvalidOptionError:
    return InvalidOptionError(
        f"record {row} has {size} bytes: expected at most {room_for_records(segment_size)}, for which a segment of "
        f"{segment_size} bytes has room; leave it out, or write to a store with larger segments"
    )
