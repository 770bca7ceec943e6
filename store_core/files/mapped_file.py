# SPDX-License-Identifier: Apache-2.0
"""A segment that is written here, and its file: created, synced and mapped, with a defined state after failures."""

from __future__ import annotations

import errno
import logging
import mmap
import re
from collections import deque
from threading import Lock, RLock
from typing import TYPE_CHECKING, Final, Self

from store_core.errors import SegmentLayoutError, SegmentVanishedError
from store_core.files.file_sync import FileSync
from store_core.files.file_system import FileSystem, OpenFile, write_all
from store_core.files.names import LAST_OFFSET
from store_core.format.layout import BLANK_SIZE, head_dtype
from store_core.format.message import AppendMessageResult, AppendMessageStatus
from store_core.format.segment_view import SegmentView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typing_extensions import Buffer

    from store_core.files.segment_source import WalkedBytes

    AppendCallback = Callable[[int, memoryview, int], AppendMessageResult]


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


OS_PAGE_SIZE: Final = 4096
"""Unit of the page rules, in bytes, whatever the machine's page size (RocketMQ: ``MappedFile.OS_PAGE_SIZE``)."""

RECORD_SEAL: Final = head_dtype()["total_size"].itemsize
"""Bytes of a record's size field: while it is 0, the log ends before the record."""


def commit_steps(records: memoryview, position: int) -> Iterator[tuple[slice, int]]:
    """Yield the writes to do, in order, each with its seal, see `store_core.files.mapped_file.SegmentFile.write`.

    A kill makes Linux end a ``pwrite`` between two pages, never inside of one. So records that lie in one page are
    written together, and one that is in several pages alone. A single one has its size written last. (If the size of
    the first were written last of all, a kill would leave records after a gap, which looks like damage: they are newer
    than what is before it, and of several times.)

    * `records`: Whole records. What is not, is one write, to the end.
    * `position`: Of the first, in bytes from the start of the file.

    Yields: Part of `records`, and the bytes of it to write last.
    """
    begin = last = end = 0
    while end < len(records):
        size = int.from_bytes(records[end : end + RECORD_SEAL], "big")
        after = end + size if RECORD_SEAL <= size <= len(records) - end else len(records)
        if begin < end and (position + begin) // OS_PAGE_SIZE != (position + after - 1) // OS_PAGE_SIZE:
            yield slice(begin, end), RECORD_SEAL if begin == last else 0
            begin = end
        last, end = end, after
    if begin < end:
        yield slice(begin, end), RECORD_SEAL if begin == last else 0


_LOW_WATER: Final = 0.4
"""Share of free buffers below which RocketMQ warns (``TransientStorePool.borrowBuffer``)."""


def anonymous_memory(size: int) -> memoryview:
    """Return `size` writable bytes, initially zero; only pages that are touched use memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return memoryview(mmap.mmap(-1, size, flags=flags))


class TransientStorePool:
    """A few buffers of a segment's size: appends go into a buffer, and a commit copies them to the file.

    RocketMQ (``TransientStorePool``, option ``transientStorePoolEnable``) locks its buffers in memory; here they are
    ordinary memory, which Linux may swap. Bytes in a buffer that are not committed are lost with the process.

    * `pool_size`: Number of buffers (``transientStorePoolSize``, 5).
    * `file_size`: Bytes of each.
    """

    def __init__(self, pool_size: int, file_size: int) -> None:
        self.pool_size = pool_size
        self.file_size = file_size
        self._lock = Lock()
        self._free = deque(anonymous_memory(file_size) for _ in range(pool_size))

    @property
    def available_buffers(self) -> int:
        """Number of free buffers."""
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """Take a free buffer, which may hold old bytes; None if none is left, and the segment does without."""
        with self._lock:
            buffer = self._free.popleft() if self._free else None
            left = len(self._free)
        if left < self.pool_size * _LOW_WATER:
            _LOG.warning("the transient store pool has %d of %d buffers left", left, self.pool_size)
        return buffer

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer to the pool."""
        with self._lock:
            self._free.appendleft(buffer)

    def destroy(self) -> None:
        """Drop the free buffers."""
        with self._lock:
            self._free.clear()


class MappedFile:
    """A segment of fixed size that fills from its start (RocketMQ: ``MappedFile``, 5.x: ``DefaultMappedFile``).

    Positions are bytes from the start of the file. They only grow, except by `set_position`::

        0 <= flushed <= committed <= wrote <= file_size      with a write buffer from a `TransientStorePool`
        0 <= flushed <= wrote <= file_size                   without

    One thread appends at a time (the put lock of the commit log); flushing, committing and reading may run
    concurrently. `SegmentFile` describes what happens to the bytes when the disk is full or failing.

    * `file_size`: Bytes.
    * `file_from_offset`: Offset of the first byte in the log: the file's name.
    * `store_timestamp`: Store time of the last record appended since the file was opened, ms; 0 if none.
    * `first_create_in_queue`: Whether it was created for a queue that had no file.
    * `is_available`: Whether it was not destroyed. (RocketMQ counts the users of a file, ``ReferenceResource``, as it
      must not unmap what they read; views of this one stay valid.)
    """

    def __init__(self, path: Path, file_size: int, file_system: FileSystem, *, writable: bool = True) -> None:
        self.path = path
        self.file_size = file_size
        self.file_from_offset = offset_of(path)
        self.wrote_position = self.committed_position = self.flushed_position = 0
        self.store_timestamp = 0
        self.first_create_in_queue = False
        self.write_error: OSError | None = None
        self.is_available = True
        self._file_system = file_system
        self.segment = SegmentFile(path, file_size, file_system, writable=writable)
        self._pool: TransientStorePool | None = None
        self._write_buffer: memoryview | None = None
        self._scratch: memoryview | None = None
        self._commit_lock = RLock()
        self._flush_lock = RLock()

    @classmethod
    def create(
        cls,
        path: Path,
        file_size: int,
        file_system: FileSystem,
        pool: TransientStorePool | None = None,
        *,
        reserve: bool = False,
    ) -> Self:
        """Create the file, with all positions at 0; steps and errors are those of `SegmentFile.create`.

        With a `pool`, appends go into one of its buffers; if none is left, the file does without.
        """
        created = cls(path, file_size, file_system)
        created.segment.create(reserve=reserve)
        if pool is not None:
            created._pool = pool
            created._write_buffer = pool.borrow()
        return created

    def __repr__(self) -> str:
        return f"MappedFile({str(self.path)!r}, wrote={self.wrote_position}, flushed={self.flushed_position})"

    @property
    def end_offset(self) -> int:
        """Offset in the log of the first byte after the file."""
        return self.file_from_offset + self.file_size

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be appended."""
        return self.wrote_position == self.file_size

    @property
    def read_position(self) -> int:
        """Where readers must stop: the wrote position, or with a write buffer the committed position."""
        return self.wrote_position if self._write_buffer is None else self.committed_position

    @property
    def last_modified_ms(self) -> int:
        """Time of the file's last change, ms since 1970; 0 if it does not exist."""
        status = self._file_system.status(self.path)
        return status.modified_ms if status is not None else 0

    def append(self, data: Buffer, *, seal: int = 0) -> bool:
        """Append bytes as they are; False, with nothing changed, if they do not fit.

        The bulk path: no callback, and one copy, into the page cache or the write buffer. The caller sets
        `store_timestamp`.

        * `seal`: `RECORD_SEAL` for records: the first bytes are written last, see `SegmentFile`.
        """
        view = memoryview(data).cast("B")
        position = self.wrote_position
        if len(view) > self.file_size - position:
            return False
        if self._write_buffer is None:
            self._write(view, position, seal)
        else:
            self._write_buffer[position : position + len(view)] = view
        self.wrote_position = position + len(view)
        return True

    def append_with(self, callback: AppendCallback) -> AppendMessageResult:
        """Let `callback` write a record after the last one (RocketMQ: ``MappedFile.appendMessagesInner``).

        * `callback`: ``callback(file_from_offset, view, room)`` gets the file's start offset, a writable view of all
          that is left in the file, and its size in bytes. The view's prior content is undefined. The callback writes
          from the view's start, and `wrote_bytes` of its result is how far the wrote position advances. With
          END_OF_FILE only the blank record's eight bytes are stored.

        Returns: The callback's; or UNKNOWN_ERROR if the file was full, or the system refused the bytes (see
        `write_error`): then positions stay, and nothing of the record is in the file.
        """
        position = self.wrote_position
        room = self.file_size - position
        if room <= 0:
            return AppendMessageResult(AppendMessageStatus.UNKNOWN_ERROR)
        try:
            area = self._append_area(position)
            result = callback(self.file_from_offset, area, room)
            self._take(area, result, position)
        except OSError as error:
            self.write_error = error
            return AppendMessageResult(AppendMessageStatus.UNKNOWN_ERROR)
        if result.wrote_bytes:
            self.wrote_position = position + result.wrote_bytes
            self.store_timestamp = result.store_timestamp
        if self.is_full:
            self._scratch = None
        return result

    def _take(self, area: memoryview, result: AppendMessageResult, position: int) -> None:
        """Write to the file what a callback wrote; in the write buffer it is in place already."""
        if not 0 <= result.wrote_bytes <= len(area):
            raise ValueError(f"the append callback claims to have written {result.wrote_bytes} bytes of {len(area)}")
        if self._write_buffer is None and result.wrote_bytes:
            is_blank = result.status is AppendMessageStatus.END_OF_FILE
            stored = min(BLANK_SIZE, result.wrote_bytes) if is_blank else result.wrote_bytes
            self.segment.write(area[:stored], position, seal=RECORD_SEAL)

    def _append_area(self, position: int) -> memoryview:
        """Return the area a callback writes to: the write buffer, or memory that is copied to the file afterwards."""
        if self._write_buffer is not None:
            return self._write_buffer[position : self.file_size]
        if self._scratch is None:
            self._scratch = anonymous_memory(self.file_size)
        return self._scratch[: self.file_size - position]

    def _write(self, view: memoryview, position: int, seal: int) -> None:
        try:
            self.segment.write(view, position, seal=seal)
        except OSError as error:
            self.write_error = error
            raise

    def commit(self, least_pages: int) -> int:
        """Write the write buffer's new bytes to the file if there are enough; return the committed position.

        Without a write buffer there is nothing to commit, and the wrote position is returned. When the last byte of the
        file is committed the buffer goes back to the pool (RocketMQ: ``MappedFile.commit``).
        """
        with self._commit_lock:
            buffer = self._write_buffer
            if buffer is None:
                return self.wrote_position
            start, stop = self.committed_position, self.wrote_position
            if self._is_enough(stop, start, least_pages):
                for part, seal in commit_steps(buffer[start:stop], start):
                    self._write(buffer[start + part.start : start + part.stop], start + part.start, seal)
                    self.committed_position = start + part.stop
                if stop == self.file_size:
                    self._return_write_buffer()
            return self.committed_position

    def flush(self, least_pages: int) -> int:
        """Sync what readers see to disk if there is enough of it; return the flushed position.

        Steps: 1. note the read position; 2. sync the file, see `SegmentFile.sync`; 3. advance the flushed position to
        the one noted. All bytes below the flushed position survive a crash. (RocketMQ: ``MappedFile.flush``.)

        * `least_pages`: How many 4 KiB page borders must lie between the flushed and the read position; 0: any new byte
          is enough. A full file is always flushed.
        """
        with self._flush_lock:
            position = self.read_position
            if self._is_enough(position, self.flushed_position, least_pages):
                if self.is_available:
                    self.segment.sync()
                self.flushed_position = position
            return self.flushed_position

    def force(self) -> None:
        """Sync the file to disk, whatever the flushed position; errors are those of `flush`."""
        with self._flush_lock:
            self.segment.sync()

    def _is_enough(self, end: int, done: int, least_pages: int) -> bool:
        """Apply the page rule (RocketMQ: ``isAbleToFlush``, ``isAbleToCommit``)."""
        if self.is_full:
            return True
        if least_pages > 0:
            return end // OS_PAGE_SIZE - done // OS_PAGE_SIZE >= least_pages
        return end > done

    def set_position(self, position: int, *, clear_tail: bool = False) -> None:
        """Set all positions, as after recovery or a truncation (RocketMQ: ``MappedFileQueue.truncateDirtyFiles``).

        * `position`: Bytes from the start of the file.
        * `clear_tail`: Also overwrite everything after it with zeros, before positions move. RocketMQ leaves it, and if
          later records end exactly where an old one starts, the next restart finds the old ones again. The zeros are on
          disk on return, or else the old records could come back with a power failure.
        """
        with self._commit_lock, self._flush_lock:
            is_cleared = clear_tail and self.segment.clear(position, self.file_size)
            buffered = self._write_buffer is not None
            self.wrote_position = position
            # Bytes below the new position that are only in the write buffer are still to be committed and flushed.
            self.committed_position = min(self.committed_position, position) if buffered else position
            self.flushed_position = min(self.flushed_position, position) if buffered else position
            if is_cleared:
                self.segment.sync()

    def clear_tail(self) -> None:
        """Overwrite everything after the wrote position with zeros, which are on disk on return."""
        with self._flush_lock:
            if self.segment.clear(self.wrote_position, self.file_size):
                self.segment.sync()

    def select(self, position: int, size: int | None = None) -> memoryview | None:
        """Return a view of `size` bytes at `position`, or all up to the read position; None if they are not all there.

        The view is read-only and stays valid after the file is destroyed. Without a size, `position` must lie below
        the read position (RocketMQ: ``selectMappedBuffer``).
        """
        end = self.read_position
        stop = end if size is None else position + size
        if not 0 <= position <= stop <= end or (size is None and position == end) or not self.is_available:
            return None
        return self.segment.view(position, stop)

    def view(self) -> SegmentView:
        """Return what is readable of the file, to walk through it."""
        opened = self.segment.source()
        return SegmentView(opened, self.read_position, self.file_from_offset, opened.next_data)

    def destroy(self) -> None:
        """Delete the file, whoever reads it: views of it stay valid. If that fails, a later call tries again."""
        with self._commit_lock, self._flush_lock:
            self.is_available = False
            self.close()
            self.segment.remove()

    def close(self) -> None:
        """Release descriptor, mapping and buffer; views stay valid, and the file stays on disk.

        What was not committed is lost, and the wrote position moves back before it.
        """
        with self._commit_lock:
            if self._write_buffer is not None:
                self.wrote_position = self.committed_position
            self._return_write_buffer()
            self._scratch = None
            self.segment.close()

    def _return_write_buffer(self) -> None:
        buffer, self._write_buffer = self._write_buffer, None
        if buffer is not None and self._pool is not None:
            self._pool.give_back(buffer)
