# SPDX-License-Identifier: Apache-2.0
"""A segment file on a disk of this machine, read by `pread` window by window."""

from __future__ import annotations

import errno
import os
from itertools import repeat
from typing import IO, TYPE_CHECKING, Self

import numpy as np

from store_core.errors import SegmentVanishedError, StoreAccessError

if TYPE_CHECKING:
    import numpy.typing as npt


class LocalBytes:
    """An open file that is read window by window, into memory that is used again.

    Unlike a mapping, it can't kill the process (SIGBUS) when something truncates the file, or the disk fails: a read
    that gets less than there was is an error with a name. And what a window has stays as it is, so that what was
    checked is what is decoded, whatever is written to the file meanwhile.

    * `file`: Closed by `__exit__`.
    * `size`: Bytes that it had when it was listed.
    * `begin`: Where in the file they begin, as those of one file in an archive.
    """

    def __init__(self, path: str, file: IO[bytes], size: int, begin: int = 0) -> None:
        self.path, self.file, self.size, self._begin = path, file, size, begin
        self._window = np.empty(0, np.uint8)

    @property
    def descriptor(self) -> int:
        """The system's number of the open file."""
        return self.file.fileno()

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a range, in memory that the next call uses again."""
        size = end - begin
        if self._window.size < size:
            self._window = np.empty(size, np.uint8)
        found = self._window[:size]
        self.read_into(found.data, begin)
        return found

    def next_data(self, position: int) -> int:
        """Skip a hole of a sparse file; return `position` unchanged if the file system can't report holes.

        A segment is created at its full size, so its unwritten tail costs neither disk space nor time.
        """
        return self._seek(position, os.SEEK_DATA, position)

    def next_hole(self, position: int) -> int:
        """Find the end of the data of a sparse file; its size if the file system can't report holes."""
        return self._seek(position, os.SEEK_HOLE, self.size)

    def _seek(self, position: int, whence: int, otherwise: int) -> int:
        try:
            return min(os.lseek(self.descriptor, self._begin + position, whence) - self._begin, self.size)
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else otherwise

    def check_size(self) -> None:
        """Refuse a file that has shrunk since it was listed."""
        if os.fstat(self.descriptor).st_size < self._begin + self.size:
            raise self.truncated()

    def truncated(self) -> SegmentVanishedError:
        """Return the error that says how short the file has become."""
        found = os.fstat(self.descriptor).st_size
        return SegmentVanishedError(
            f"{self.path} had {self._begin + self.size} bytes when it was opened, and has {found} now: something "
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
                count = os.preadv(self.descriptor, [target[at:]], self._begin + begin + at)
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
        whole = (begins[firsts] + self._begin).tolist(), np.add.reduceat(sizes, firsts).tolist()
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
        self.read_into(memoryview(rest), begin - self._begin + len(piece))
        return piece + rest

    def check_unchanged(self) -> None:
        """Do nothing: an open file stays the same one, whatever takes its name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
