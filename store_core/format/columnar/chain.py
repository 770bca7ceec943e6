# SPDX-License-Identifier: Apache-2.0
"""The chain of lengths that leads from record to record through a segment.

`store_core.format.columnar.lockstep.chain` follows the lengths of one window; a `Chain` goes from window to window. It
breaks where size and magic code are not those of a record. A record whose parts do not add up to its size does not
break it: readers of the records measure them anyway, and continue with `store_core.format.damage.salvage` from the
first that is not sound.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.format.columnar.lockstep import chain, count_sound

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.format.segment_view import Frames, SegmentView

__all__ = ["Chain", "Place", "Run"]

_WINDOW: Final = 256 << 20
"""Bytes followed in one step: only the starts in them are held, 8 bytes per record."""

_BEYOND: Final = 4 << 10
"""Bytes after a window that following its lengths may touch: the head of a record, read in whole words."""

_KNOWN_WINDOW: Final = 1 << 20
"""Bytes followed first from where a log ended before: little may have been added."""


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a segment that a walk has reached.

    Attributes
    ----------
    position : int
        Where to continue, in bytes from the segment's start.
    last_sound : int
        Start of the last sound record before it; -1 if there is none.
    """

    position: int = 0
    last_sound: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Records, or entries that hold them, that follow one another.

    Attributes
    ----------
    starts : numpy.ndarray
        int64, shape (n,), n >= 1, ascending: positions in the segment; those of entries in a DLedger log.
    stop : int
        Where the last one ends.
    """

    starts: npt.NDArray[np.int64]
    stop: int

    @property
    def size(self) -> int:
        """Size of its records, in bytes."""
        return self.stop - int(self.starts[0])

    @property
    def bounds(self) -> npt.NDArray[np.int64]:
        """Where its records start, and where the last one ends; shape (n + 1,)."""
        return np.append(self.starts, self.stop)

    @property
    def place(self) -> Place:
        """The position after it, if all its records are sound."""
        return Place(self.stop, int(self.starts[-1]))

    def between(self, begin: int, end: int) -> Run | None:
        """Return the records that start in a range; None if none do."""
        first, last = np.searchsorted(self.starts, (begin, end)).tolist()
        if first >= last:
            return None
        return Run(self.starts[first:last], int(self.starts[last]) if last < self.starts.size else self.stop)


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The records of a segment by their sizes and magic codes alone.

    Attributes
    ----------
    segment : SegmentView
    kept : tuple of Run
        The chain from `begin`, as far as it is kept for further readers: 8 bytes per record.
    begin : Place
        Where the kept part begins: the segment's first byte, or where a record is known to end.
    """

    segment: SegmentView
    kept: tuple[Run, ...] = ()
    begin: Place = field(default_factory=Place)

    @property
    def stop(self) -> int:
        """Where the kept part ends."""
        return self.kept[-1].stop if self.kept else self.begin.position

    @property
    def place(self) -> Place:
        """The place after the kept part, if all its records are sound."""
        return self.kept[-1].place if self.kept else self.begin

    def up_to(self, end: int) -> Self:
        """Return the chain of the segment without the bytes from a position on, which must not cut a record."""
        return replace(self, segment=self.segment.up_to(end))

    def followed(self) -> Self:
        """Return the chain with all runs kept, from `begin` to where it breaks."""
        window = _KNOWN_WINDOW if self.begin.position else None
        return replace(self, kept=tuple(self.runs(self.begin.position, window=window)))

    def followed_sound(self) -> Self:
        """Return the chain with all runs kept up to the first record that is not sound.

        That is the sound part of `followed`, found in one pass that needs no byte twice, for segments with pages.
        """
        segment, pages = self.segment, self.segment.pages
        kept: list[Run] = []
        previous = self.begin.last_sound
        for run in self.runs(self.begin.position):
            count = count_sound(segment.raw, run.starts, segment.start_offset, segment.framing, previous=previous)
            sound = run if count == run.starts.size else run.between(0, int(run.starts[count]))
            kept += [sound] if sound is not None else []
            if sound is not run:
                break
            previous = run.place.last_sound
            pages.drop(previous)
        return replace(self, kept=tuple(kept))

    def starts_before(self, end: int) -> npt.NDArray[np.int64]:
        """Return the starts in the kept part before a position."""
        runs = takewhile(lambda run: run.starts[0] < end, self.kept)
        starts = np.concatenate([np.empty(0, np.int64), *(run.starts for run in runs)])
        return starts[: np.searchsorted(starts, end)]

    def runs(self, begin: int = 0, end: int | None = None, *, window: int | None = None) -> Iterator[Run]:
        """Follow the chain from a record; the kept part is not followed again.

        Parameters
        ----------
        begin : int
            Position where a record starts.
        end : int, optional
            Records that start at or after it are omitted.
        window : int, optional
            Bytes to follow in the first step, doubled each time: if a break is likely soon, following far beyond it
            would be wasted.

        Yields
        ------
        Run
            In order; the chain ends where the last one stops.
        """
        limit = self.segment.size if end is None else min(end, self.segment.size)
        pages, position, length = self.segment.pages, begin, window or _WINDOW
        for run in self._kept_from(begin, limit):
            if self._narrow(int(run.starts[0]), run.stop)[1] != run.stop:
                pages.load(int(run.starts[0]), run.stop)
            yield run
            position = run.stop
        while position < limit:
            goal = min(position + min(length, pages.step), limit)
            starts, stop = self._narrow(position, goal)
            is_whole = not starts.size
            if is_whole:
                starts, stop = self._followed_whole(position, goal)
            if starts.size:
                yield Run(starts, stop)
            position, length = stop, min(2 * length, _WINDOW)
            if is_whole and position < goal:
                return

    def _narrow(self, begin: int, goal: int) -> Frames:
        """Follow the chain without loading bodies; no frame if only all of the bytes tell."""
        found = self.segment.pages.follow(begin, goal, self.segment.size)
        return (np.empty(0, np.int64), begin) if found is None else found

    def _followed_whole(self, begin: int, goal: int) -> Frames:
        """Follow the chain with all bytes loaded."""
        segment = self.segment
        segment.pages.load(begin, min(goal + _BEYOND, segment.size))
        found = chain(segment.raw, begin, goal, segment.start_offset, segment.framing)
        if found.starts.size:
            segment.pages.load(goal, found.stop)
        return found.starts, found.stop

    def _kept_from(self, begin: int, end: int) -> Iterator[Run]:
        """Yield the kept part of the chain from a position, if a kept record starts there."""
        position = begin
        for run in self.kept:
            part = run.between(position, end) if run.stop > position else None
            if part is None:
                continue
            if part.starts[0] != position:
                return
            yield part
            position = part.stop

    def sound_part(self) -> Self:
        """Return the chain with only the kept records before the first that is not sound."""
        sound: list[Run] = []
        segment, previous = self.segment, self.begin.last_sound
        for run in self.kept:
            count = count_sound(segment.raw, run.starts, segment.start_offset, segment.framing, previous=previous)
            if count < run.starts.size:
                part = run.between(0, int(run.starts[count]))
                return replace(self, kept=(*sound, *([part] if part else [])))
            sound.append(run)
            previous = run.place.last_sound
        return self
