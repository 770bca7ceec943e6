# SPDX-License-Identifier: Apache-2.0
"""Ranges of the log that are lost, and what stands for their records in queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.format.layout import MIN_RECORD_SIZE
from store_core.snapshot.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.queue.consume_queue_unit import CqUnit


_UNREADABLE_SIZE: Final = 2


class StandIn(NamedTuple):
    """The unit to store at the queue offsets of lost records.

    * `physical_offset`, `store_size`, `tags_code`: Fields of the unit.

    RocketMQ has no unit for "nothing here" (ADR 0015). How 4.3.0, 4.9.7 and 5.3.3 treat the candidates:

    * The units before a queue's first one, position 0 and size 2**31 - 1, are below its minimum offset, so nobody
      gets them. Inside a queue, with position 0 the cleaning of queues deletes a file that ends with one, searches by
      time and the correction of the minimum offset go wrong, and a get skips what comes next in the first log file.
    * For a record that can't be read, a get skips **all** units that point into the same log file, up to the first one
      that points into a later file (``DefaultMessageStore.getMessage``, ``rollNextFile``). So a unit that can't be read
      is harmless only if the next record is in a later file than it.
    * All of them expect positions that do not decrease.

    So if the next record is in a later segment than the one before, a stand-in points to two bytes across the start of
    the next record's segment: never readable, and the get continues with that record. In the same segment it repeats
    the unit before the gap: a consumer gets that record again, once for each offset, which at-least-once delivery
    allows, and no existing record is skipped.
    """

    physical_offset: int
    store_size: int
    tags_code: int
    is_copy: bool  # whether it repeats the unit before the gap, so that consumers get that record again

    @classmethod
    def between(cls, last: CqUnit, next_segment: int) -> StandIn:
        """Choose the unit for a gap.

        * `last`: The unit before the gap.
        * `next_segment`: Physical offset of the first byte of the segment that has the record after it.
        """
        if next_segment > last.physical_offset:
            return cls(next_segment - 1, _UNREADABLE_SIZE, 0, is_copy=False)
        return cls(last.physical_offset, last.store_size, last.tags_code, is_copy=True)


_SHOWN: Final = 1000
"""Maximum ranges of a segment that are listed individually."""

_CARRIED: Final = 10_000
"""Maximum ranges of a segment whose bounds are kept exactly; a segment with more was crafted."""


class LostRange(NamedTuple):
    """Bytes of a segment without a readable record.

    * `begin`, `end`: Physical offsets.
    """

    begin: int
    end: int
    reason: str  # why there is no record at `begin`


class LostRanges:
    """Collects the lost ranges of one segment, in ascending order.

    * `count`, `size`: Number of ranges, and bytes in them.
    """

    def __init__(self) -> None:
        self.count = self.size = 0
        self.first: list[LostRange] = []
        self._bounds: list[tuple[int, int]] = []

    def add(self, begin: int, end: int, reason: str) -> None:
        """Add a range that begins at or after the end of the previous one."""
        self.count += 1
        self.size += end - begin
        if len(self.first) < _SHOWN:
            self.first.append(LostRange(begin, end, reason))
        if len(self._bounds) < _CARRIED:
            self._bounds.append((begin, end))
        else:
            self._bounds[-1] = (self._bounds[-1][0], end)

    def holds(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which physical offsets are in a lost range."""
        return LostBytes((), [self.packed()]).holds(offsets)

    def packed(self) -> bytes:
        """Pack the bounds of all ranges for `LostBytes`; after 10,000 ranges the bytes in between are included."""
        return np.array(self._bounds, np.int64).tobytes()


class LostBytes:
    """Computes how many bytes of a log are lost between two offsets: in damaged ranges and missing segments.

    * `segments`: The log's segments, in order.
    * `packed`: Results of `LostRanges.packed`.
    """

    def __init__(self, segments: Sequence[Segment], packed: Iterable[bytes] = ()) -> None:
        listed = np.array(Log(tuple(segments)).missing, np.int64).reshape(-1, 2)
        found = [np.frombuffer(each, np.int64).reshape(-1, 2) for each in packed]
        ranges = np.concatenate([listed, *found])
        ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
        self._begins, self._ends = ranges[:, 0], ranges[:, 1]
        self._before = np.concatenate(([0], np.cumsum(self._ends - self._begins)))
        self._starts = np.array([segment.start_offset for segment in segments], np.int64)
        self.total = int(self._before[-1])

    def between(self, begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Count the lost bytes from each `begin` to its `end`, both physical offsets; int64, shape (n,)."""
        return self._up_to(end) - self._up_to(begin)

    def holds(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which physical offsets are lost."""
        return self.between(offsets, offsets + 1) > 0

    def _up_to(self, offset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        number = np.searchsorted(self._begins, offset, "right")
        if not self._ends.size:
            return np.zeros(len(offset), np.int64)
        excess = np.where(number > 0, self._ends[number - 1] - offset, 0)
        up_to: npt.NDArray[np.int64] = self._before[number] - np.maximum(excess, 0)
        return up_to

    @property
    def log_start(self) -> int:
        """Physical offset of the log's first byte."""
        return int(self._starts[0]) if self._starts.size else 0

    def segment_start(self, offset: int) -> int:
        """Return the physical offset of the first byte of the segment that holds an offset."""
        number = int(np.searchsorted(self._starts, offset, "right"))
        return int(self._starts[max(number - 1, 0)]) if self._starts.size else 0


_FREE_UNITS: Final = 1 << 20


class MissingOffsets(NamedTuple):
    """Queue offsets whose records are lost.

    * `first`, `last`: Queue offsets, both included.
    """

    first: int
    last: int
    stand_in: str
    """What a get finds there: ``"repeated"``, the preceding record once for each; ``"skipped"``, nothing; ``"below"``,
    nothing, because the queue begins after them."""


class FillBudget:
    """Limits the stand-ins a task may write, so that a crafted log can't fill the disk.

    A record takes at least 91 bytes, which bounds the records that damage can have held; but the same record may be in
    many light queues, so some stand-ins are free.
    """

    def __init__(self, lost: LostBytes) -> None:
        self.lost = lost
        self._left = _FREE_UNITS + lost.total // MIN_RECORD_SIZE

    def take(self, count: int) -> bool:
        """Use up `count` stand-ins if that many are left; return whether they were."""
        if count > self._left:
            return False
        self._left -= count
        return True
