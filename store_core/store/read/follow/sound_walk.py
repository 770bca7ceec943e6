# SPDX-License-Identifier: Apache-2.0
"""The sound records and the damage of a segment from a place on, in steps: what follows a limit is not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.format.columnar.chain import Chain, Place, Run
from store_core.format.columnar.lockstep import count_sound
from store_core.format.damage.salvage import Salvage

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from store_core.format.damage.salvage import Damage
    from store_core.format.segment_view import SegmentView

__all__ = ["FIRST_STEP", "sound_parts"]

FIRST_STEP: Final = 1 << 20
"""Bytes walked in the first step, doubled each time, if nothing is known of how many are needed."""

_SOUND_AGAIN: Final = 1 << 20
"""Bytes of sound records after damage from which on the chain is followed again, as readers do."""


def sound_parts(
    segment: SegmentView, place: Place, *, only_newer: bool, first_step: int = FIRST_STEP
) -> Iterator[Run | Damage]:
    """Yield sound records and damaged ranges in log order, as readers of the segment find them.

    Parameters
    ----------
    segment : SegmentView
        The segment up to where it is to be walked.
    place : Place
        The segment's first byte, or one past a sound record.
    only_newer : bool
        As of `Salvage`.
    first_step : int
        Bytes to walk in the first step, doubled each time: many at once are walked faster.
    """
    while place.position < segment.size:
        place = yield from _chained(segment, place, first_step)
        if place.position >= segment.size:
            return
        following = yield from _salvaged(segment, place, only_newer=only_newer)
        if following is None:
            return
        place = following


def _chained(segment: SegmentView, place: Place, first_step: int) -> Generator[Run, None, Place]:
    """Follow the chain to its end, or to the first record that is not sound; return the place."""
    for run in Chain(segment).runs(place.position, window=first_step):
        sound = count_sound(segment.raw, run.starts, segment.start_offset)
        if sound == run.starts.size:
            yield run
            place = run.place
            segment.pages.drop(place.last_sound)
            continue
        part = run.between(0, int(run.starts[sound]))
        if part is not None:
            yield part
            place = part.place
        return place
    return place


def _salvaged(segment: SegmentView, place: Place, *, only_newer: bool) -> Generator[Run | Damage, None, Place | None]:
    """Walk through damage; return where the segment is sound again, None at its end."""
    for part in Salvage(segment, only_newer=only_newer).parts(place):
        yield part
        if isinstance(part, Run) and part.size >= _SOUND_AGAIN:
            return part.place
    return None
