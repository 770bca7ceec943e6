# SPDX-License-Identifier: Apache-2.0
"""Where the queue offsets of a log do not go on by one: it was cut in the middle, or holds a segment twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from store_core.queue.units.unit_rows import UnitRows

__all__ = ["UnitGap", "UnitGaps"]

_KEPT: Final = 20


class UnitGap(NamedTuple):
    """A record whose queue offset is not the next.

    Attributes
    ----------
    physical_offset : int
    queue_offset : int
        What the record says.
    expected : int
        One more than the record before it in this queue.
    """

    physical_offset: int
    queue_offset: int
    expected: int

    @property
    def kind(self) -> str:
        """``"jump"`` forward, ``"duplicate"`` of the one before, or ``"back"``."""
        if self.queue_offset > self.expected:
            return "jump"
        return "duplicate" if self.queue_offset == self.expected - 1 else "back"


class UnitGaps:
    """Looks at the units of one queue in log order.

    Parameters
    ----------
    expected : int, optional
        The first index that may come; without, any.

    Attributes
    ----------
    count : int
    first : list of UnitGap
        The first few.
    """

    def __init__(self, expected: int | None = None) -> None:
        self._expected = expected
        self.count = 0
        self.first: list[UnitGap] = []

    def expect(self, queue_offset: int) -> None:
        """Expect this offset next: those before it are known to be missing."""
        self._expected = queue_offset

    def look_at(self, units: UnitRows) -> None:
        """Look at the next units."""
        offsets = units.queue_offset
        if not len(offsets):
            return
        first = int(offsets[0]) if self._expected is None else self._expected
        expected = np.concatenate(([first], offsets[:-1] + 1))
        places = np.flatnonzero(offsets != expected)
        self.count += len(places)
        for place in places[: _KEPT - len(self.first)].tolist():
            self.first.append(UnitGap(int(units.physical_offset[place]), int(offsets[place]), int(expected[place])))
        self._expected = int(offsets[-1]) + 1
