# SPDX-License-Identifier: Apache-2.0
"""Storage of an index file: opened on demand, written in place, synced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from store_core.files.file_sync import FileSync
from store_core.files.file_system import write_all

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem, OpenFile

__all__ = ["IndexStorage"]

_AHEAD_BYTES: Final = 32 << 20
"""Unsynced bytes from which on `IndexStorage.sync_ahead` syncs."""


class IndexStorage:
    """A sparse file of fixed size, opened for reading until the first write.

    Attributes
    ----------
    path : Path
    size : int
        Bytes; the first write extends a shorter file.
    """

    def __init__(self, path: Path, size: int, file_system: FileSystem) -> None:
        self.path = path
        self.size = size
        self._file_system = file_system
        self._file: OpenFile | None = None
        self._is_writable = False
        self._is_synced = True
        self._sync = FileSync(path, file_system)
        self._unsynced = 0

    @classmethod
    def create(cls, path: Path, size: int, file_system: FileSystem, start: bytes) -> Self:
        """Create the file, all hole except its first bytes, which are not written if they are zeros.

        Raises
        ------
        OSError
            As raised by the system; a file created before the error is deleted again.
        """
        created = cls(path, size, file_system)
        file_system.make_directories(path.parent)
        created._file = file_system.make(path, size)
        created._is_writable = True
        created._is_synced = False
        created._sync.note_creation()
        try:
            if any(start):
                created.write(start, 0)
        except OSError:
            created._file.close()
            file_system.remove(path)
            raise
        return created

    def reader(self) -> OpenFile:
        """Return the open file, for reads that must continue while it is closed or deleted.

        Raises
        ------
        OSError
            As raised by the system.
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
            As raised by the system; some of it may be in the file then.
        """
        self._is_synced = False
        if self._file is None or not self._is_writable:
            self._file = self._file_system.open(self.path)
            self._is_writable = True
            self._file.grow(self.size)
        write_all(self._file, memoryview(data), position)
        self._unsynced += len(data)

    def sync_ahead(self) -> None:
        """Sync what was written so far, if that is much, so that `sync` has less to wait for.

        May run while another thread writes. Failures are reported by `sync`.
        """
        file = self._file
        if self._unsynced < _AHEAD_BYTES or file is None:
            return
        self._unsynced = 0
        try:
            file.sync()
        except OSError as error:
            self._sync.error = error

    def sync(self) -> None:
        """Sync what was written, and for a new file, the first time, also its name.

        Raises
        ------
        OSError
            As raised by the system, now and at every later call: the system may have dropped what it could not write,
            and a second try would not notice.
        """
        if self._is_synced and self._sync.error is None:
            return
        self._sync.sync(self.reader)
        self._is_synced = True

    def close(self) -> None:
        """Release the file; the next use opens it again."""
        self._file = None  # dropped, not closed: a query may be reading it

    def remove(self) -> None:
        """Delete the file.

        Raises
        ------
        OSError
            As raised by the system.
        """
        self._file_system.remove(self.path)
