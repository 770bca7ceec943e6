# SPDX-License-Identifier: Apache-2.0
"""The bytes of one segment file: created, written, erased, synced and mapped, with a defined state after failures."""

from __future__ import annotations

import errno
import logging
import re
from threading import Lock, RLock
from typing import TYPE_CHECKING, Final

from store_core.errors import SegmentLayoutError, SegmentVanishedError
from store_core.files.file_sync import FileSync
from store_core.files.file_system import FileSystem, OpenFile, write_all
from store_core.files.names import LAST_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.files.segment_source import WalkedBytes


_LOG: Final = logging.getLogger("store_core")
_NAME: Final = re.compile(r"[+-]?0*[0-9]{1,19}")
_ZEROS: Final = bytes(1 << 20)
_CANNOT_RESERVE: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def file_name_of(offset: int) -> str:
    """Return the name of the segment that starts at `offset` (RocketMQ: ``UtilAll.offset2FileName``).

    >>> file_name_of(1073741824)
    '00000000001073741824'
    """
    return f"{offset:020d}"


def offset_of(path: Path) -> int:
    """Return a segment's start offset from its name, which need not be padded (RocketMQ: ``Long.parseLong``)."""
    offset = int(path.name) if _NAME.fullmatch(path.name) else None
    if offset is None or not -LAST_OFFSET <= offset <= LAST_OFFSET:
        raise SegmentLayoutError(
            f"{path} is not named like a segment: expected its start offset in decimal digits, found {path.name!r}. "
            f"RocketMQ refuses to load a store with such a file: move it elsewhere"
        )
    return offset


class SegmentFile:
    """A file of fixed size, opened on first use.

    Bytes are written by ``pwrite``, not through the mapping, so that a full disk raises `OSError` instead of SIGBUS,
    see `store_core.files.file_system.OsOpenFile`.

    **A failed write leaves nothing.** The bytes it had written are zeroed again, so that a restart can't read half a
    record, or half a batch. If zeroing fails too, the next write starts with it, and fails as long as it does.

    **A process killed during a write leaves nothing that counts**, if the write has a `seal`: its first bytes are
    written last, and until then the place reads as unwritten. A kill makes Linux end a ``pwrite`` between two pages,
    and what is there then may look like a whole record whose topic or properties end in zeros: the checksum covers the
    body alone. Concurrent readers see all of the data, or none.

    **A failed sync is not repeated.** After an error Linux may drop the pages it could not write, and a second
    ``fsync`` succeeds without them. So the file counts as unsynced until the store is reopened. (RocketMQ logs the
    error and counts the bytes as flushed: ``MappedFile.flush``.)

    * `open_files`: Those with which it counts to a limit of open files. One that is not synced stays open beyond it:
      only who had a file open while the system failed to write it is certain to hear of that.
    """

    def __init__(self, path: Path, size: int, file_system: FileSystem, *, writable: bool = True) -> None:
        self.path = path
        self.size = size
        self._file_system = file_system
        self._writable = writable
        self._lock = RLock()
        self._file: OpenFile | None = None
        self._view: Callable[[int, int], memoryview] | None = None
        self._torn_until = 0
        self._is_unsynced = False
        self.open_files: OpenFiles | None = None
        self._sync = FileSync(path, file_system)
        self.is_new = False

    def create(self, *, reserve: bool = False) -> None:
        """Create the file at its full size.

        Steps: 1. create the directory; 2. create the file as one hole of its full size, see `OsFileSystem.make`; 3.
        with `reserve`, allocate the disk blocks (the effect of RocketMQ's ``warmMapedFileEnable``), if the file system
        can. Nothing is synced yet: the first `sync` does that, directory included. No kill leaves a shorter file, which
        RocketMQ would refuse to load (from 5.1.3 on it deletes an empty last one). An existing file of that name is
        used with its content, as in RocketMQ.
        """
        self._file_system.add_directories(self.path.parent)
        self.is_new = self._file_system.status(self.path) is None
        file = self._file_system.make(self.path, self.size) if self.is_new else self._file_system.open(self.path)
        try:
            if not self.is_new:
                self._size_up(file)
            if reserve:
                self._reserve(file)
        except OSError:
            file.close()
            if self.is_new:
                self._file_system.remove(self.path)
            raise
        self._file = file
        self._is_unsynced = True
        self._sync.note_creation()

    def _size_up(self, file: OpenFile) -> None:
        found = file.size()
        if found > self.size:
            raise FileExistsError(
                errno.EEXIST,
                f"expected at most {self.size} bytes, found {found}: move the file elsewhere, or open the store with "
                f"the segment size it was made with",
                str(self.path),
            )
        file.grow(self.size)

    def _reserve(self, file: OpenFile) -> None:
        try:
            file.reserve(self.size)
        except OSError as error:
            if error.errno not in _CANNOT_RESERVE:
                raise

    def write(self, data: memoryview, position: int, *, seal: int = 0) -> None:
        """Write all of `data` at `position`, or nothing.

        * `position`: Bytes from the start of the file.
        * `seal`: How many of the first bytes are written last.
        """
        file = self._open()
        if self._torn_until > position:
            self.clear(position, self._torn_until)
            self._torn_until = 0
        self._is_unsynced = True
        try:
            if seal:
                write_all(file, data[seal:], position + seal)
            write_all(file, data[:seal] if seal else data, position)
        except OSError as error:
            _LOG.error("write of %d bytes at %d of %s failed: %s", len(data), position, self.path, error)
            self._erase(position, position + len(data))
            raise
        finally:
            self._is_unsynced = True  # a sync that began meanwhile may have missed it

    def _erase(self, start: int, stop: int) -> None:
        try:
            self.clear(start, stop)
        except OSError as error:
            _LOG.error("bytes %d to %d of %s could not be erased yet: %s", start, stop, self.path, error)
            self._torn_until = stop

    def clear(self, start: int, stop: int) -> bool:
        """Overwrite what is not yet zero with zeros, first bytes first: from the first write on the log ends there.

        Returns: Whether there was anything to overwrite.
        """
        file = self._open()
        is_changed = False
        while start < stop and (data := file.next_data(start)) is not None and data[0] < stop:
            start = max(start, data[0])
            until = min(stop, data[1], start + len(_ZEROS))
            zeros = _ZEROS[: until - start]  # bytes: a memoryview is compared item by item
            if file.read(len(zeros), start) != zeros:
                write_all(file, memoryview(zeros), start)
                self._is_unsynced = is_changed = True
            start = until
        return is_changed

    def sync(self) -> None:
        """Sync the file's data and size to disk, and the first time also the directory of a file created here."""
        self._is_unsynced = False
        try:
            self._sync.sync(self._open)
        except OSError:
            self._is_unsynced = True
            raise
        self._note_use()

    def view(self, begin: int, end: int) -> memoryview:
        """Return a read-only view of bytes; it stays valid after `close`, and after the file is deleted."""
        return self.viewer()(begin, end)

    def viewer(self) -> Callable[[int, int], memoryview]:
        """Return what gives views of bytes, from one position up to another; it stays valid as they do."""
        view = self._view
        if view is None:
            with self._lock:
                file = self._file or self._opened()
                view = self._view = self._view or self._whole(file).viewer(self.size)
            self._note_use()
        return view

    def source(self) -> WalkedBytes:
        """Return the whole file, to walk through it."""
        return self._whole(self._open()).source(self.size)

    def _whole(self, file: OpenFile) -> OpenFile:
        """Return an open file if it is still as long as it has to be."""
        found = file.size()
        if found < self.size:
            raise SegmentVanishedError(
                f"{self.path} had {self.size} bytes when it was listed, and has {found} now: something truncated it "
                f"while it was read, which no broker does. Read a copy, or run this again when that is over"
            )
        return file

    def check_opens(self) -> None:
        """Open the file, and close it again."""
        file = self._opened()
        file.next_data(0)  # without this an overlay opens nothing, and reading would fetch a page from the disk
        file.close()

    def _opened(self) -> OpenFile:
        try:
            return self._file_system.open(self.path, writable=self._writable)
        except FileNotFoundError as error:
            raise SegmentVanishedError(
                f"{self.path} had {self.size} bytes when it was listed, and is gone now: something deleted it while it "
                f"was read. Run this again"
            ) from error

    def _open(self) -> OpenFile:
        file = self._file
        if file is None:
            with self._lock:
                file = self._file = self._file or self._opened()
            self._note_use()
        return file

    def _note_use(self) -> None:
        """Count this file as used, which may release another. Call it without the lock: two threads could deadlock."""
        if self.open_files is not None:
            self.open_files.use(self._release)

    def _release(self) -> None:
        with self._lock:
            if not self._is_unsynced:
                self.close()

    def close(self) -> None:
        """Drop the file; the next use opens it again."""
        with self._lock:
            # Dropped, not closed: another thread may be syncing it, and its number could become another file's.
            self._file = self._view = None

    def remove(self) -> None:
        """Delete the file; it is fine if it does not exist."""
        self._file_system.remove(self.path)


MAX_OPEN_QUEUES: Final = 256
"""A queue in use has a descriptor or two for its last file: some 512 in all, half of what a process may usually have.
An extension counts as a queue of its own."""

MAX_OPEN_SEGMENTS: Final = 64
"""A segment in use has two descriptors: its own, and that of its mapping."""


class OpenFiles:
    """The most recently used files; using another one makes the least recently used close.

    A store of light queues has tens of thousands of queues, one that is kept for long has thousands of segments, and a
    process has about a thousand descriptors. (RocketMQ maps all files.)

    A file may be used while another thread makes it close: it is dropped then, and views stay valid.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._open: dict[Callable[[], None], None] = {}

    def use(self, close: Callable[[], None]) -> None:
        """Record that a file is about to be used.

        * `close`: A method of the file; its next use opens it again.
        """
        with self._lock:
            self._open.pop(close, None)
            self._open[close] = None
            oldest = next(iter(self._open)) if len(self._open) > self._limit else None
            if oldest is not None:
                del self._open[oldest]
        if oldest is not None:
            oldest()
