# SPDX-License-Identifier: Apache-2.0
"""Ranges of a log without a readable record, and how many bytes of them lie between two records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.snapshot.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment

__all__ = ["LostBytes", "LostRange", "LostRanges"]

_SHOWN: Final = 1000
"""Maximum ranges of a segment that are listed individually."""

_CARRIED: Final = 10_000
"""Maximum ranges of a segment whose bounds are kept exactly; a segment with more was crafted."""


class LostRange(NamedTuple):
    """Bytes of a segment without a readable record.

    Attributes
    ----------
    begin, end : int
        Physical offsets.
    reason : str
        Why there is no record at `begin`.
    """

    begin: int
    end: int
    reason: str


class LostRanges:
    """Collects the lost ranges of one segment, in ascending order.

    Attributes
    ----------
    count, size : int
        Number of ranges, and bytes in them.
    first : list of LostRange
        The first ranges.
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
        bounds = np.array(self._bounds, np.int64).reshape(-1, 2)
        number = np.searchsorted(bounds[:, 0], offsets, "right")
        ends = np.concatenate((np.zeros(1, np.int64), bounds[:, 1]))
        return np.asarray(offsets < np.where(number > 0, ends[number], np.iinfo(np.int64).min))

    def packed(self) -> bytes:
        """Pack the bounds of all ranges for `LostBytes`; after 10,000 ranges the bytes in between are included."""
        return np.array(self._bounds, np.int64).tobytes()


class LostBytes:
    """Computes how many bytes of a log are lost between two offsets: in damaged ranges and missing segments.

    Parameters
    ----------
    segments : sequence of Segment
        The log's segments, in order.
    packed : iterable of bytes
        Results of `LostRanges.packed`.

    Attributes
    ----------
    total : int
        Total bytes lost.
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
