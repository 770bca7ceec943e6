# SPDX-License-Identifier: Apache-2.0
"""The bytes of a segment and their place in the log: what every walk works on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, Self

from store_core.format.record.scan import Framing, StopReason, check_frame, frame_size

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt


HEAD: Final = 4 << 10
"""Bytes in which a frame tells its size: more than its head, and most frames."""

_NO_FRAME: Final = (
    StopReason.BAD_MAGIC,
    StopReason.BAD_SIZE,
    StopReason.END_OF_FILE,
    StopReason.LIMIT,
    StopReason.TORN,
    StopReason.UNWRITTEN,
)
"""What the first bytes say where no frame is whose parts could be looked at."""


class Pages(Protocol):
    """What makes a segment's bytes available, part by part, where they are not on a disk of this machine.

    Whoever is given a view with pages loads what it reads. A view without them has all of its bytes.
    """

    @property
    def step(self) -> int:
        """Most bytes that a walk loads at once."""

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes from one position up to another, inside of the segment; the next call overwrites them."""

    def load(self, begin: int, end: int) -> None:
        """Make the bytes from one position up to another available; where they are, nothing happens."""

    def drop(self, end: int) -> None:
        """Take note that the bytes before a position are not read again."""


class AllThere:
    """The pages of a segment that is there as a whole."""

    step: Final = 256 << 20

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Do not answer: the view has the bytes."""
        raise NotImplementedError

    def load(self, begin: int, end: int) -> None:
        """Do nothing."""

    def drop(self, end: int) -> None:
        """Do nothing."""


ALL_THERE: Final = AllThere()


def _no_holes(position: int) -> int:
    return position


@dataclass(frozen=True, slots=True, eq=False)
class SegmentView:
    """The bytes of a segment from its first byte on."""

    raw: npt.NDArray[np.uint8]  # uint8, shape (m,), contiguous
    start_offset: int = 0  # physical offset of the first byte
    next_data: Callable[[int], int] = _no_holes
    """Returns the first position at or after another that may hold anything but zeros."""
    framing: Framing = Framing.RECORDS  # what it is made of
    pages: Pages = ALL_THERE  # makes bytes available
    file_size: int = 0  # bytes of the whole file, if `raw` ends before; else 0

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.raw.size

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes from one position up to another, inside of the segment; the next call overwrites them."""
        return self.raw[begin:end] if isinstance(self.pages, AllThere) else self.pages.chunk(begin, end)

    def load_frame(self, position: int) -> None:
        """Load a frame, with the size that it claims, where its first bytes are those of one."""
        if isinstance(self.pages, AllThere):
            return
        self.pages.load(position, position + HEAD)
        if check_frame(self.raw.data, position, None, self.framing).reason not in _NO_FRAME:
            self.pages.load(position, position + frame_size(self.raw.data, position, self.framing))

    def up_to(self, end: int) -> Self:
        """Return the same segment without the bytes at and after a position."""
        return replace(self, raw=self.raw[:end], file_size=self.file_size or self.size)

    def of_records(self) -> SegmentView:
        """Return the view in which each frame's position is that of its record: without the lead of the first."""
        lead = self.framing.lead
        if not lead:
            return self
        pages = self.pages if isinstance(self.pages, AllThere) else _PagesBehind(self.pages, lead)
        return SegmentView(
            self.raw[lead:], self.start_offset + lead, lambda at: self.next_data(at + lead) - lead, pages=pages
        )


@dataclass(frozen=True, slots=True, eq=False)
class _PagesBehind:
    """The pages of a segment without its first bytes."""

    pages: Pages
    lead: int

    @property
    def step(self) -> int:
        return self.pages.step

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        return self.pages.chunk(begin + self.lead, end + self.lead)

    def load(self, begin: int, end: int) -> None:
        self.pages.load(begin + self.lead, end + self.lead)

    def drop(self, end: int) -> None:
        self.pages.drop(end + self.lead)
