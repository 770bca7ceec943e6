# SPDX-License-Identifier: Apache-2.0
"""A segment of which there is only what was loaded, to the byte: what is read before is zeros, and shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.format.record.scan import Framing
from store_core.format.segment_view import SegmentView

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["LoadedPages", "paged"]


class LoadedPages:
    """The pages of some bytes."""

    step = 300

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self.raw = np.zeros(len(data), np.uint8)

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return a copy, so that what is used after the next call does not show here, but elsewhere."""
        return self._data[begin:end].copy()

    def load(self, begin: int, end: int) -> None:
        """Copy the bytes of a range to their place."""
        part = slice(max(begin, 0), max(end, 0))
        self.raw[part] = self._data[part]

    def drop(self, end: int) -> None:
        """Make the bytes before a position zeros."""
        self.raw[: max(end, 0)] = 0


def paged(data: bytes, start_offset: int, framing: Framing = Framing.RECORDS) -> SegmentView:
    """Return a segment of which nothing is loaded."""
    pages = LoadedPages(data)
    return SegmentView(pages.raw, start_offset, framing=framing, pages=pages)
