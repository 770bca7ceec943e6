# SPDX-License-Identifier: Apache-2.0
"""Record of new directories whose names are not on disk yet, so that each parent is synced once for all of them."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["UnsyncedNames"]


class UnsyncedNames:
    """Directories in which subdirectories were created since they were last synced.

    A sync waits a few milliseconds for the file system's journal. A store that creates thousands of queues would wait
    twice for each before its first unit is written; when queues are flushed together, one wait covers most of them.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: dict[Path, object] = {}

    def __contains__(self, directory: Path) -> bool:
        """Return whether directories were created in it since it was last synced."""
        with self._lock:
            return directory in self._made

    def make(self, directory: Path) -> None:
        """Create a directory in an existing one, unless it exists; `sync` of it makes its name durable.

        Raises
        ------
        OSError
            As the system reports.
        """
        with self._lock:
            # Under one lock, so that no thread finds the directory before it is recorded.
            directory.mkdir(exist_ok=True)
            self._made[directory.parent] = object()

    def sync(self, directory: Path, sync_one: Callable[[Path], None]) -> None:
        """Sync a directory, and those above it in which directories were created.

        Parameters
        ----------
        sync_one : callable
            Makes the names in one directory durable. If it raises, the error is passed on and the directory stays
            recorded.
        """
        with self._lock:
            above = [(each, self._made[each]) for each in directory.parents if each in self._made]
            made = self._made.get(directory)
        for each, note in ((directory, made), *above):
            sync_one(each)
            with self._lock:
                # Another object means that a directory was created in it meanwhile.
                if self._made.get(each) is note:
                    self._made.pop(each, None)
