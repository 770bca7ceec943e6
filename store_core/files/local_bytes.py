# SPDX-License-Identifier: Apache-2.0
"""A segment file on a disk of this machine, read by `pread`: by windows, or page by page."""

from __future__ import annotations

import errno
import mmap
import os
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import IO, TYPE_CHECKING, Final, Self

import numpy as np

from store_core.errors import SegmentVanishedError, StoreAccessError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    import numpy.typing as npt


_PAGE: Final = 4 << 10
_PIECE: Final = 4 << 20
"""Bytes of one read, and of which memory is given back at once if all are zeros."""

_LITTLE: Final = 64 << 10
"""Bytes up to which a range is read with the holes in it: looking for them would take longer."""

_STEP: Final = 8 << 20
"""Bytes that a walk loads at once: with fewer, numpy's overhead shows; with more, memory does."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """An open file, however its bytes are read.

    * `size`: Bytes that it had when it was listed.
    """

    path: str
    file: IO[bytes]
    size: int

    @property
    def descriptor(self) -> int:
        """The system's number of the open file."""
        return self.file.fileno()

    def next_data(self, position: int) -> int:
        """Skip a hole of a sparse file; return `position` unchanged if the file system can't report holes.

        A segment is created at its full size, so its unwritten tail costs neither disk space nor time.
        """
        return self._seek(position, os.SEEK_DATA, position)

    def next_hole(self, position: int) -> int:
        """Find the end of the data of a sparse file; its size if the file system can't report holes."""
        return self._seek(position, os.SEEK_HOLE, self.size)

    def check_size(self) -> None:
        """Refuse a file that has shrunk since it was listed."""
        if os.fstat(self.descriptor).st_size < self.size:
            raise self.truncated()

    def truncated(self) -> SegmentVanishedError:
        """Return the error that says how short the file has become."""
        found = os.fstat(self.descriptor).st_size
        return SegmentVanishedError(
            f"{self.path} had {self.size} bytes when it was opened, and has {found} now: something "
            f"truncated it while it was read, which no broker does. Read a copy, or read again when that is over"
        )

    def unreadable(self, error: OSError, position: int) -> StoreAccessError:
        """Return the error that says where the file can't be read, and why."""
        return StoreAccessError(
            f"{self.path}: expected to read byte {position}, found: {error.strerror}. Look at the disk, or at "
            f"the server that has the file, and read a copy"
        )

    def read_into(self, target: memoryview, begin: int) -> None:
        """Fill a buffer with the bytes from a position on."""
        at = 0
        while at < len(target):
            try:
                count = os.preadv(self.descriptor, [target[at:]], begin + at)
            except OSError as error:
                raise self.unreadable(error, begin + at) from error
            if not count:
                raise self.truncated()
            at += count

    def packed(self, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the bytes of ranges, one after another, without what lies between them; errors as of `read_into`.

        A call of its own for each range takes 1.7 µs, of which Python takes little. Memory in which each range lay at
        its position would cost 12 µs: a page of it is provided and cleared for each.

        * `begins`, `sizes`: int64, shape (n,), n >= 1: positions in the file, ascending, of ranges that are inside of
          it.
        """
        firsts = np.append(0, np.flatnonzero(begins[1:] != begins[:-1] + sizes[:-1]) + 1)
        whole = begins[firsts].tolist(), np.add.reduceat(sizes, firsts).tolist()
        try:
            pieces = list(map(os.pread, repeat(self.descriptor), whole[1], whole[0]))
        except OSError as error:
            raise self.unreadable(error, int(begins[0])) from error
        found = b"".join(pieces)
        if len(found) < int(sizes.sum()):
            found = b"".join(map(self._completed, pieces, *whole))
        self.check_size()  # a hole is also what is behind the end of a file
        return np.frombuffer(found, np.uint8)

    def _completed(self, piece: bytes, begin: int, size: int) -> bytes:
        """Return a range of which a call has read all, or only a part."""
        rest = bytearray(size - len(piece))
        self.read_into(memoryview(rest), begin + len(piece))
        return piece + rest

    def _seek(self, position: int, whence: int, otherwise: int) -> int:
        try:
            return min(os.lseek(self.descriptor, position, whence), self.size)
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else otherwise


class LocalBytes:
    """A local file as an array of its size, whose bytes are there once they are loaded, and zeros otherwise.

    Unlike a mapping, it can't kill the process (SIGBUS) when something truncates the file, or the disk fails: a read
    that gets less than there was is an error with a name. And what was loaded stays as it is, so that what was checked
    is what is decoded, whatever is written to the file meanwhile.

    * `file`: Closed by `__exit__`.
    * `is_walked`: Whether pages are loaded one after another, and not here and there, where huge ones would be cleared
      for little.

    * `raw`: uint8, shape (size,), read-only.
    * `step`: See `store_core.format.segment_view.Pages`.
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
        """Return the bytes of a range, in memory that the next call uses again; pages are neither needed nor loaded."""
        size = end - begin
        if self._window.size < size:
            self._window = np.empty(size, np.uint8)
        found = self._window[:size]
        self._read_into(found.data, begin)
        return found

    def load(self, begin: int, end: int) -> None:
        """Make the bytes of a range available, by whole pages; holes of the file are not read."""
        begin, end = max(begin, 0), min(end, self._size)
        if begin >= end:
            return
        first, stop = begin // _PAGE, -(-end // _PAGE)
        self._load_pages(first + np.flatnonzero(~self._is_loaded[first:stop]))

    def packed(self, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the bytes of ranges, one after another; parameters as of `LocalFile.packed`."""
        return self._file.packed(begins, sizes)

    def load_many(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Make the bytes of several ranges available."""
        for begin, end in ranges:
            self.load(begin, end)

    def drop(self, end: int) -> None:
        """Return the memory of the bytes before a position to the system; they can be loaded again."""
        last = min(max(end, 0), self._size) // _PIECE * (_PIECE // _PAGE)
        if last > self._kept:
            self._memory.free(self._kept * _PAGE, last * _PAGE)
            self._is_loaded[self._kept : last] = False
            self._kept = last

    def next_data(self, position: int) -> int:
        """Skip a hole of a sparse file; return `position` unchanged if the file system can't report holes."""
        return self._file.next_data(position)

    def next_hole(self, position: int) -> int:
        """Find the end of the data of a sparse file; its size if the file system can't report holes."""
        return self._file.next_hole(position)

    def check_unchanged(self) -> None:
        """Do nothing: an open file stays the same one, whatever takes its name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.file.close()

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
        self._file.check_size()  # a hole is also what is behind the end of a file
        self._is_loaded[pages] = True

    def _read_data(self, position: int, end: int) -> None:
        """Read a range without the holes in it."""
        while position < end:
            begin = max(self.next_data(position), position)
            if begin >= end:
                break
            position = min(max(self.next_hole(begin), begin + 1), end)
            for at in range(begin, position, _PIECE):
                self._memory.fill_by(at, min(at + _PIECE, position), partial(self._fill, at))

    def _fill(self, begin: int, target: npt.NDArray[np.uint8]) -> None:
        self._read_into(target.data, begin)

    def _read_into(self, target: memoryview, begin: int) -> None:
        self._file.read_into(target, begin)


_SYSTEM_PAGE: Final = mmap.PAGESIZE
_HUGE_PAGE: Final = 2 << 20
"""Bytes from which on huge pages are asked for: filling small ones, one fault each, took longer than the download."""

_LOOK: Final = 4 << 10
"""Bytes that are looked at first for anything but zeros: all of them are only where a segment is not written."""


class FilledMemory:
    """An array that is filled part by part, and whose parts can be given back.

    What is not filled is zeros and takes no memory; neither do zeros that it is filled with, as in a segment that is
    not full.

    * `size`: In bytes.

    * `raw`: uint8, shape (size,), read-only.
    """

    def __init__(self, size: int) -> None:
        # Private: shared memory is kept, whatever is said of its pages.
        self._memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = np.frombuffer(self._memory, np.uint8)[:size]
        self.raw: npt.NDArray[np.uint8] = self._bytes.view()
        self.raw.flags.writeable = False

    def use_huge_pages(self) -> None:
        """Take memory in huge pages, for what is filled without gaps."""
        if len(self._memory) >= _HUGE_PAGE:
            self._memory.madvise(mmap.MADV_HUGEPAGE)

    def fill(self, begin: int, data: bytes | npt.NDArray[np.uint8]) -> None:
        """Put bytes at a position."""
        found = np.frombuffer(data, np.uint8)
        if found.any():
            self._bytes[begin:][: found.size] = found

    def fill_by(self, begin: int, end: int, read: Callable[[npt.NDArray[np.uint8]], None]) -> None:
        """Let a function write the bytes of a range into their place, without another copy of them.

        Until it returns, and if it fails, the range holds anything.

        * `begin`, `end`: Positions.
        * `read`: Fills an array, uint8, shape (end - begin,).
        """
        target = self._bytes[begin:end]
        read(target)
        if not (target[:_LOOK].any() or target.any()):
            self.free(begin, end)

    def part(self, begin: int, end: int) -> memoryview:
        """Return a few bytes to write into, whose memory is kept even if they stay zeros."""
        return self._bytes[begin:end].data

    def free(self, begin: int, end: int) -> None:
        """Return the whole pages of a range to the system; they are zeros until they are filled again."""
        first, last = -(-begin // _SYSTEM_PAGE) * _PAGE, end // _PAGE * _PAGE
        if first < last:
            self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)
