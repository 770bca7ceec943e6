# SPDX-License-Identifier: Apache-2.0
"""The directory that rebuilt files are written to before they replace others."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from store_core.errors import UnsupportedStoreError

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem

__all__ = ["OutputDirectory", "store_of_output"]

_MARK: Final = "rebuilt.json"
"""File that marks a directory as ours, so that a rebuild may delete what is in it."""


_LARGEST_MARK: Final = 1 << 16


def store_of_output(path: Path) -> Path | None:
    """Return the store whose rebuild has marked a directory as its output; None if none has."""
    mark = path / _MARK
    try:
        if mark.is_symlink() or not mark.is_file() or mark.stat().st_size > _LARGEST_MARK:
            return None
        return type(path)(json.loads(mark.read_bytes())["store"])
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


class OutputDirectory:
    """A directory with a mark, by which a later run knows that it may delete what is in it.

    Parameters
    ----------
    path : Path
    file_system : FileSystem
    """

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self.path = path
        self._file_system = file_system

    def claim(self, store: Path) -> None:
        """Create the directory for files of a store, if it may be written to.

        Raises
        ------
        UnsupportedStoreError
            If it holds files that no rebuild made.
        OSError
            If a system call fails.
        """
        files, mark = self._file_system, self.path / _MARK
        if files.names(self.path) and files.status(mark) is None:
            raise UnsupportedStoreError(
                f"{self.path} is not empty, and was not made by a rebuild: move what is there elsewhere, or give "
                f"another output directory"
            )
        files.make_directories(self.path)
        file = files.open(mark, create=True)
        file.write(memoryview(json.dumps({"store": str(store)}).encode()), 0)
        file.close()

    def remove_if_empty(self) -> None:
        """Remove the directory, unless this or another run has left something there."""
        with suppress(OSError):
            if self._file_system.names(self.path) == [_MARK]:
                shutil.rmtree(self.path)

    def remove(self) -> None:
        """Remove what is in the directory and, when that is done, the mark: a run that is killed can be repeated.

        Raises
        ------
        OSError
            If a system call fails.
        """
        files = self._file_system
        if files.status(self.path / _MARK) is None:
            if files.status(self.path) is not None and not files.names(self.path):
                files.remove_directory(self.path)  # a run was killed before it had a mark, or when it had it no more
            return
        for name in files.names(self.path):
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif name != _MARK:
                files.remove(path)
        files.remove(self.path / _MARK)
        files.remove_directory(self.path)
