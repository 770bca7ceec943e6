# SPDX-License-Identifier: Apache-2.0
"""A file system that makes many small files durable together: written without a sync each, then all synced.

Where they are very many, their whole file system is synced instead (ADR 0043).
"""

from __future__ import annotations

import os
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from store_core.files.file_system import OsFileSystem, OsOpenFile
from store_core.files.whole_sync import WholeSync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["DeferredSyncFileSystem", "sync_directories", "sync_files"]

_MOST_SINGLE: Final = 1000
"""Files, or directories, up to which each is synced by itself: a sync of everything waits for what others write."""


class _UnsyncedFile(OsOpenFile):
    """An open file that is not synced by itself."""

    def sync(self) -> None:
        """Do nothing: `sync_files` syncs it."""


class DeferredSyncFileSystem(OsFileSystem):
    """The operating system's files, with every sync left to `sync_files` and `sync_directories`.

    Each sync of a new file or directory waits a few milliseconds for the file system's journal. When all are synced
    after all are written, the first wait covers all of them.
    """

    _file_class = _UnsyncedFile

    def make_directories(self, path: Path) -> None:
        """Create a directory and its parents."""
        path.mkdir(parents=True, exist_ok=True)

    def add_directories(self, path: Path) -> None:
        """Create a directory and its parents."""
        self.make_directories(path)

    def sync_directory(self, path: Path) -> None:
        """Do nothing: `sync_directories` syncs it."""


def sync_files(directory: Path, whole: WholeSync | None = None) -> None:
    """Sync the data of all files below a directory, if it exists: start writing all of them, then wait for each.

    Parameters
    ----------
    whole : WholeSync, optional
        Entered before they were written: syncs all at once if they are many.

    Raises
    ------
    OSError
        As the system reports.
    """
    found = (path for path, is_directory in _below(directory) if not is_directory)
    files = list(islice(found, _MOST_SINGLE + 1))
    if len(files) > _MOST_SINGLE and whole is not None and whole.sync():
        return
    files += found
    for path in files:
        with _opened(path) as descriptor:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # Linux starts writing dirty pages
    for path in files:
        with _opened(path) as descriptor:
            os.fdatasync(descriptor)


def sync_directories(directory: Path) -> None:
    """Sync the names in a directory, and in all below it, to disk.

    Raises
    ------
    OSError
        As the system reports.
    """
    found = (path for path, is_directory in _below(directory) if is_directory)
    paths = [os.fspath(directory), *islice(found, _MOST_SINGLE)]
    if len(paths) > _MOST_SINGLE and _is_all_synced(directory):
        return
    for path in chain(paths, found):
        with _opened(path) as descriptor:
            os.fsync(descriptor)


def _is_all_synced(directory: Path) -> bool:
    """Sync the directory's file system, if that is sure: a journal that can't be written is an error at any time."""
    with WholeSync(directory) as whole:
        return whole.sync()


def _below(directory: Path) -> Iterator[tuple[str, bool]]:
    """Yield what is below a directory, and whether it is one, too; `os.walk` takes three times as long."""
    waiting = [os.fspath(directory)] if directory.exists() else []
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                is_directory = entry.is_dir(follow_symlinks=False)
                yield entry.path, is_directory
                if is_directory:
                    waiting.append(entry.path)


class _opened:  # noqa: N801 -- used as a function; `contextmanager` is slower
    """Open a file or directory for reading, by its descriptor."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
