# SPDX-License-Identifier: Apache-2.0
"""Units on their way into a queue, and how many of the next ones are treated alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE, coverages, stored_units

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.format.releases.release_rules import ReleaseRules
    from store_core.queue.units.consume_queue_unit import UnitArray

__all__ = ["UnitRun"]

_SMALLEST_WINDOW: Final = 64
_FIRST_WINDOW: Final = 4096
_LARGEST_WINDOW: Final = 1 << 16


class UnitRun:
    """Columns of units and a current place in them.

    Each method looks at a window of the next units, which grows while all units of a window are treated alike, and
    shrinks when they are not: the cost of a run is proportional to its length, however often the treatment changes.

    Parameters
    ----------
    features : ReleaseRules
        Decide how much of the log a unit covers.
    """

    def __init__(
        self,
        physical_offset: npt.NDArray[np.int64],
        size: npt.NDArray[np.int64],
        tags_code: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
        features: ReleaseRules,
    ) -> None:
        self._units = stored_units(physical_offset, size, tags_code)
        self._queue_offsets = queue_offset
        self._positions = queue_offset * CQ_STORE_UNIT_SIZE
        self._covers = coverages(self._units, features)
        self._at = 0
        self._window = _FIRST_WINDOW

    @property
    def remaining(self) -> int:
        """How many units are left."""
        return len(self._units) - self._at

    def take_one(self) -> tuple[int, int, int, int]:
        """Take the next unit: return its physical offset, size, tags code and queue offset."""
        at = self._at
        self._at += 1
        physical_offset, size, tags_code = self._units[at].item()
        return physical_offset, size, tags_code, int(self._queue_offsets[at])

    def skip_covered(self, max_physical_offset: int) -> int:
        """Skip the next units whose records are already covered; return how many."""
        count = self._count(self._covers[self._next] <= max_physical_offset)
        self._at += count
        return count

    def skip_behind(self, end: int) -> bool:
        """Skip the next units whose index lies before the end of the queue, `end` in bytes; return whether any did."""
        positions = self._positions[self._next]
        count = self._count((positions != 0) & (positions < end))
        self._at += count
        return count > 0

    def count_appended(self, max_physical_offset: int, end: int, room: int) -> int:
        """Count the next units that are appended one after the other, at most `room`.

        The count goes on while each unit covers more than the one before, and has index 0, or one that is not before
        the place where it is appended.
        """
        part = self._next
        covers = self._covers[part]
        positions = self._positions[part]
        before = np.concatenate(([max_physical_offset], covers[:-1]))
        places = end + np.arange(len(positions)) * CQ_STORE_UNIT_SIZE
        return min(room, self._count((covers > before) & ((positions == 0) | (positions >= places))))

    def count_misplaced(self, count: int, end: int) -> int:
        """Count those of the next units whose index lies after the place where they are appended."""
        places = end + np.arange(count) * CQ_STORE_UNIT_SIZE
        return int(np.count_nonzero(self._positions[self._at : self._at + count] > places))

    def units(self, count: int) -> UnitArray:
        """Return the next units as they are stored."""
        return self._units[self._at : self._at + count]

    def advance(self, count: int) -> int:
        """Skip units that were appended; return the physical offset up to which they cover the log."""
        self._at += count
        return int(self._covers[self._at - 1])

    @property
    def _next(self) -> slice:
        return slice(self._at, self._at + self._window)

    def _count(self, fates: npt.NDArray[np.bool_]) -> int:
        """Count the leading trues, and adapt the next window to them."""
        if fates.all():
            self._window = min(2 * self._window, _LARGEST_WINDOW)
            return len(fates)
        count = int(fates.argmin())
        if count:
            self._window = max(self._window // 2, _SMALLEST_WINDOW)
        return count
