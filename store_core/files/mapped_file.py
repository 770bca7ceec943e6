# SPDX-License-Identifier: Apache-2.0
"""A segment that is written here."""

from __future__ import annotations

import logging
import mmap
from collections import deque
from threading import Lock, RLock
from typing import TYPE_CHECKING, Final, Self

from store_core.files.segment_file import SegmentFile, offset_of
from store_core.format.layout import BLANK_SIZE, head_dtype
from store_core.format.message import AppendMessageResult, AppendMessageStatus
from store_core.format.segment_view import SegmentView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typing_extensions import Buffer

    from store_core.files.file_system import FileSystem

    AppendCallback = Callable[[int, memoryview, int], AppendMessageResult]


OS_PAGE_SIZE: Final = 4096
"""Unit of the page rules, in bytes, whatever the machine's page size (RocketMQ: ``MappedFile.OS_PAGE_SIZE``)."""

RECORD_SEAL: Final = head_dtype()["total_size"].itemsize
"""Bytes of a record's size field: while it is 0, the log ends before the record."""


def commit_steps(records: memoryview, position: int) -> Iterator[tuple[slice, int]]:
    """Yield the writes to do, in order, each with its seal, see `store_core.files.segment_file.SegmentFile.write`.

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


_LOG: Final = logging.getLogger("store_core")
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
