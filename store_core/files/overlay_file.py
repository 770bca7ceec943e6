# SPDX-License-Identifier: Apache-2.0
"""One file of an overlay: read from the base until it is changed, and from memory then."""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from threading import RLock
from typing import TYPE_CHECKING, Final

from store_core.files.transient_store_pool import anonymous_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.files.clock import Clock
    from store_core.files.file_system import OpenFile

__all__ = ["OverlayFile", "OverlayNode"]

_BLOCK: Final = 1 << 16
"""Size of the blocks by which writes are recorded, in bytes."""

_PIECE: Final = 1 << 20
_NOTHING: Final = memoryview(bytearray())


class OverlayNode:
    """The bytes of a file, shared by all who have it open.

    Parameters
    ----------
    base : callable or None
        Opens the file in the base; it is closed after each use, so that many files do not need as many descriptors.

    Attributes
    ----------
    size : int
        Bytes.
    modified_ms : int
        Time of the last change, ms since 1970.
    first_changed : int or None
        The first byte that differs from the base.
    identity : tuple of int
        As in `FileStatus`.
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
        """Refuse: there is no descriptor.

        Raises
        ------
        OSError
            EOPNOTSUPP.
        """
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
