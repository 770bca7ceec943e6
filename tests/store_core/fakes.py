# SPDX-License-Identifier: Apache-2.0
"""Fakes for tests: a clock that stands still, and a disk that fails on demand."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

from store_core.files.file_system import OpenFile, OsFileSystem, OsOpenFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event


_PAGE = 4096


def descriptors() -> set[str]:
    """Return the descriptors that this process has open."""
    gc.collect()
    return {path.name for path in Path("/proc/self/fd").iterdir()}


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


class FaultyFileSystem(OsFileSystem):
    """The real file system with injected faults; nothing waits for the disk: syncs are counted, not done.

    Operations are named ``open``, ``grow``, ``reserve``, ``read``, ``write``, ``sync``, ``map``, ``sync_directory``,
    ``make_directories``, ``remove``. `calls` lists them with the names of their files.

    A full disk has no more 4 KiB blocks: a write stops at the block boundary, and the next one fails with ENOSPC.
    """

    def __init__(self) -> None:
        super().__init__()
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
