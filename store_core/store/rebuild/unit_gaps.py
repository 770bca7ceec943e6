# SPDX-License-Identifier: Apache-2.0
"""Finding where a log's queue offsets do not increase by one: records are missing, or a segment is duplicated."""

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
        The record's queue offset.
    expected : int
        One more than that of the previous record in this queue.
    """

    physical_offset: int
    queue_offset: int
    expected: int

    @property
    def kind(self) -> str:
        """``"jump"`` forward, ``"duplicate"`` of the previous one, or ``"back"``."""
        if self.queue_offset > self.expected:
            return "jump"
        return "duplicate" if self.queue_offset == self.expected - 1 else "back"


class UnitGaps:
    """Finds gaps between the units of one queue, in log order.

    Parameters
    ----------
    expected : int, optional
        The expected first index; None for any.

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
        """Expect this offset next; earlier ones are known to be missing."""
        self._expected = queue_offset

    def look_at(self, units: UnitRows) -> None:
        """Examine the next units."""
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
