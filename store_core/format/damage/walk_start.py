# SPDX-License-Identifier: Apache-2.0
"""Positions where a walk through a segment can start with the same result as from its first byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.format.columnar.lockstep import count_sound
from store_core.format.segment_view import AllThere

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.format.columnar.chain import Chain

__all__ = ["find_walk_starts"]


def find_walk_starts(chain: Chain, begins: Sequence[int]) -> list[int | None]:
    """Return where walks can start that need only what starts at or after some positions.

    Parameters
    ----------
    chain : Chain
        Its kept records are measured here as far as needed.
    begins : sequence of int
        The positions.

    Returns
    -------
    list of int or None
        For each position the start of the last record before it: the only extra record of the walk, with whose store
        time a walk that starts at damage compares. None where that is the segment's first byte, and where a record that
        is not sound, or the chain's end, is before the position: only a walk from the start finds the way then.
    """
    starts = chain.starts_before(max(begins, default=0))
    segment = chain.segment
    sound = starts.size
    if isinstance(segment.pages, AllThere):  # with pages, only sound records were kept, and their bytes may be gone
        sound = count_sound(segment.raw, starts, segment.start_offset, segment.framing, previous=chain.begin.last_sound)
    end = int(starts[sound]) if sound < starts.size else chain.stop
    numbers = np.searchsorted(starts, begins).tolist()
    return [
        int(starts[number - 1]) if number and begin <= end else None
        for number, begin in zip(numbers, begins, strict=True)
    ]
