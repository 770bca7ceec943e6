# SPDX-License-Identifier: Apache-2.0
"""A fake disk in a machine that dies at a call of the test's choice."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from store_core.files.file_system import OpenFile, OsFileSystem, OsOpenFile

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path


_PAGE: Final = 4096
_WORD: Final = 4
"""A torn write ends between two words. Linux ends it between two pages, and a page boundary is at a multiple of four
bytes in a unit of 20 bytes, too. If a unit's size could be torn, no order of writes would help: its first bytes are a
size as well."""


class DeadDiskError(OSError):
    """The machine is dead: nothing reaches the disk any more."""


class MortalFileSystem(OsFileSystem):
    """The real file system until the machine dies: the change at that moment is done in part, later ones fail.

    `revive` restores what is on disk then. If only the process was killed, that is everything that was done. If the
    power failed, each page of a file has its content of the last sync, or of the end; and changes of directories and of
    file lengths since the last sync of a directory are there up to some moment, and not after it, as with a journal.
    Nothing waits for the real disk.

    * `changes_left`: How many more changes the machine makes before it dies; None for no limit.
    * `torn`: Share of the last write that gets into the file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes_left: int | None = None
        self.torn = 0.0
        self.is_dead = False
        self._synced: dict[Path, bytes] = {}
        self._undo: list[Callable[[], object]] = []

    def change(self, path: Path, *, undo: Callable[[], object] | None = None) -> None:
        """Count one more change, or let the machine die."""
        if self.changes_left == 0:
            self.is_dead = True
        if self.is_dead:
            raise DeadDiskError(errno.EIO, os.strerror(errno.EIO), str(path))
        if self.changes_left is not None:
            self.changes_left -= 1
        if undo is not None:
            self._undo.append(undo)

    def note_synced(self, path: Path) -> None:
        """Remember a file's current content."""
        if path.exists():
            self._synced[path] = path.read_bytes()

    def revive(self, root: Path, chance: random.Random, *, lost_power: bool) -> None:
        """Start the machine again."""
        if lost_power:
            self._lose(root, chance)
            self._undo.clear()
            self._synced = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        self.is_dead, self.changes_left = False, None

    def _lose(self, root: Path, chance: random.Random) -> None:
        for undo in reversed(self._undo[chance.randrange(len(self._undo) + 1) :]):
            undo()
        for path in sorted(root.rglob("*")):
            if path.is_file():
                now = path.read_bytes()
                then = self._synced.get(path, b"")[: len(now)].ljust(len(now), b"\0")
                pages = [chance.choice((now, then))[start : start + _PAGE] for start in range(0, len(now), _PAGE)]
                path.unlink()  # existing mappings of the old file must not change
                path.write_bytes(b"".join(pages))

    # ---- calls

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
        if create and not path.exists():
            self.change(path, undo=path.unlink)
            self._synced.pop(path, None)
        return _MortalFile(super().open(path, create=create, writable=writable), path, self)

    def make(self, path: Path, size: int) -> OsOpenFile:
        self.change(path, undo=path.unlink)
        self._synced.pop(path, None)
        return _MortalFile(super().make(path, size), path, self)

    def make_directories(self, path: Path) -> None:
        if not path.is_dir():
            self.make_directories(path.parent)
            self.change(path, undo=path.rmdir)
            path.mkdir()
            self.sync_directory(path.parent)

    def add_directories(self, path: Path) -> None:
        if not path.is_dir():
            self.add_directories(path.parent)
            self.change(path, undo=path.rmdir)
            path.mkdir()

    def rename(self, source: Path, target: Path) -> None:
        before = target.read_bytes() if target.exists() else None
        synced = self._synced.get(target, b"")

        def undo() -> None:  # what is synced of a file does not depend on its name
            target.replace(source)
            self._synced[source] = self._synced.pop(target, b"")
            if before is not None:
                target.write_bytes(before)
                self._synced[target] = synced

        self.change(target, undo=undo)
        self._synced[target] = self._synced.pop(source, b"")
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        if path.exists():
            before = path.read_bytes()
            self.change(path, undo=lambda: path.write_bytes(before))
        super().remove(path)

    def remove_directory(self, path: Path) -> None:
        if path.is_dir() and not any(path.iterdir()):
            self.change(path, undo=path.mkdir)
        super().remove_directory(path)

    def used_percent(self, path: Path) -> int:
        return 10 if path.exists() else -1

    def sync_directory(self, path: Path) -> None:
        self.change(path)
        self._undo.clear()


class _MortalFile(OsOpenFile):
    def __init__(self, file: OpenFile, path: Path, disk: MortalFileSystem) -> None:
        super().__init__(os.dup(file.fileno()), path)
        file.close()
        self._disk = disk

    def grow(self, size: int) -> None:
        before, path = self.size(), self._path
        if before < size:
            self._disk.change(path, undo=lambda: os.truncate(path, before))
            super().grow(size)

    def truncate(self, size: int) -> None:
        self._disk.change(self._path)
        super().truncate(size)

    def reserve(self, size: int) -> None:
        self._disk.change(self._path)
        super().reserve(size)

    def write(self, data: memoryview, offset: int) -> int:
        was_dead = self._disk.is_dead
        try:
            self._disk.change(self._path)
        except DeadDiskError:
            if not was_dead:
                cut = round(len(data) * self._disk.torn)
                super().write(data[: max(0, cut - (offset + cut) % _WORD)], offset)
            raise
        return super().write(data, offset)

    def sync(self) -> None:
        self._disk.change(self._path)
        self._disk.note_synced(self._path)
