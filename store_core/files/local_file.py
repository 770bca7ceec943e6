# SPDX-License-Identifier: Apache-2.0
"""An open segment file on a disk of this machine: its holes, and whether it still has its size."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from store_core.errors import SegmentVanishedError, StoreAccessError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["LocalBytes", "LocalFile"]


@dataclass(frozen=True, slots=True)
class LocalFile:
    """An open file, however its bytes are read.

    Parameters
    ----------
    path : str
    file : file object
    size : int
        Bytes that it had when it was listed.
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
        """Refuse a file that is shorter than it was when it was listed.

        Raises
        ------
        SegmentVanishedError
            With the size that it has now.
        """
        if os.fstat(self.descriptor).st_size < self.size:
            raise self.truncated()

    def truncated(self) -> SegmentVanishedError:
        """Return the error that says how short the file has become."""
        found = os.fstat(self.descriptor).st_size
        return SegmentVanishedError(
            f"segment {self.path} had {self.size} bytes when it was opened, and has {found} now: something "
            f"truncated it while it was read, which no broker does. Read a copy, or read again when that is over"
        )

    def unreadable(self, error: OSError, position: int) -> StoreAccessError:
        """Return the error that says where the file can't be read, and why."""
        return StoreAccessError(
            f"{self.path}: expected to read byte {position}, found: {error.strerror}. Look at the disk, or at "
            f"the server that has the file, and read a copy"
        )

    def _seek(self, position: int, whence: int, otherwise: int) -> int:
        try:
            return min(os.lseek(self.descriptor, position, whence), self.size)
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else otherwise


class LocalBytes:
    """What mapped and read segments have in common: they are of an open file, which `__exit__` closes."""

    _file: LocalFile

    def check_size(self) -> None:
        """Refuse a file that is shorter than it was when it was listed; errors as of `LocalFile.check_size`."""
        self._file.check_size()

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
