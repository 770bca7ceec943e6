# SPDX-License-Identifier: Apache-2.0
"""Records that planning a batch has passed, from which its tasks walk on instead of from the batch's first record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from store_core.store.read.follow.log_segments import Stretch
    from store_core.store.read.ranges import ReadRange

__all__ = ["Waypoints"]

_STEP: Final = 1 << 20
"""Bytes from one waypoint to the next: about as many are walked at most before a range begins."""


@dataclass(slots=True)
class _Passed:
    """A walk through one segment, as physical offsets: records at which others may start, and where it has stopped."""

    stop: int
    offsets: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Waypoints:
    """Some of the sound records that a walk has passed in each segment, up to the first damage in it.

    They only spare walking: a range has the same rows without them.
    """

    begin: int  # physical offset at which the walk began
    _passed: dict[int, _Passed] = field(default_factory=dict)

    def add(self, stretch: Stretch) -> None:
        """Remember the next records of the walk, unless damage precedes them: only a walk through it finds them."""
        segment, starts = stretch.view.start_offset, stretch.run.starts
        passed = self._passed.setdefault(segment, _Passed(max(segment, self.begin)))
        if passed.stop != stretch.begin_offset:
            return
        steps = np.arange(starts[0], starts[-1] + 1, _STEP)
        passed.offsets += (starts[np.unique(np.searchsorted(starts, steps))] + segment).tolist()
        passed.stop = segment + stretch.run.stop

    def walk_start(self, part: ReadRange) -> int | None:
        """Return where the reader of a range can start to walk; as the range itself has it if nothing is nearer."""
        passed = self._passed.get(part.segment.start_offset)
        if passed is None or part.begin > passed.stop:
            return part.walk_start
        number = int(np.searchsorted(passed.offsets, part.begin))
        return passed.offsets[number - 1] if number else part.walk_start
