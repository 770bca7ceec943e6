# SPDX-License-Identifier: Apache-2.0
"""Fakes for tests: a clock that stands still, a disk that fails on demand, and one of a machine that dies."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.files.file_system import OpenFile, OsFileSystem, OsOpenFile
from store_core.files.machine import SystemClock

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from threading import Event

    import pytest


_PAGE: Final = 4096


def descriptors() -> set[str]:
    """Return the descriptors that this process has open."""
    gc.collect()
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def forbid_listing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let nobody list directories of a name."""
    names = OsFileSystem.names

    def denied(self: OsFileSystem, directory: Path) -> list[str]:
        if directory.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
        return names(self, directory)

    monkeypatch.setattr(OsFileSystem, "names", denied)


class FakeClock:
    """A clock that advances only when it is set, and while something sleeps or waits.

    * `wall_ms`: Wall clock; set it back as an administrator would.
    * `seconds`: Monotonic clock.
    * `while_waiting`: Called at the start of each wait: simulates what other threads do meanwhile.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.wall_ms = wall_ms
        self.seconds = 0.0
        self.slept: list[float] = []
        self.while_waiting: Callable[[], None] | None = None

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall_ms += round(seconds * 1000)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)

    def wait(self, event: Event, seconds: float | None) -> bool:
        if self.while_waiting is not None and not event.is_set():
            self.while_waiting()
        if not event.is_set():
            assert seconds is not None, "nobody is there to set the event"
            self.advance(seconds)
        return event.is_set()


class SteadyClock(SystemClock):
    """A clock whose wall time is what was set; waiting takes real time."""

    wall_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.wall_ms


class FaultyFileSystem(OsFileSystem):
    """The real file system with injected faults; nothing waits for the disk: syncs are counted, not done.

    Operations are named ``open``, ``grow``, ``reserve``, ``read``, ``write``, ``sync``, ``map``, ``sync_directory``,
    ``make_directories``, ``remove``. `calls` lists them with the names of their files.

    A full disk has no more 4 KiB blocks: a write stops at the block boundary, and the next one fails with ENOSPC.

    * `percent`: How full it says it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.percent = 10
        self.calls: list[tuple[str, str]] = []
        self.free_blocks: int | None = None
        self._blocks: set[tuple[int, int]] = set()
        self._faults: dict[str, list[int]] = {}
        self.before: dict[str, Callable[[], None]] = {}

    def fail(self, operation: str, error: int, *, times: int = 1, after: int = 0) -> None:
        """Let the next `times` calls of an operation fail, after `after` successful ones; error 0 means success."""
        self._faults[operation] = [0] * after + [error] * times

    def heal(self) -> None:
        """Remove all faults, and free the disk."""
        self._faults.clear()
        self.free_blocks = None

    def count(self, operation: str) -> int:
        return sum(1 for call, _ in self.calls if call == operation)

    def called(self, operation: str, path: Path) -> None:
        self.calls.append((operation, path.name))
        hook = self.before.get(operation)
        if hook is not None:
            hook()
        planned = self._faults.get(operation)
        code = planned.pop(0) if planned else 0
        if code:
            raise OSError(code, os.strerror(code), str(path))

    def take_blocks(self, inode: int, offset: int, size: int) -> int:
        """Allocate the blocks that a write needs, and return how many of its bytes fit."""
        if self.free_blocks is None:
            return size
        for block in range(offset // _PAGE, (offset + size - 1) // _PAGE + 1):
            if (inode, block) not in self._blocks:
                if self.free_blocks == 0:
                    return max(0, block * _PAGE - offset)
                self.free_blocks -= 1
                self._blocks.add((inode, block))
        return size

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
        self.called("open", path)
        return _FaultyFile(super().open(path, create=create, writable=writable), path, self)

    def make(self, path: Path, size: int) -> OsOpenFile:
        self.called("open", path)
        self.called("grow", path)
        return _FaultyFile(super().make(path, size), path, self)

    def make_directories(self, path: Path) -> None:
        self.called("make_directories", path)
        super().make_directories(path)

    def add_directories(self, path: Path) -> None:
        self.called("make_directories", path)
        super().add_directories(path)

    def used_percent(self, path: Path) -> int:
        return self.percent if path.exists() else -1

    def sync_directory(self, path: Path) -> None:
        self.called("sync_directory", path)

    def remove(self, path: Path) -> None:
        self.called("remove", path)
        super().remove(path)


class SyncingDisk(FaultyFileSystem):
    """Records which directories are synced, including parents, and can fail at one."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.failing: str | None = None

    def sync_directory(self, path: Path) -> None:
        OsFileSystem.sync_directory(self, path)

    def sync_names(self, path: Path) -> None:
        if path.name == self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        self.synced.append(path.name)


class _FaultyFile(OsOpenFile):
    def __init__(self, file: OpenFile, path: Path, disk: FaultyFileSystem) -> None:
        super().__init__(os.dup(file.fileno()), path)
        file.close()
        self._disk = disk

    def grow(self, size: int) -> None:
        self._disk.called("grow", self._path)
        super().grow(size)

    def reserve(self, size: int) -> None:
        self._disk.called("reserve", self._path)
        if self._disk.take_blocks(self._inode(), 0, size) < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        super().reserve(size)

    def read(self, size: int, offset: int) -> bytes:
        self._disk.called("read", self._path)
        return super().read(size, offset)

    def write(self, data: memoryview, offset: int) -> int:
        self._disk.called("write", self._path)
        room = self._disk.take_blocks(self._inode(), offset, len(data))
        if room == 0 and len(data) > 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        return super().write(data[:room], offset)

    def sync(self) -> None:
        self._disk.called("sync", self._path)

    def mapping(self, size: int) -> memoryview:
        self._disk.called("map", self._path)
        return super().mapping(size)

    def _inode(self) -> int:
        return os.fstat(self.fileno()).st_ino


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
        if source.is_dir():
            self._rename_directory(source, target)
            return
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

    def _rename_directory(self, source: Path, target: Path) -> None:
        self.change(target, undo=lambda: target.rename(source))
        for path in [path for path in self._synced if path.is_relative_to(source)]:
            self._synced[target / path.relative_to(source)] = self._synced.pop(path)
        source.rename(target)

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
