# SPDX-License-Identifier: Apache-2.0
"""Sync of one file to disk: with its name if the file is new, and never again after a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.files.file_system import FileSystem, OpenFile

__all__ = ["FileSync"]


class FileSync:
    """Sync of a file and, if it was created here, of the directory that has its name.

    After an error Linux may drop the pages it could not write, and a second ``fsync`` succeeds without them. So after
    an error every later sync raises.

    * `error`: What failed, if a sync did; a caller that syncs the file in another way sets it, too.
    """

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self.error: OSError | None = None
        self._path = path
        self._file_system = file_system
        self._is_in_directory = True

    def note_creation(self) -> None:
        """Record that the file was created, so that the next `sync` includes its directory."""
        self._is_in_directory = False

    def sync(self, open_file: Callable[[], OpenFile]) -> None:
        """Sync the file's data and size, and the first time after its creation also its directory.

        * `open_file`: Returns the open file; if it raises, that counts as a failed sync.
        """
        if self.error is not None:
            raise OSError(
                self.error.errno,
                f"an earlier flush failed ({self.error.strerror}), and the system may have dropped what it could "
                f"not write: check the disk, then open the store again",
                str(self._path),
            )
        try:
            open_file().sync()
            if not self._is_in_directory:
                self._file_system.sync_directory(self._path.parent)
                self._is_in_directory = True
        except OSError as error:
            self.error = error
            raise
