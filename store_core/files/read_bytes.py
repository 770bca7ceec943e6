# SPDX-License-Identifier: Apache-2.0
"""The bytes of a local segment file in memory of its size, read by `pread` as far as they are needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.filled_memory import FilledMemory
from store_core.files.local_file import LocalBytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.files.local_file import LocalFile

__all__ = ["ReadBytes"]

_PAGE: Final = 4 << 10
_PIECE: Final = 4 << 20
"""Bytes of one read, and of which memory is given back at once if all are zeros."""

_LITTLE: Final = 64 << 10
"""Bytes up to which a range is read with the holes in it: looking for them would take longer."""

_STEP: Final = 8 << 20
"""Bytes that a walk loads at once: with fewer, numpy's overhead shows; with more, memory does."""


class ReadBytes(LocalBytes):
    """A local file as an array of its size, whose bytes are there once they are loaded, and zeros otherwise.

    Unlike a mapping, it can't kill the process (SIGBUS) when something truncates the file, or the disk fails: a read
    that gets less than there was is an error with a name. And what was loaded stays as it is, so that what was checked
    is what is decoded, whatever is written to the file meanwhile.

    Parameters
    ----------
    file : LocalFile
        Closed by `__exit__`.
    is_walked : bool
        Whether pages are loaded one after another, and not here and there, where huge ones would be cleared for little.

    Attributes
    ----------
    raw : numpy.ndarray
        uint8, shape (size,), read-only.
    step : int
        See `store_core.format.segment_view.Pages`.
    """

    step = _STEP

    def __init__(self, file: LocalFile, *, is_walked: bool = False) -> None:
        self._file, self._size = file, file.size
        self._memory = FilledMemory(self._size)
        if is_walked:
            self._memory.use_huge_pages()
        self.raw = self._memory.raw
        self._is_loaded = np.zeros(-(-self._size // _PAGE), np.bool_)
        self._window = np.empty(0, np.uint8)
        self._kept = 0
        """Pages before this one were dropped."""

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a range, in memory that the next call uses again; pages are neither needed nor loaded.

        Raises
        ------
        SegmentVanishedError, StoreAccessError
            As `load`.
        """
        size = end - begin
        if self._window.size < size:
            self._window = np.empty(size, np.uint8)
        found = self._window[:size]
        self._read_into(found.data, begin)
        return found

    def load(self, begin: int, end: int) -> None:
        """Make the bytes of a range available, by whole pages; holes of the file are not read.

        Raises
        ------
        SegmentVanishedError
            If the file is shorter than it was when it was listed.
        StoreAccessError
            If the disk, or the server that has the file, can't read it.
        """
        begin, end = max(begin, 0), min(end, self._size)
        if begin >= end:
            return
        first, stop = begin // _PAGE, -(-end // _PAGE)
        self._load_pages(first + np.flatnonzero(~self._is_loaded[first:stop]))

    def load_all(self) -> None:
        """Make all bytes available."""
        self.load(0, self._size)

    def load_spans(self, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        """Make the bytes of many ranges available.

        Parameters
        ----------
        begins, ends : numpy.ndarray
            int64, shape (n,).
        """
        first = np.clip(begins, 0, self._size) // _PAGE
        stop = -(-np.clip(ends, 0, self._size) // _PAGE)
        marks = np.zeros(self._is_loaded.size + 1, np.int64)
        np.add.at(marks, first, stop > first)
        np.subtract.at(marks, stop, stop > first)
        self._load_pages(np.flatnonzero((marks.cumsum()[:-1] > 0) & ~self._is_loaded))

    def load_many(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Make the bytes of several ranges available."""
        bounds = np.array(ranges, np.int64).reshape(-1, 2)
        self.load_spans(bounds[:, 0], bounds[:, 1])

    def drop(self, end: int) -> None:
        """Return the memory of the bytes before a position to the system; they can be loaded again."""
        last = min(max(end, 0), self._size) // _PIECE * (_PIECE // _PAGE)
        if last > self._kept:
            self._memory.free(self._kept * _PAGE, last * _PAGE)
            self._is_loaded[self._kept : last] = False
            self._kept = last

    def _load_pages(self, pages: npt.NDArray[np.int64]) -> None:
        """Read pages that are not loaded, int64, shape (n,), ascending; neighbours at once."""
        if not pages.size:
            return
        self._kept = min(self._kept, int(pages[0]))
        edges = np.flatnonzero(np.diff(pages) > 1)
        begins = pages[np.append(0, edges + 1)] * _PAGE
        ends = np.minimum((pages[np.append(edges, pages.size - 1)] + 1) * _PAGE, self._size)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            if end - begin <= _LITTLE:
                self._read_into(self._memory.part(begin, end), begin)
            else:
                self._read_data(begin, end)
        self.check_size()  # a hole is also what is behind the end of a file
        self._is_loaded[pages] = True

    def _read_data(self, position: int, end: int) -> None:
        """Read a range without the holes in it."""
        while position < end:
            begin = max(self.next_data(position), position)
            if begin >= end:
                break
            position = min(max(self.next_hole(begin), begin + 1), end)
            for at in range(begin, position, _PIECE):
                self._read(at, min(at + _PIECE, position))

    def _read(self, begin: int, end: int) -> None:
        """Read a range; memory of zeros, as in a segment that a broker has filled in advance, is given back."""
        self._memory.fill_by(begin, end, lambda target: self._read_into(target.data, begin))

    def _read_into(self, target: memoryview, begin: int) -> None:
        at, descriptor = 0, self._file.descriptor
        while at < len(target):
            try:
                count = os.preadv(descriptor, [target[at:]], begin + at)
            except OSError as error:
                raise self._file.unreadable(error, begin + at) from error
            if not count:
                raise self._file.truncated()
            at += count
