# SPDX-License-Identifier: Apache-2.0
"""Many small files made durable together: written without a sync each, then synced at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from store_core.files.file_system import OsFileSystem, OsOpenFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["DeferredSyncFileSystem", "sync_directories", "sync_files"]


class _UnsyncedFile(OsOpenFile):
    """An open file that is not synced by itself."""

    def sync(self) -> None:
        """Do nothing: `sync_files` does it."""


class DeferredSyncFileSystem(OsFileSystem):
    """The operating system's files, with every sync left to `sync_files` and `sync_directories`.

    A sync of one new file or directory waits for the file system's journal, a few milliseconds each. When many are
    synced after all are written, the first wait is for all of them.
    """

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> OsOpenFile:
        """Open a file; with `create`, make it if it isn't there."""
        flags = os.O_RDWR if writable else os.O_RDONLY
        return _UnsyncedFile(os.open(path, flags | (os.O_CREAT if create else 0) | os.O_CLOEXEC, 0o644))

    def make_directories(self, path: Path) -> None:
        """Make a directory and those above it."""
        path.mkdir(parents=True, exist_ok=True)

    def add_directories(self, path: Path) -> None:
        """Make a directory and those above it."""
        self.make_directories(path)

    def sync_directory(self, path: Path) -> None:
        """Do nothing: `sync_directories` does it."""


def sync_files(directory: Path) -> None:
    """Bring the data of all files below a directory to disk: all begin to be written, then each is waited for.

    Raises
    ------
    OSError
        As the system says.
    """
    for path in _files(directory):
        with _opened(path) as descriptor:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # Linux begins to write what is not yet
    for path in _files(directory):
        with _opened(path) as descriptor:
            os.fdatasync(descriptor)


def sync_directories(directory: Path) -> None:
    """Bring the names in a directory, and in all below it, to disk.

    Raises
    ------
    OSError
        As the system says.
    """
    for folder, _, _ in os.walk(directory):
        with _opened(folder) as descriptor:
            os.fsync(descriptor)


def _files(directory: Path) -> Iterator[str]:
    for folder, _, names in os.walk(directory):
        for name in names:
            yield os.path.join(folder, name)  # noqa: PTH118 -- there may be a hundred thousand


class _opened:  # noqa: N801 -- a function, but for what `contextmanager` costs
    """Open a file or directory for reading, by its descriptor."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
