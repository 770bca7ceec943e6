# SPDX-License-Identifier: Apache-2.0
"""New directories whose names are not on disk yet: synced when they are needed, each once for all that is in it."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["UnsyncedNames"]


class UnsyncedNames:
    """Directories in which other directories were made since they were last synced.

    A sync waits for the file system's journal, some milliseconds. A store that makes thousands of queues would wait
    twice for each before the first unit is in; when queues are flushed together, one wait is for most of them.

    It is safe to make and to sync from several threads.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: dict[Path, object] = {}

    def __contains__(self, directory: Path) -> bool:
        """Whether directories were made in it since it was last synced."""
        with self._lock:
            return directory in self._made

    def make(self, directory: Path) -> None:
        """Make a directory in one that is there, unless it is there too; `sync` of it brings its name to disk.

        Raises
        ------
        OSError
            As the system says.
        """
        with self._lock:
            # Together, so that nobody finds the directory before the note.
            directory.mkdir(exist_ok=True)
            self._made[directory.parent] = object()

    def sync(self, directory: Path, sync_one: Callable[[Path], None]) -> None:
        """Sync a directory, and those above it in which names were made.

        Parameters
        ----------
        directory : Path
        sync_one : callable
            Brings the names in one directory to disk. What it raises is passed on, and the directory stays noted.
        """
        with self._lock:
            above = [(each, self._made[each]) for each in directory.parents if each in self._made]
            made = self._made.get(directory)
        for each, note in ((directory, made), *above):
            sync_one(each)
            with self._lock:
                # Another note is of a name that was made meanwhile.
                if self._made.get(each) is note:
                    self._made.pop(each, None)
