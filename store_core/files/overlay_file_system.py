# SPDX-License-Identifier: Apache-2.0
"""A file system that keeps changes in memory, for dry runs that must not touch a store."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Final, TypeAlias

from store_core.files.file_system import FileStatus, not_a_file
from store_core.files.overlay_file import OverlayFile, OverlayNode

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem

__all__ = ["FileChange", "OverlayFileSystem"]

_DEVICE: Final = -1
"""Device number of files that exist only in the overlay."""


@dataclass(frozen=True, slots=True, order=True)
class FileChange:
    """How a file or directory was changed.

    Attributes
    ----------
    kind : str
        ``"created"``, ``"removed"``, ``"written"`` or ``"truncated"``; a renamed file is removed and created.
    first_changed : int
        The first byte that differs from before; 0 for a file that is created or removed.
    size : int
        Size after the change, in bytes; 0 for a removed file.
    """

    path: Path
    kind: str
    first_changed: int = 0
    size: int = 0
    is_directory: bool = False

    def __str__(self) -> str:
        what = f"directory {self.path}" if self.is_directory else f"{self.path}"
        where = f" from byte {self.first_changed}" if self.kind in ("written", "truncated") else ""
        return f"{self.kind} {what}{where}"


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory that exists only in the overlay."""

    modified_ms: int
    identity: tuple[int, int]


_Entry: TypeAlias = OverlayNode | _Directory | None
"""A file, a directory, or None if the entry in the base is removed."""


class OverlayFileSystem:
    """The content of another file system, with changes that only this object sees.

    The base is never changed: a changed file becomes a private mapping of the one in the base (``MAP_PRIVATE``), a new
    or longer one anonymous memory, so that only changed pages use memory. Changes last as long as this object. `fileno`
    of its files is refused: there is nothing to lock.

    What another process writes to the base shows here as long as the same page is unchanged here. If a file in the base
    is truncated while it is used, the process is killed, as with any mapping of it; RocketMQ only ever deletes files.

    Parameters
    ----------
    base : FileSystem
        The file system that the changes overlay.
    clock : Clock
        Clock for the times of changes.
    """

    def __init__(self, base: FileSystem, clock: Clock) -> None:
        self._base = base
        self._clock = clock
        self._lock = RLock()
        self._numbers = count()
        # What differs from the base, by directory and name.
        self._entries: dict[Path, dict[str, _Entry]] = {}

    # ---- looking

    def status(self, path: Path) -> FileStatus | None:
        """Return the status of a path; None if nothing is there."""
        with self._lock:
            here = self._entries.get(path.parent, {})
            if path.name not in here:
                return self._base.status(path) if self._is_shown(path) else None
            entry = here[path.name]
            if entry is None:
                return None
            if isinstance(entry, _Directory):
                return FileStatus(0, entry.modified_ms, is_directory=True, identity=entry.identity)
            return FileStatus(entry.size, entry.modified_ms, is_directory=False, identity=entry.identity)

    def _is_shown(self, path: Path) -> bool:
        """Return whether a path in the base is visible: not if one of its parents was removed here."""
        return not any(self._entries.get(above.parent, {}).get(above.name, self) is None for above in path.parents)

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted; empty if it does not exist."""
        with self._lock:
            if self._found(directory) is None:
                return []
            if not self._is_directory(directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
            below = self._base.status(directory)
            names = set(self._base.names(directory)) if below is not None and below.is_directory else set()
            here = self._entries.get(directory, {})
            gone = {name for name, entry in here.items() if entry is None}
            return sorted((names | here.keys()) - gone)

    def used_percent(self, path: Path) -> int:
        """Return the percentage of the base's disk in use, rounded up; -1 if the path does not exist."""
        if self.status(path) is None:
            return -1
        there = next(each for each in (path, *path.parents) if self._base.status(each) is not None)
        return self._base.used_percent(there)

    @property
    def changes(self) -> tuple[FileChange, ...]:
        """What differs from the base, sorted by path."""
        with self._lock:
            entries = [(above / name, entry) for above, here in self._entries.items() for name, entry in here.items()]
            found = [change for path, entry in entries if (change := self._change(path, entry)) is not None]
        return tuple(sorted(found))

    def _change(self, path: Path, entry: _Entry) -> FileChange | None:
        before = self._base.status(path)
        if entry is None:
            return FileChange(path, "removed", is_directory=before.is_directory) if before is not None else None
        if isinstance(entry, _Directory):
            was_here = before is not None and before.is_directory
            return None if was_here else FileChange(path, "created", is_directory=True)
        if entry.is_new or entry.identity != (before.identity if before is not None else None):
            return FileChange(path, "created", size=entry.size)
        if entry.first_changed is None:
            return None
        kind = "truncated" if before is not None and entry.size < before.size else "written"
        return FileChange(path, kind, entry.first_changed, entry.size)

    # ---- files

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> OverlayFile:
        """Open a file, or with `create` make it if it does not exist. Its content is kept."""
        with self._lock:
            try:
                return OverlayFile(self._node(path, create=create), writable=writable)
            except IsADirectoryError as error:
                raise not_a_file(path, "a directory") from error

    def make(self, path: Path, size: int) -> OverlayFile:
        """Create a file of zeros."""
        with self._lock:
            if self._found(path) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            file = self.open(path, create=True)
            file.grow(size)
            return file

    def _node(self, path: Path, *, create: bool = False) -> OverlayNode:
        entry = self._entries.get(path.parent, {}).get(path.name)
        if isinstance(entry, OverlayNode):
            return entry
        status = self._found(path)
        if status is None and create and self._is_directory(path.parent):
            node = OverlayNode(None, 0, self._clock, self._identity())
        elif status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        elif status.is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        else:
            below = partial(self._base.open, path, writable=False)
            node = OverlayNode(below, status.size, self._clock, status.identity, status.modified_ms)
        self._set(path, node)
        return node

    def _set(self, path: Path, entry: _Entry) -> None:
        self._entries.setdefault(path.parent, {})[path.name] = entry

    def _identity(self) -> tuple[int, int]:
        return _DEVICE, next(self._numbers)

    def _found(self, path: Path) -> FileStatus | None:
        """Return the status of a path; raise if one of its parents is a file."""
        status = self.status(path)
        if status is None:
            above = next((found for each in path.parents if (found := self.status(each)) is not None), None)
            if above is not None and not above.is_directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return status

    def _is_directory(self, path: Path) -> bool:
        status = self.status(path)
        return status is not None and status.is_directory

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, atomically replacing the target; directories can't be renamed here."""
        with self._lock:
            node = self._node(source)
            status = self._found(target)
            if status is not None and status.is_directory:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
            if not self._is_directory(target.parent):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target))
            self._forget(source)
            self._set(target, node)

    def remove(self, path: Path) -> None:
        """Delete a file; it is fine if it does not exist."""
        with self._lock:
            status = self._found(path)
            if status is not None and status.is_directory:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            self._forget(path)

    def _forget(self, path: Path) -> None:
        self._entries.get(path.parent, {}).pop(path.name, None)
        if self._base.status(path) is not None:
            self._set(path, None)

    # ---- directories

    def make_directories(self, path: Path) -> None:
        """Create a directory and its parents."""
        with self._lock:
            for each in (*reversed(path.parents), path):
                status = self.status(each)
                if status is None:
                    self._set(each, _Directory(self._clock.now_ms(), self._identity()))
                elif not status.is_directory:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(each))

    def add_directories(self, path: Path) -> None:
        """Create a directory and its parents."""
        self.make_directories(path)

    def remove_directory(self, path: Path) -> None:
        """Delete a directory if it is empty; otherwise it stays."""
        with self._lock:
            status = self._found(path)
            if status is None:
                return
            if not status.is_directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            if not self.names(path):
                self._forget(path)

    def sync_directory(self, path: Path) -> None:
        """Check that the directory exists; there is no disk to sync to."""
        status = self._found(path)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if not status.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
