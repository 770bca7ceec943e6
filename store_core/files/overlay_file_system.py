# SPDX-License-Identifier: Apache-2.0
"""A file system whose changes stay in memory, for dry runs."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import RLock
from typing import IO, TYPE_CHECKING, Final, TypeAlias, cast

import numpy as np

from store_core.errors import SegmentVanishedError
from store_core.files.access import explained_access
from store_core.files.file_system import FileStatus, FileSystem, is_directory, not_a_file
from store_core.files.segment_source import LocalBytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.files.machine import Clock


_BLOCK: Final = 64 << 10
"""Bytes that are kept together once one of them is changed."""


class OverlayNode:
    """The bytes of a file, shared by all who have it open: the blocks that were changed, and the base's file.

    * `base`: Opens the file in the base; None if there is none.

    * `modified_ms`: Time of the last change, ms since 1970.
    * `first_changed`: The first byte that differs from the base.
    * `identity`: As in `FileStatus`.
    """

    def __init__(
        self,
        base: Callable[[], LocalBytes] | None,
        size: int,
        clock: Clock,
        identity: tuple[int, int],
        modified_ms: int | None = None,
    ) -> None:
        self.size = size
        self.identity = identity
        self.modified_ms = clock.now_ms() if modified_ms is None else modified_ms
        self.first_changed: int | None = None
        self.open_below = base
        self._clock = clock
        self._base_size = size if base is not None else 0
        self._lock = RLock()
        self._blocks: dict[int, bytearray] = {}

    def read_into(self, target: memoryview, offset: int, below: LocalBytes | None) -> None:
        """Fill a buffer with the bytes from an offset on, all of which have to be inside of the file."""
        with self._lock:
            stop = offset + len(target)
            numbers = range(offset // _BLOCK, -(-stop // _BLOCK))
            changed = [number for number in numbers if number in self._blocks] if self._blocks else []
            room = max(min(stop, self._base_size) - offset, 0)
            if len(changed) < len(numbers):
                if below is not None:
                    below.read_into(target[:room], offset)
                target[room:] = bytes(len(target) - room)
            for number in changed:
                begin, end = max(number * _BLOCK, offset), min((number + 1) * _BLOCK, stop)
                at = number * _BLOCK
                target[begin - offset : end - offset] = self._blocks[number][begin - at : end - at]

    def write(self, data: memoryview, offset: int, below: LocalBytes | None) -> int:
        """Write, and extend the file if needed."""
        with self._lock:
            stop = offset + len(data)
            if not data:
                return 0
            if stop > self.size:
                self.resize(stop)
            at = offset
            while at < stop:
                number, begin = divmod(at, _BLOCK)
                part = data[at - offset :][: _BLOCK - begin]
                self._write_block(number, begin, part, below)
                at += len(part)
            self.modified_ms = self._clock.now_ms()
            return len(data)

    def _write_block(self, number: int, begin: int, data: memoryview, below: LocalBytes | None) -> None:
        block = self._blocks.get(number)
        if block is None:
            block = bytearray(_BLOCK)
            at = number * _BLOCK
            self.read_into(memoryview(block)[: self.size - at], at, below)
            self._blocks[number] = block
        at = number * _BLOCK + begin
        if self.first_changed is None or at < self.first_changed:
            old = block[begin : begin + len(data)]
            if old != data:
                different = next(each for each, (new, was) in enumerate(zip(data, old, strict=True)) if new != was)
                self._note_change(at + different)
        block[begin : begin + len(data)] = data

    def _note_change(self, offset: int) -> None:
        if self.first_changed is None or offset < self.first_changed:
            self.first_changed = offset

    def resize(self, size: int) -> None:
        """Cut the file, or extend it with a hole."""
        with self._lock:
            if size == self.size:
                return
            self._note_change(min(size, self.size))
            self._base_size = min(self._base_size, size)
            last = size // _BLOCK
            self._blocks = {number: block for number, block in self._blocks.items() if number <= last}
            if last in self._blocks and size < self.size:  # so that it does not reappear when the file grows again
                self._blocks[last][size % _BLOCK :] = bytes(_BLOCK - size % _BLOCK)
            self.size = size
            self.modified_ms = self._clock.now_ms()

    def next_data(self, position: int, below: LocalBytes | None) -> int:
        """Return the first position at or after another that may hold anything but zeros, or the size."""
        with self._lock:
            starts = (number * _BLOCK for number in self._blocks if (number + 1) * _BLOCK > position)
            found = below.next_data(position) if below is not None and position < self._base_size else self.size
            changed = max(min(starts, default=self.size), position)
            return changed if found >= self._base_size else min(found, changed)

    def next_hole(self, position: int, below: LocalBytes | None) -> int:
        """Return a position up to which there may be anything but zeros from one on that may hold such."""
        with self._lock:
            number = position // _BLOCK
            if number in self._blocks or below is None:
                return min((number + 1) * _BLOCK, self.size)
            return min(below.next_hole(position), self._base_size)


class OverlayFile:
    """An open file of an `OverlayFileSystem`."""

    def __init__(self, node: OverlayNode, *, writable: bool) -> None:
        self._node = node
        self._writable = writable
        self._opened: LocalBytes | None = None

    @property
    def _below(self) -> LocalBytes | None:
        """The file in the base, opened when it is needed, so that many files do not need as many descriptors."""
        if self._opened is None and self._node.open_below is not None:
            self._opened = self._node.open_below()
        return self._opened

    def fileno(self) -> int:
        """Refuse: there is no descriptor."""
        raise OSError(errno.EOPNOTSUPP, "a file that is in memory only has no descriptor to lock")

    def size(self) -> int:
        """Return the current size, in bytes."""
        return self._node.size

    def read(self, size: int, offset: int) -> bytes:
        """Read at most `size` bytes at `offset`."""
        found = bytearray(max(min(size, self._node.size - offset), 0))
        self._node.read_into(memoryview(found), offset, self._below)
        return bytes(found)

    def write(self, data: memoryview, offset: int) -> int:
        """Write at `offset`, all of it."""
        self._check_writable(errno.EBADF)
        return self._node.write(memoryview(data).cast("B"), offset, self._below)

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

    def viewer(self, size: int) -> Callable[[int, int], memoryview]:
        """Return what reads bytes of the first `size`."""
        if size > self._node.size:
            raise ValueError(f"expected {size} bytes, found {self._node.size}")
        return self._view

    def _view(self, begin: int, end: int) -> memoryview:
        """Return the bytes from one position up to another, read now; holes of the file take no memory."""
        if end - begin <= _BLOCK:  # is quicker read than searched for holes
            return memoryview(self.read(end - begin, begin))
        found = np.zeros(end - begin, np.uint8)
        at = begin
        while (data := self.next_data(at)) is not None and data[0] < end:
            start, at = data[0], min(data[1], end)
            self._node.read_into(found.data[start - begin : at - begin], start, self._below)
        return found.data.toreadonly()

    def source(self, size: int) -> LocalBytes:
        """Return the first `size` bytes, which are read window by window."""
        return _ShownFile(self, size, self._node, self._below)

    def next_data(self, offset: int) -> tuple[int, int] | None:
        """Return start and stop of the first stretch at or after `offset` that may hold anything but zeros."""
        below = self._below
        found = self._node.next_data(offset, below)
        if found >= self._node.size:
            if below is not None:
                below.check_size()  # a hole is also what is behind the end of a file
            return None
        return found, self._node.next_hole(found, below)

    def close(self) -> None:
        """Close the file; views stay."""
        self._opened = None


class _ShownFile(LocalBytes):
    """A file as the overlay shows it, for who walks through it."""

    def __init__(self, file: OverlayFile, size: int, node: OverlayNode, below: LocalBytes | None) -> None:
        super().__init__("", cast("IO[bytes]", file), size)
        self.node, self.below = node, below

    def read_into(self, target: memoryview, begin: int) -> None:
        self.node.read_into(target, begin, self.below)

    def next_data(self, position: int) -> int:
        return min(self.node.next_data(position, self.below), self.size)

    def check_size(self) -> None:
        if self.below is not None:
            self.below.check_size()


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


_DEVICE: Final = -1
"""Device number of files that exist only in the overlay."""


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory that exists only in the overlay."""

    modified_ms: int
    identity: tuple[int, int]


_Entry: TypeAlias = OverlayNode | _Directory | None
"""A file, a directory, or None if the entry in the base is removed."""


class OverlayFileSystem:
    """The content of another file system, with changes that only this object sees.

    The base is never changed, and never mapped: its files are read, and of what is written the blocks of 64 KiB that
    it changes are kept in memory. Changes last as long as this object. `fileno` of its files is refused: there is
    nothing to lock.

    What another process writes to the base shows here as long as the same block is unchanged here. A file in the base
    that vanishes or shrinks while it is used, or can't be read, is an error that names it.
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
            if not is_directory(directory, self):
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
        if entry.open_below is None or entry.identity != (before.identity if before is not None else None):
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
        if status is None and create and is_directory(path.parent, self):
            node = OverlayNode(None, 0, self._clock, self._identity())
        elif status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        elif status.is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        else:
            node = OverlayNode(
                partial(self._open_below, path, status.size),
                status.size,
                self._clock,
                status.identity,
                status.modified_ms,
            )
        self._set(path, node)
        return node

    def _open_below(self, path: Path, size: int) -> LocalBytes:
        """Open a file in the base that is as long as it was when it was looked up."""
        try:
            with explained_access(path):
                opened = self._base.open(path, writable=False)  # of which a number and `close` are used
        except FileNotFoundError as error:
            raise SegmentVanishedError(
                f"{path} had {size} bytes when it was listed, and is gone now: something deleted it while it was read, "
                f"as a broker's retention does. Run this again"
            ) from error
        file = LocalBytes(str(path), cast("IO[bytes]", opened), size)
        file.check_size()
        return file

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

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, atomically replacing the target; directories can't be renamed here."""
        with self._lock:
            node = self._node(source)
            status = self._found(target)
            if status is not None and status.is_directory:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
            if not is_directory(target.parent, self):
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

    add_directories = make_directories

    def remove_directory(self, path: Path) -> None:
        """Delete a directory if it is empty; otherwise it stays."""
        with self._lock:
            if not self.names(path) and self.status(path) is not None:
                self._forget(path)

    def sync_directory(self, path: Path) -> None:
        """Check that the directory exists; there is no disk to sync to."""
        status = self._found(path)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if not status.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
