# SPDX-License-Identifier: Apache-2.0
"""Where a walk through a segment can begin as if it came from the segment's first byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from store_core.format.lockstep import count_sound

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.format.scan import Scan

__all__ = ["WalkStart", "find_walk_starts"]


@dataclass(frozen=True, slots=True)
class WalkStart:
    """A place that the walk from the segment's first byte comes to over sound records alone.

    Attributes
    ----------
    position : int
        Start of a record, or where the chain ends.
    last_sound : int
        Start of the record before it; -1 if there is none.
    """

    position: int = 0
    last_sound: int = -1


def find_walk_starts(
    raw: npt.NDArray[np.uint8], start_offset: int, chained: Scan, begins: Sequence[int]
) -> list[WalkStart | None]:
    """Find where walks can begin that need only what starts at or behind some positions.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,), contiguous: the segment.
    start_offset : int
        Physical offset of its first byte.
    chained : Scan
        Its chain from the first byte on, as of `store_core.format.lockstep.chain`; measured here as far as is needed.
    begins : sequence of int
        The positions, at or before the chain's end.

    Returns
    -------
    list of WalkStart or None
        One for each position; None behind a record that is not sound, where only the walk itself knows.
    """
    numbers = np.searchsorted(chained.starts, begins)
    sound = count_sound(raw, chained.starts[: numbers.max(initial=0)], start_offset)
    return [_walk_start(chained, number) if number <= sound else None for number in numbers.tolist()]


def _walk_start(chained: Scan, number: int) -> WalkStart:
    position = chained.starts[number] if number < chained.starts.size else chained.stop
    return WalkStart(int(position), int(chained.starts[number - 1]) if number else -1)
