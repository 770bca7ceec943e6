# SPDX-License-Identifier: Apache-2.0
"""The chain of lengths that leads from record to record through a segment.

`store_core.format.columnar.lockstep.chain` follows the lengths of one window; a `Chain` goes from window to window. It
breaks where size and magic code are not those of a record. A record whose parts do not add up to its size does not
break it: readers of the records measure them anyway, and continue with `store_core.format.salvage` from the
first that is not sound.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.format.columnar.lockstep import chain, count_sound
from store_core.format.layout import BLANK_SIZE
from store_core.format.record.scan import Framing, StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.format.segment_view import SegmentView


_LARGEST: Final = 8 << 20
"""Bytes of a window, which are still in the processor's cache when they are decoded; each costs numpy 0.3 ms."""

_LEAST: Final = 1 << 20
"""Bytes of the first window, and of those for batches of few rows."""

_SPARE: Final = 32
"""Part of a window's rows that are left free, for records that are smaller than those before: a second batch of a few
rows would take nearly as long as the first."""

_LANE_RECORDS: Final = 24
"""Records of a lane of `lockstep.chain`, by the size of those before: searching for lanes takes as long as steps do."""


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a segment that a walk has reached."""

    position: int = 0  # where to continue, in bytes from the segment's start
    last_sound: int = -1  # start of the last sound record before it; -1 if there is none


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Records, or entries that hold them, that follow one another."""

    starts: npt.NDArray[np.int64]
    """int64, shape (n,), n >= 1, ascending: positions in the segment; those of entries in a DLedger log."""
    stop: int  # where the last one ends

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
class Window:
    """Frames that follow one another, and their bytes."""

    raw: npt.NDArray[np.uint8]  # uint8, shape (m,): until the next window is read
    base: int  # position in the segment of its first byte
    run: Run  # at least one frame; positions in `raw`
    previous: int = -1
    """Position in `raw` of the sound frame before the first one; -1 if that is not needed, or there is none."""
    is_last: bool = False  # whether the chain is known to end with it

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Positions in the segment of its frames."""
        return self.run.starts + self.base

    @property
    def stop(self) -> int:
        """Position in the segment at which the last frame ends."""
        return self.run.stop + self.base

    @property
    def place(self) -> Place:
        """The position after it, if all its frames are sound."""
        return Place(self.stop, int(self.run.starts[-1]) + self.base)

    def sound(self, segment: SegmentView) -> Window | None:
        """Return the window without its frames from the first one on that is not sound; None for none of them.

        They are measured while they are in the cache.
        """
        starts = self.run.starts
        offset = segment.start_offset + self.base
        count = count_sound(self.raw, starts, offset, segment.framing, previous=self.previous)
        if count == starts.size:
            return self
        return replace(self, run=Run(starts[:count], int(starts[count])), is_last=True) if count else None


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The records of a segment by their sizes and magic codes alone."""

    segment: SegmentView
    kept: tuple[Run, ...] = ()  # the chain from `begin`, as far as it is kept for further readers: 8 bytes per record
    begin: Place = field(default_factory=Place)
    """Where the kept part begins: the segment's first byte, or where a record is known to end."""

    @property
    def stop(self) -> int:
        """Where the kept part ends."""
        return self.kept[-1].stop if self.kept else self.begin.position

    @property
    def place(self) -> Place:
        """The place after the kept part, if all its records are sound."""
        return self.kept[-1].place if self.kept else self.begin

    def followed_sound(self) -> Self:
        """Return the chain with all runs kept up to the first record that is not sound."""
        kept: list[Run] = []
        for window in self.windows(self.begin, self.segment.size):
            sound = window.sound(self.segment)
            kept += [Run(sound.starts, sound.stop)] if sound is not None else []
            if sound is not window:
                break
        return replace(self, kept=tuple(kept))

    def windows(self, place: Place, limit: int, most_rows: int = _LARGEST) -> Iterator[Window]:
        """Follow the chain from a place until it breaks, or a frame starts at or after `limit`.

        What the frames are needed for is done while their window is in the processor's cache. A record that a window
        cuts is the first of the next one. One that is larger than a window is read alone, if its lengths add up to its
        size: no field of a damaged record makes much memory be taken.

        * `place`: Where a frame starts.
        * `limit`: Frames that start at or after it are left out.
        * `most_rows`: Frames that are used at once: a window has about as many, or less.
        """
        known = self.starts_before(limit)
        position, last, size = place.position, place.last_sound, _LEAST
        lanes: int | None = None
        while position < min(limit, self.segment.size):
            window = self._known_window(known, position, size) or self._window(position, last, limit, size, lanes)
            if window is None:
                return
            yield window
            if window.is_last:
                return
            run = window.run
            position, last = window.base + run.stop, window.base + int(run.starts[-1])
            size = max(_LEAST, min(_LARGEST, run.size * (most_rows - most_rows // _SPARE) // run.starts.size))
            lanes = max(size * run.starts.size // (run.size * _LANE_RECORDS), 1)

    def _known_window(self, known: npt.NDArray[np.int64], position: int, size: int) -> Window | None:
        """Return the window from a position on if frames are known there; entries have to be compared with others."""
        first = int(np.searchsorted(known, position))
        if first == known.size or known[first] != position or self.segment.framing is Framing.ENTRIES:
            return None
        count = int(np.searchsorted(known, position + size)) - first
        stop = int(known[first + count]) if first + count < known.size else self.stop
        if stop > position + _LARGEST or stop > self.segment.size:
            return None
        raw = self.segment.chunk(position, stop)
        return Window(raw, position, Run(known[first : first + count] - position, raw.size))

    def _window(self, position: int, last: int, limit: int, size: int, lanes: int | None) -> Window | None:
        base = last if self.segment.continues(position, last) else position
        end = min(position + size, self.segment.size)
        window = self._window_of(base, position, end, limit, lanes)
        if window is None:
            end = position + self.segment.proven_size(position)
            window = self._window_of(base, position, end, position + 1) if end > position + size else None
        return window if window is None or base == position else replace(window, previous=last - base)

    def _window_of(self, base: int, position: int, end: int, limit: int, lanes: int | None = None) -> Window | None:
        raw = self.segment.chunk(base, end)
        stop = min(limit - base, raw.size)
        found = chain(raw, position - base, stop, self.segment.start_offset + base, self.segment.framing, lanes=lanes)
        is_cut = found.reason in (StopReason.LIMIT, StopReason.TORN) or raw.size - found.stop < BLANK_SIZE
        is_last = not is_cut or base + raw.size == self.segment.size
        return Window(raw, base, Run(found.starts, found.stop), is_last=is_last) if found.starts.size else None

    def starts_before(self, end: int) -> npt.NDArray[np.int64]:
        """Return the starts in the kept part before a position."""
        runs = takewhile(lambda run: run.starts[0] < end, self.kept)
        starts = np.concatenate([np.empty(0, np.int64), *(run.starts for run in runs)])
        return starts[: np.searchsorted(starts, end)]
