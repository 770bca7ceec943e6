# SPDX-License-Identifier: Apache-2.0
"""Two logs that are compared: which offsets both have, and in which parts they are compared."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from store_core.store.log_side import LogSide
from store_core.store.segment_diff import DiffPart, PartSide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.store_path import StorePaths

__all__ = ["LogPair"]


@dataclass(frozen=True, slots=True)
class LogPair:
    """Two logs, as they were when the comparison was planned."""

    a: LogSide
    b: LogSide

    @classmethod
    def of(cls, a: StorePaths, b: StorePaths) -> LogPair:
        """Find where both logs begin and end."""
        return cls(LogSide.of("a", a), LogSide.of("b", b))

    @property
    def begin(self) -> int:
        """Physical offset from which on both have bytes."""
        return max(self.a.begin, self.b.begin)

    @property
    def end(self) -> int:
        """Physical offset up to which bytes are compared; not after `begin` if there is nothing to compare."""
        return max(min(self.a.compared_end, self.b.compared_end), self.begin)

    @property
    def is_cut_alike(self) -> bool:
        """Whether no segment file of one log begins inside one of the other.

        If one does, the two have files of different sizes: their messages may be the same, but not at the same offsets,
        since a record does not cross the end of a file.
        """
        return not (self._begins_inside(self.a, self.b) or self._begins_inside(self.b, self.a))

    def _begins_inside(self, one: LogSide, other: LogSide) -> bool:
        starts = (each.start_offset for each in one.segments if self.begin <= each.start_offset < self.end)
        holders = ((start, other.at(start)) for start in starts)
        return any(holder is not None and holder.start_offset != start for start, holder in holders)

    def parts(self, most_rows: int) -> Iterator[DiffPart]:
        """Yield the parts in log order: those of what both should have, then those in which one log is ahead."""
        for begin, end in pairwise(self._cuts()):
            a, b = (self._share(side, begin) for side in (self.a, self.b))
            if a is not None or b is not None:
                yield DiffPart(begin, end, a, b, is_compared=True, most_rows=most_rows)
        for side, other in ((self.a, self.b), (self.b, self.a)):
            for begin, end, segment in side.covered(max(self.end, other.end, side.begin), side.end):
                share = PartSide.of(side, segment, other)
                a, b = (share, None) if side is self.a else (None, share)
                yield DiffPart(begin, end, a, b, is_compared=False, most_rows=most_rows)

    def _cuts(self) -> list[int]:
        """Return the offsets at which a file of either log begins or ends, within what is compared."""
        covered = [part for side in (self.a, self.b) for part in side.covered(self.begin, self.end)]
        return sorted({cut for begin, end, _ in covered for cut in (begin, end)})

    def _share(self, side: LogSide, offset: int) -> PartSide | None:
        segment = side.at(offset)
        other = self.b if side is self.a else self.a
        return None if segment is None else PartSide.of(side, segment, other)
