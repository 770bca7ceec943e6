# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of an index file live: opened when they are needed, written in place, synced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from store_core.files.file_system import write_all

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem, OpenFile

__all__ = ["IndexStorage"]

_AHEAD_BYTES: Final = 32 << 20
"""Bytes written for which `IndexStorage.sync_ahead` troubles the disk."""


class IndexStorage:
    """A file of fixed size, sparse, opened for reading until it is written to.

    Attributes
    ----------
    path : Path
    size : int
        Bytes; a shorter file is lengthened by the first write.
    """

    def __init__(self, path: Path, size: int, file_system: FileSystem) -> None:
        self.path = path
        self.size = size
        self._file_system = file_system
        self._file: OpenFile | None = None
        self._is_writable = False
        self._is_synced = self._is_in_directory = True
        self._sync_error: OSError | None = None
        self._unsynced = 0

    @classmethod
    def create(cls, path: Path, size: int, file_system: FileSystem, start: bytes) -> Self:
        """Make the file, all hole but for its first bytes; none are written if they are zeros.

        Raises
        ------
        OSError
            As the system says; a file that was made is deleted again.
        """
        created = cls(path, size, file_system)
        file_system.make_directories(path.parent)
        created._file = file_system.open(path, create=True)
        created._is_writable = True
        created._is_synced = created._is_in_directory = False
        try:
            created._file.grow(size)
            if any(start):
                created.write(start, 0)
        except OSError:
            created._file.close()
            file_system.remove(path)
            raise
        return created

    def reader(self) -> OpenFile:
        """Return the open file, for reads that must go on while it is closed or deleted.

        Raises
        ------
        OSError
            As the system says.
        """
        if self._file is None:
            self._file = self._file_system.open(self.path, writable=False)
            self._is_writable = False
        return self._file

    def write(self, data: memoryview | bytes, position: int) -> None:
        """Write all of `data` at `position`.

        Raises
        ------
        OSError
            As the system says; a part of it may be in the file then.
        """
        self._is_synced = False
        if self._file is None or not self._is_writable:
            self._file = self._file_system.open(self.path)
            self._is_writable = True
            self._file.grow(self.size)
        write_all(self._file, memoryview(data), position)
        self._unsynced += len(data)

    def sync_ahead(self) -> None:
        """Have the disk take what was written so far, if that is much, so that `sync` has less to wait for.

        To be called beside those who write. What fails is told by `sync`.
        """
        file = self._file
        if self._unsynced < _AHEAD_BYTES or file is None:
            return
        self._unsynced = 0
        try:
            file.sync()
        except OSError as error:
            self._sync_error = error

    def sync(self) -> None:
        """Bring what was written to disk, and the first time for a new file also its name.

        Raises
        ------
        OSError
            As the system says, now and at every later call: what the system could not write it may have dropped, and
            a second try would not notice.
        """
        if self._sync_error is not None:
            raise OSError(
                self._sync_error.errno,
                f"an earlier flush failed ({self._sync_error.strerror}), and the system may have dropped what it could "
                f"not write: check the disk, then open the store again",
                str(self.path),
            )
        if self._is_synced:
            return
        try:
            self.reader().sync()
            if not self._is_in_directory:
                self._file_system.sync_directory(self.path.parent)
                self._is_in_directory = True
        except OSError as error:
            self._sync_error = error
            raise
        self._is_synced = True

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        self._file = None  # dropped, not closed: a query may be reading it

    def remove(self) -> None:
        """Delete the file.

        Raises
        ------
        OSError
            As the system says.
        """
        self._file_system.remove(self.path)
