# SPDX-License-Identifier: Apache-2.0
"""A queue of consecutive segments, presented as one byte space that grows at its end."""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Event, Lock, RLock
from typing import TYPE_CHECKING, Final

from store_core.files.access import in_words, is_access_error
from store_core.files.mapped_file import MappedFile, OpenFiles, TransientStorePool
from store_core.files.segment_listing import SegmentPaths, list_for_loading
from store_core.files.service_thread import ServiceThread
from store_core.format.release import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.files.machine import Clock


_LOG: Final = logging.getLogger("store_core")


class MappedFileQueue:
    """The files of one queue: commit log, consume queue or batch consume queue (RocketMQ: ``MappedFileQueue``).

    Offsets are bytes in the whole queue. One thread appends at a time; flushing, committing and reading may run
    concurrently.

    * `paths`: One directory, or several for a multi-path commit log (RocketMQ: ``MultiPathMappedFileQueue``).
    * `file_size`: Size of each file, in bytes.
    * `allocate`: Creates files ahead of time; without it they are created when they are needed.
    * `max_open`: How many files may stay open, besides those that are not synced; by default all that were used.
    * `writable`: Whether files are opened for writing, and loading may delete an empty last one. If not, files that
      would be deleted leave the queue but stay on disk.

    * `flushed_where`, `committed_where`: Offset below which everything is flushed, or committed.
    * `store_timestamp`: Store time of the last record before the last thorough flush, ms: what the checkpoint may
      claim; 0 before the first such flush.
    * `loaded_files`: The files that were there, as RocketMQ orders them: with those of zeros whose twins have the data.
    * `takes_twins`: Whether loading takes a file of zeros whose twin in another directory has the data: not where it
      may be written.
    """

    def __init__(  # noqa: PLR0913 -- what it is, and the services it uses
        self,
        paths: SegmentPaths,
        file_size: int,
        file_system: FileSystem,
        allocate: AllocateMappedFileService | None = None,
        *,
        max_open: int | None = None,
        writable: bool = True,
    ) -> None:
        if file_size <= 0:
            raise ValueError(f"file_size must be positive, not {file_size}")
        self.paths = paths
        self.file_size = file_size
        self.flushed_where = self.committed_where = 0
        self.store_timestamp = 0
        self.create_error: OSError | None = None
        self._file_system = file_system
        self._allocate = allocate
        self._open_files = None if max_open is None else OpenFiles(max_open)
        self.writable = writable
        # Replaced, never changed: whoever holds it sees one state of the queue.
        self._files: tuple[MappedFile, ...] = ()
        self._lock = RLock()
        self.loaded_files: tuple[MappedFile, ...] = ()
        self.takes_twins = False

    @property
    def mapped_files(self) -> tuple[MappedFile, ...]:
        """The current files, in order."""
        return self._files

    def load(self, release: str = DEFAULT_RELEASE) -> tuple[str, ...]:
        """Load the files that are there, each as full: wrote = committed = flushed = size, until recovery corrects it.

        Returns: What an operator should know: entries skipped, an empty last file deleted.
        """
        listing = list_for_loading(
            self.paths.all_paths, self.file_size, self._file_system, release, takes_twins=self.takes_twins
        )
        if listing.empty_last is not None and self.writable:
            self._file_system.remove(listing.empty_last)
        files = [self._opened(path) for path in listing.paths]
        self.loaded_files = (*self.loaded_files, *files)
        with self._lock:
            self._files = (*self._files, *(file for file in files if file.path not in listing.twins))
        return listing.notes

    def _opened(self, path: Path) -> MappedFile:
        mapped_file = MappedFile(path, self.file_size, self._file_system, writable=self.writable)
        mapped_file.set_position(self.file_size)
        return self._limited(mapped_file)

    def _limited(self, file: MappedFile) -> MappedFile:
        file.segment.open_files = self._open_files
        return file

    def check_self(self) -> tuple[str, ...]:
        """Return a text for each file that does not start where the one before it ends (RocketMQ only logs them)."""
        return tuple(
            f"{after.path} starts at {after.file_from_offset}: expected {before.end_offset}, where {before.path} ends"
            for before, after in pairwise(self._files)
            if before.end_offset != after.file_from_offset
        )

    # ---- files

    @property
    def first_mapped_file(self) -> MappedFile | None:
        """The oldest file."""
        files = self._files
        return files[0] if files else None

    @property
    def last_mapped_file(self) -> MappedFile | None:
        """The newest file, full or not."""
        files = self._files
        return files[-1] if files else None

    def get_last_mapped_file(self, start_offset: int = 0) -> MappedFile | None:
        """Return the file to append to, created if there is none or the last is full (RocketMQ: ``getLastMappedFile``).

        * `start_offset`: Where an empty queue begins, rounded down to a file border.

        Returns: None if it could not be created: `create_error` says why.
        """
        last = self.last_mapped_file
        if last is None:
            wanted = start_offset - start_offset % self.file_size
        elif last.is_full:
            wanted = last.end_offset
        else:
            return last
        return self._create(wanted)

    def _create(self, offset: int) -> MappedFile | None:
        try:
            path, next_path = self.paths.next_files(offset, self.file_size)
            if self._allocate is not None:
                created = self._allocate.put_request_and_return_mapped_file(path, next_path, self.file_size)
            else:
                created = MappedFile.create(path, self.file_size, self._file_system)
        except OSError as error:
            if str(error) != str(self.create_error):  # said once for as long as the reason stays the same
                words = in_words(error, self.paths.all_paths[0])
                _LOG.error("the file at offset %d could not be made: %s", offset, words)
            self.create_error = error
            return None
        self.create_error = None
        with self._lock:
            created.first_create_in_queue = not self._files
            self._files = (*self._files, self._limited(created))
        return created

    @property
    def is_barred(self) -> bool:
        """Whether the last file could not be created for a reason that no waiting changes, see `is_access_error`."""
        return self.create_error is not None and is_access_error(self.create_error)

    def find_mapped_file_by_offset(self, offset: int, *, return_first: bool = False) -> MappedFile | None:
        """Return the file that holds `offset`; None outside the queue or where a file is missing.

        * `return_first`: Return the first file if none is found. RocketMQ's callers ask for this when `offset` is 0, so
          that offset 0 of a log whose first files were deleted means the oldest file there is.
        """
        files = self._files
        if not files:
            return None
        if files[0].file_from_offset <= offset < files[-1].end_offset:
            index = offset // self.file_size - files[0].file_from_offset // self.file_size
            # The index is right unless files are missing in between.
            for file in (*files[index : index + 1], *files):
                if file.file_from_offset <= offset < file.end_offset:
                    return file
        return files[0] if return_first else None

    def get_mapped_file_by_time(self, timestamp_ms: int) -> MappedFile | None:
        """Return the first file last changed at or after a time, else the last file (RocketMQ up to 5.1.0)."""
        files = self._files
        return next((file for file in files if file.last_modified_ms >= timestamp_ms), files[-1] if files else None)

    # ---- positions

    @property
    def min_offset(self) -> int:
        """Offset of the first byte; -1 without a file."""
        first = self.first_mapped_file
        return first.file_from_offset if first is not None else -1

    @property
    def max_offset(self) -> int:
        """Offset after the last byte that readers see; 0 without a file."""
        last = self.last_mapped_file
        return last.file_from_offset + last.read_position if last is not None else 0

    @property
    def max_wrote_position(self) -> int:
        """Offset after the last byte appended; 0 without a file."""
        last = self.last_mapped_file
        return last.file_from_offset + last.wrote_position if last is not None else 0

    # ---- flushing and committing

    def flush(self, least_pages: int) -> bool:
        """Flush the file that holds `flushed_where`, and advance `flushed_where`.

        Steps: 1. flush the file by its page rule, see `MappedFile.flush`; 2. advance `flushed_where`; 3. if
        `least_pages` is 0, set `store_timestamp` to what the file's was before step 1. One call crosses at most one
        file border. If files were deleted before they were flushed, it continues with the oldest one left (RocketMQ
        never flushes such a queue again).

        Returns: True if **nothing changed**, as in Java.
        """
        file = self.find_mapped_file_by_offset(self.flushed_where, return_first=self.flushed_where < self.min_offset)
        if file is None:
            return True
        store_timestamp = file.store_timestamp
        where = file.file_from_offset + file.flush(least_pages)
        unchanged = where == self.flushed_where
        self.flushed_where = where
        if least_pages == 0:
            self.store_timestamp = store_timestamp
        return unchanged

    def commit(self, least_pages: int) -> bool:
        """Commit the file that holds `committed_where`, and advance that; True if **nothing changed**, as in Java."""
        file = self.find_mapped_file_by_offset(
            self.committed_where, return_first=self.committed_where < self.min_offset
        )
        if file is None:
            return True
        where = file.file_from_offset + file.commit(least_pages)
        unchanged = where == self.committed_where
        self.committed_where = where
        return unchanged

    def force(self, offset: int) -> None:
        """Sync the files from the one that holds `offset` on, and their directories, deletions included.

        What a killed process wrote may be in memory only, though `load` counts it as flushed; and what was cut off may
        come back if the machine stops before the cut is on disk.
        """
        files = [file for file in self._files if file.end_offset > offset]
        for file in files:
            file.force()
        for directory in sorted({file.path.parent for file in self._files} or self.paths.paths):
            if self._file_system.status(directory) is not None:
                self._file_system.sync_directory(directory)
                self._file_system.sync_directory(directory.parent)

    # ---- deleting

    def truncate_dirty_files(self, offset: int, *, clear_tail: bool = False) -> None:
        """End the queue at `offset` (RocketMQ: ``MappedFileQueue.truncateDirtyFiles``).

        Steps: 1. delete the files after it, the last first, so that a crash leaves no hole; 2. set the positions of the
        file that holds it, and `flushed_where` and `committed_where`: RocketMQ never flushes what it puts below them.

        * `clear_tail`: Zero what follows in the file of step 2; see `MappedFile.set_position`.
        """
        files = self._files
        self._delete([file for file in files if file.file_from_offset > offset])
        for file in self._files:
            if file.end_offset > offset:
                file.set_position(offset % self.file_size, clear_tail=clear_tail)
        self.flushed_where = min(self.flushed_where, offset)
        self.committed_where = min(self.committed_where, offset)

    def delete_last_mapped_file(self) -> None:
        """Delete the newest file, if any."""
        self._delete(self._files[-1:])

    def retry_delete_first_file(self) -> None:
        """Delete the oldest file if the system refused that before (RocketMQ: ``retryDeleteFirstFile``)."""
        first = self.first_mapped_file
        if first is not None and not first.is_available:
            first.destroy()
            self.forget([first])

    def forget(self, files: Iterable[MappedFile]) -> None:
        """Remove deleted files from the queue (RocketMQ: ``deleteExpiredFile``)."""
        gone = {id(file) for file in files}
        with self._lock:
            self._files = tuple(file for file in self._files if id(file) not in gone)

    def _delete(self, files: Sequence[MappedFile]) -> None:
        """Delete files, the last first, even if readers hold them: views of them stay valid."""
        for file in reversed(files):
            (file.destroy if self.writable else file.close)()
            self.forget([file])

    def close(self) -> None:
        """Close all files; they stay on disk. Nothing is committed or flushed."""
        for file in {*self._files, *self.loaded_files}:
            file.close()

    def destroy(self) -> None:
        """Delete all files, then the directories that are empty."""
        self._delete(self._files)
        self.flushed_where = self.committed_where = 0
        for path in self.paths.paths if self.writable else ():
            self._file_system.remove_directory(path)


_WAIT_SECONDS: Final = 5.0
"""How long an append waits for its file (RocketMQ: ``AllocateMappedFileService.waitTimeOut``)."""


@dataclass(slots=True, eq=False)
class AllocateRequest:
    """A requested file, and the result."""

    path: Path
    file_size: int
    done: Event = field(default_factory=Event)
    mapped_file: MappedFile | None = None
    error: OSError | None = None


class AllocateMappedFileService(ServiceThread):
    """Creates the file that is requested, and the next one after it (RocketMQ: ``AllocateMappedFileService``).

    RocketMQ retries a file that can't be created every millisecond, lets the first append wait 5 s and refuses later
    ones at once. Here the waiting append gets the error at once, and the next append tries again.

    * `pool`: Its buffers are assigned to the files, while there are any.
    * `fail_fast_without_buffer`: Refuse a file rather than create it without a buffer
      (``fastFailIfNoBufferInStorePool``).
    * `reserve`: Allocate the disk blocks of the files (``warmMapedFileEnable``).
    """

    def __init__(
        self,
        file_system: FileSystem,
        clock: Clock,
        pool: TransientStorePool | None = None,
        *,
        fail_fast_without_buffer: bool = False,
        reserve: bool = False,
    ) -> None:
        super().__init__(clock)
        self._file_system = file_system
        self._pool = pool
        self._fail_fast = fail_fast_without_buffer
        self._reserve = reserve
        self._lock = Lock()
        self._requests: dict[Path, AllocateRequest] = {}

    def put_request_and_return_mapped_file(self, path: Path, next_path: Path, file_size: int) -> MappedFile:
        """Return the file at `path`, ideally created ahead of time, and request the one at `next_path`."""
        with self._lock:
            self._give_up_elsewhere(path, next_path)
            request = self._submit(path, file_size)
            self._submit(next_path, file_size)
        if request is None:
            raise OSError(errno.ENOBUFS, "the transient store pool has no buffer left", str(path))
        self.wakeup()
        if not self._clock.wait(request.done, _WAIT_SECONDS):
            raise TimeoutError(errno.ETIMEDOUT, f"the file was not made within {_WAIT_SECONDS:.0f} s", str(path))
        with self._lock:
            self._requests.pop(path, None)
        if request.mapped_file is None:
            raise request.error or OSError(errno.ECANCELED, "the file was given up at shutdown", str(path))
        return request.mapped_file

    def _submit(self, path: Path, file_size: int) -> AllocateRequest | None:
        request = self._requests.get(path)
        if request is not None and request.error is None:
            return request
        if self._fail_fast and self._pool is not None and self._pool.available_buffers <= len(self._waiting()):
            return None
        request = self._requests[path] = AllocateRequest(path, file_size)
        return request

    def _waiting(self) -> list[AllocateRequest]:
        """Return the requests for files that are not made yet; the lock is held."""
        return [request for request in self._requests.values() if not request.done.is_set()]

    def _give_up_elsewhere(self, *paths: Path) -> None:
        """Discard a file created ahead in another directory: two of the same name would claim the same offset.

        That happens when a directory of a multi-path log has become too full since.
        """
        names = {path.name for path in paths}
        for path in [path for path in self._requests if path.name in names and path not in paths]:
            self._discard(self._requests.pop(path))

    def pause(self) -> None:
        """Wait for a request."""
        self.wait_for_running(None)

    def run_once(self) -> None:
        """Create all requested files."""
        while True:
            with self._lock:
                waiting = self._waiting()
            if not waiting:
                return
            self._make(waiting[0])

    def _make(self, request: AllocateRequest) -> None:
        try:
            request.mapped_file = MappedFile.create(
                request.path, request.file_size, self._file_system, self._pool, reserve=self._reserve
            )
        except OSError as error:
            request.error = error
            self.report(error)
        with self._lock:
            if self._requests.get(request.path) is not request:
                self._discard(request)
        request.done.set()

    def _discard(self, request: AllocateRequest) -> None:
        """Delete an unused file; one that existed before the request is only closed."""
        mapped_file = request.mapped_file
        if mapped_file is not None and mapped_file.segment.is_new:
            mapped_file.destroy()
        elif mapped_file is not None:
            mapped_file.close()

    def finish(self) -> None:
        """Delete the files that were created ahead and not used."""
        with self._lock:
            requests = list(self._requests.values())
            self._requests.clear()
        for request in requests:
            self._discard(request)
            request.done.set()
