# SPDX-License-Identifier: Apache-2.0
"""Picked records of a segment: read window by window, without what lies between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import CorruptRecordError
from store_core.files.segment_source import open_file, open_pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from store_core.files.segment_source import PagedBytes, Segment
    from store_core.store.read.picks import Picks

__all__ = ["PickWindow", "PickWindows"]

_AT_ONCE: Final = 8 << 20
"""Bytes of records that are read, checked and decoded at once."""

_MOST_KEPT: Final = 64 << 20
"""Bytes of records up to which what was read to check them stays for those who decode them."""


@dataclass(frozen=True, slots=True, eq=False)
class PickWindow:
    """Some of the records, and their bytes."""

    picks: Picks
    segment: Segment
    raw: npt.NDArray[np.uint8]  # uint8, shape (m,): the records one after another, with what precedes each in its frame
    positions: npt.NDArray[np.int64]  # int64, shape (n,), ascending: where the records are in `raw`

    def first_wrong(self) -> int | None:
        """Return the physical offset of the first record that is not what its unit says; None if all are."""
        is_right = self.picks.are_right(self.raw, self.segment, self.positions)
        return None if is_right.all() else int(self.picks.starts[int(is_right.argmin())])

    def start_offsets(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return what to add to positions in records to get their physical offsets; int64, of the same shape."""
        rows = np.searchsorted(self.positions, positions, "right") - 1
        found: npt.NDArray[np.int64] = (self.picks.starts - self.positions)[rows]
        return found


class PickWindows:
    """The picked records of one segment, which is opened.

    * `data_end`: Physical offset at which its records end.
    * `most_rows`: Records of a window.
    * `pages`: Of a segment on another machine: what planning has loaded of it, which is there without a request.
    """

    def __init__(
        self,
        picks: Picks,
        segment: Segment,
        data_end: int,
        most_rows: int | None = None,
        pages: PagedBytes | None = None,
    ) -> None:
        self._segment = segment
        self._end = data_end
        self._parts = list(picks.windows(_AT_ONCE, most_rows))
        self._kept: list[PickWindow] = []
        self._file = open_file(segment) if segment.is_plain else None
        self._pages = open_pages(segment) if self._file is None and pages is None else pages

    def check(self, *, is_kept: bool = False) -> int | None:
        """Return the physical offset of the first record that is not what its unit says; None if all are.

        * `is_kept`: Whether what was read stays for `checked`, as far as it is not too much.
        """
        room = _MOST_KEPT if is_kept else 0
        for part in self._parts:
            wrong = self._first_outside(part)
            if wrong is not None:
                return wrong
            window = self._read(part)
            wrong = window.first_wrong()
            if wrong is not None:
                return wrong
            room -= part.size
            if room >= 0:
                self._kept.append(window)
        return None

    def checked(self) -> Iterator[PickWindow]:
        """Yield the windows, after `check` has found nothing wrong, as it has seen them."""
        count = len(self._kept)
        while self._kept:
            yield self._kept.pop(0)
        for part in self._parts[count:]:
            window = self._read(part)
            wrong = window.first_wrong()
            if wrong is not None:
                raise self._changed(wrong)
            yield window

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.file.close()
        if self._pages is not None:
            self._pages.__exit__(kind, error, trace)

    def _first_outside(self, part: Picks) -> int | None:
        """Return the physical offset of the first record that does not lie within the records of the segment."""
        begins = part.starts - self._segment.framing.lead
        is_outside = (begins < self._segment.start_offset) | (part.starts + part.sizes > self._end)
        return int(part.starts[int(is_outside.argmax())]) if is_outside.any() else None

    def _read(self, part: Picks) -> PickWindow:
        """Read records with what precedes them in their frames."""
        lead = self._segment.framing.lead
        sizes = part.sizes + lead
        raw = self._packed(part.starts - lead - self._segment.start_offset, sizes)
        return PickWindow(part, self._segment, raw, sizes.cumsum() - part.sizes)

    def _packed(self, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the bytes of ranges, one after another."""
        if self._file is not None:
            return self._file.packed(begins, sizes)
        if self._pages is None:
            raise AssertionError("a segment has a file or pages")
        places = list(zip(begins.tolist(), (begins + sizes).tolist(), strict=True))
        self._pages.load_many(places)
        return np.concatenate([self._pages.raw[begin:end] for begin, end in places])

    def _changed(self, offset: int) -> CorruptRecordError:
        return CorruptRecordError(
            "record changed while it was read",
            self._segment.path,
            offset,
            "the record that a queue's unit names, as it was when the read began",
            "another",
            advice="Another process writes to the file; read it again.",
        )
