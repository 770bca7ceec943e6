# SPDX-License-Identifier: Apache-2.0
"""Where a walk through a segment can begin as if it came from the segment's first byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.format.columnar.lockstep import count_sound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.format.columnar.chain import Chain

__all__ = ["find_walk_starts"]


def find_walk_starts(chain: Chain, begins: Sequence[int]) -> list[int | None]:
    """Find where walks can begin that need only what starts at or after some positions.

    Parameters
    ----------
    chain : Chain
        What is kept of it is measured here as far as is needed.
    begins : sequence of int
        The positions.

    Returns
    -------
    list of int or None
        For each position the start of the last record before it: the walk's only record that is not asked for, and what
        a walk that begins at damage compares store times with. None where that is the segment's first byte, and where a
        record that is not sound, or the chain's end, lies before the position: only the walk itself knows the way then.
    """
    starts = chain.starts_before(max(begins, default=0))
    sound = count_sound(chain.segment.raw, starts, chain.segment.start_offset)
    end = int(starts[sound]) if sound < starts.size else chain.stop
    numbers = np.searchsorted(starts, begins).tolist()
    return [
        int(starts[number - 1]) if number and begin <= end else None
        for number, begin in zip(numbers, begins, strict=True)
    ]
