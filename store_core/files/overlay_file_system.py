# SPDX-License-Identifier: Apache-2.0
"""A file system whose changes stay in memory, for dry runs."""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Final, TypeAlias

from store_core.files.file_system import FileStatus, FileSystem, OpenFile, not_a_file
from store_core.files.mapped_file import anonymous_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.files.clock import Clock


_BLOCK: Final = 1 << 16
"""Size of the blocks by which writes are recorded, in bytes."""

_PIECE: Final = 1 << 20
_NOTHING: Final = memoryview(bytearray())


class OverlayNode:
    """The bytes of a file, shared by all who have it open.

    * `base`: Opens the file in the base; it is closed after each use, so that many files do not need as many
      descriptors.

    * `size`: Bytes.
    * `modified_ms`: Time of the last change, ms since 1970.
    * `first_changed`: The first byte that differs from the base.
    * `identity`: As in `FileStatus`.
    """

    def __init__(
        self,
        base: Callable[[], OpenFile] | None,
        size: int,
        clock: Clock,
        identity: tuple[int, int],
        modified_ms: int | None = None,
    ) -> None:
        self.size = size
        self.identity = identity
        self.modified_ms = clock.now_ms() if modified_ms is None else modified_ms
        self.first_changed: int | None = None
        self._clock = clock
        self._base = base
        self._base_size = size if base is not None else 0
        self._lock = RLock()
        # While nothing is changed, the readers keep the mapping alive, not this object.
        self._unchanged: weakref.ref[mmap.mmap] | None = None
        # The newest holds the file; older ones are shorter, still used by readers, and kept up to date.
        self._memories: list[memoryview] = []
        self._written: set[int] = set()

    @property
    def is_new(self) -> bool:
        """Whether the base has no such file."""
        return self._base is None

    def read(self, size: int, offset: int, below: OpenFile | None) -> bytes:
        """Read at most `size` bytes, from `below` while nothing is changed."""
        with self._lock:
            stop = min(offset + size, self.size)
            if below is None or self._memories:
                return bytes(self._memory()[offset:stop]) if offset < stop else b""
            return below.read(max(stop - offset, 0), offset)

    def open_below(self) -> OpenFile | None:
        """Open the file in the base; None if there is none, or the file was changed."""
        return self._base() if self._base is not None and not self._memories else None

    def write(self, data: memoryview, offset: int) -> int:
        """Write, and extend the file if needed."""
        with self._lock:
            stop = offset + len(data)
            if not data:
                return 0
            if stop > self.size:
                self._note_change(self.size)
                self.resize(stop)
            self._memory()
            self._note_written(data, offset)
            for memory in self._memories:
                room = max(min(stop, len(memory)) - offset, 0)
                memory[offset : offset + room] = data[:room]
            self.modified_ms = self._clock.now_ms()
            return len(data)

    def _note_written(self, data: memoryview, offset: int) -> None:
        self._written.update(range(offset // _BLOCK, (offset + len(data) - 1) // _BLOCK + 1))
        if self.first_changed is not None and self.first_changed <= offset:
            return
        for start in range(0, len(data), _PIECE):
            new = bytes(data[start : start + _PIECE])
            old = bytes(self._memory()[offset + start : offset + start + len(new)])
            if new != old:
                different = next(at for at, (one, two) in enumerate(zip(new, old, strict=True)) if one != two)
                self._note_change(offset + start + different)
                return

    def _note_change(self, offset: int) -> None:
        if self.first_changed is None or offset < self.first_changed:
            self.first_changed = offset

    def resize(self, size: int) -> None:
        """Cut the file, or extend it with a hole."""
        with self._lock:
            if size == self.size:
                return
            before = self._memory()
            self._note_change(min(size, self.size))
            if size > len(before):
                self._move(size)
            for memory in self._memories:
                _clear(memory, size, self.size)
            self.size = size
            self.modified_ms = self._clock.now_ms()

    def _memory(self) -> memoryview:
        """Return the memory that holds the file from the first change on; make it if needed."""
        if not self._memories:
            self._memories.append(self._view())
        return self._memories[-1]

    def _view(self) -> memoryview:
        """Return the base's file, mapped so that changes stay private; or zeros, if there is none."""
        if self._base is None or not self._base_size:
            return anonymous_memory(self.size) if self.size else _NOTHING
        mapping = self._unchanged() if self._unchanged is not None else None
        if mapping is None:
            flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
            protection = mmap.PROT_READ | mmap.PROT_WRITE
            file = self._base()
            mapping = mmap.mmap(file.fileno(), self._base_size, flags=flags, prot=protection)
            file.close()
            self._unchanged = weakref.ref(mapping)
        return memoryview(mapping)

    def _move(self, size: int) -> None:
        """Copy the file to larger memory, skipping holes."""
        target, at = anonymous_memory(size), 0
        source = self._memories[-1]
        while (data := self.next_data(at)) is not None:
            start, at = data
            target[start:at] = source[start:at]
            self._written.update(range(start // _BLOCK, (at - 1) // _BLOCK + 1))
        self._base_size = 0
        self._memories.append(target)

    def map(self, size: int) -> memoryview:
        """Return a view of the first bytes; later writes show in it."""
        with self._lock:
            if size > self.size:
                raise ValueError(f"mmap length {size} is greater than the file's size, {self.size}")
            memory = self._view() if self._base is not None and not self._memories else self._memory()
            return memory[:size].toreadonly()

    def next_data(self, offset: int) -> tuple[int, int] | None:
        """Return start and stop of the first stretch that may hold anything but zeros."""
        with self._lock:
            if offset >= self.size:
                return None
            below = self._base().next_data(offset) if self._base is not None and offset < self._base_size else None
            if below is not None and below[0] >= self.size:
                below = None
            here = min((block for block in self._written if (block + 1) * _BLOCK > offset), default=None)
            if here is not None and here * _BLOCK < self.size and (below is None or here * _BLOCK <= below[0]):
                return max(here * _BLOCK, offset), min((here + 1) * _BLOCK, self.size)
            return None if below is None else (max(below[0], offset), min(below[1], self.size))


class OverlayFile:
    """An open file of an `OverlayFileSystem`."""

    def __init__(self, node: OverlayNode, *, writable: bool) -> None:
        self._node = node
        self._writable = writable
        self._below: OpenFile | None = None

    def fileno(self) -> int:
        """Refuse: there is no descriptor."""
        raise OSError(errno.EOPNOTSUPP, "a file that is in memory only has no descriptor to lock")

    def size(self) -> int:
        """Return the current size, in bytes."""
        return self._node.size

    def read(self, size: int, offset: int) -> bytes:
        """Read at most `size` bytes at `offset`."""
        self._below = self._below or self._node.open_below()
        return self._node.read(size, offset, self._below)

    def write(self, data: memoryview, offset: int) -> int:
        """Write at `offset`, all of it."""
        self._check_writable(errno.EBADF)
        return self._node.write(memoryview(data).cast("B"), offset)

    def _check_writable(self, code: int) -> None:
        if not self._writable:
            raise OSError(code, os.strerror(code))

    def sync(self) -> None:
        """Do nothing: there is no disk."""

    def grow(self, size: int) -> None:
        """Extend the file with a hole; never shortens it."""
        if self._node.size < size:
            self._check_writable(errno.EINVAL)
            self._node.resize(size)

    def truncate(self, size: int) -> None:
        """Cut or extend the file to `size` bytes."""
        self._check_writable(errno.EINVAL)
        self._node.resize(size)

    def reserve(self, size: int) -> None:
        """Extend the file if needed; no blocks are allocated."""
        self._check_writable(errno.EBADF)
        self.grow(size)

    def map(self, size: int) -> memoryview:
        """Return a view of the first `size` bytes; writes show at once, and the memory lives as long as its views."""
        return self._node.map(size)

    def next_data(self, offset: int) -> tuple[int, int] | None:
        """Return start and stop of the first stretch at or after `offset` that may hold anything but zeros."""
        return self._node.next_data(offset)

    def close(self) -> None:
        """Close the file; mappings stay."""
        self._below = None


def _clear(memory: memoryview, start: int, stop: int) -> None:
    """Zero what was cut off, so that it does not reappear when the file grows again."""
    stop = min(stop, len(memory))
    for at in range(start, stop, _PIECE):
        piece = memory[at : min(at + _PIECE, stop)]
        if bytes(piece).strip(b"\0"):
            piece[:] = bytes(len(piece))


_DEVICE: Final = -1
"""Device number of files that exist only in the overlay."""


@dataclass(frozen=True, slots=True, order=True)
class FileChange:
    """How a file or directory was changed."""

    path: Path
    kind: str  # ``"created"``, ``"removed"``, ``"written"`` or ``"truncated"``; a renamed file is removed and created
    first_changed: int = 0  # the first byte that differs from before; 0 for a file that is created or removed
    size: int = 0  # size after the change, in bytes; 0 for a removed file
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

    * `base`: The file system that the changes overlay.
    * `clock`: Clock for the times of changes.
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
