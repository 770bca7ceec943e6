# SPDX-License-Identifier: Apache-2.0
"""The files of a key index, in order: loaded, created, flushed, deleted."""

from __future__ import annotations

import logging
from threading import RLock
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError, SegmentLayoutError
from store_core.files.segment_file import offset_of
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.format.iso_time import iso_time
from store_core.queue.index.index_build import index_file_size
from store_core.queue.index.index_file import IndexFile
from store_core.queue.index.index_name import index_file_name, is_index_file_name, next_index_file_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo
    from pathlib import Path

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.queue.queue_rules import QueueRules

__all__ = ["INDEX_DIRECTORY", "IndexFiles"]

_LOG: Final = logging.getLogger("store_core")
_CREATE_TRIES: Final = 3
_SECONDS_BETWEEN_TRIES: Final = 1.0
_LARGEST_FILE: Final = 2**31 - 1


class IndexFiles:
    """The files of a key index, oldest first: the file handling of RocketMQ's ``IndexService``.

    **Failures are final.** If no file can be created in three tries, or a write fails, `on_error` is called once
    (RocketMQ: ``makeIndexFileError``, which refuses writes from then on) and nothing more is put until the store is
    opened again. RocketMQ continues with the next message, so that the index gets a hole that is never filled: messages
    before its end offset are never put. Here the index ends before the first missing message.

    Parameters
    ----------
    directory : Path
        ``index`` below the store root.
    rules : QueueRules
    file_system : FileSystem
    clock : Clock
    on_full : callable, optional
        Called with the end timestamp (ms) of a full file that was flushed, to record it in the checkpoint.
    on_error : callable, optional
        Called when the index can't be written any more.
    time_zone : datetime.tzinfo, optional
        Of file names; by default the machine's.
    run : callable, optional
        Runs the flush of a full file, e.g. in another thread as RocketMQ does; by default it is done at once.

    Attributes
    ----------
    deleted : tuple of int or None
        Physical offsets of the first and the last record of the files that `load` deleted; None if it deleted none.

    Raises
    ------
    InvalidOptionError
        If there can't be files of these sizes: RocketMQ would create new ones without end, or none.
    """

    def __init__(  # noqa: PLR0913 -- what it is, the services it uses, and its callbacks
        self,
        directory: Path,
        rules: QueueRules,
        file_system: FileSystem,
        clock: Clock,
        *,
        on_full: Callable[[int], None] | None = None,
        on_error: Callable[[], None] | None = None,
        time_zone: tzinfo | None = None,
        run: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        if rules.max_index_num <= 1 or index_file_size(rules) > _LARGEST_FILE:
            raise InvalidOptionError(
                f"maxHashSlotNum {rules.max_hash_slot_num} and maxIndexNum {rules.max_index_num} make no index file: "
                f"expected at least 2 entries, and at most {_LARGEST_FILE} bytes, found {index_file_size(rules)}"
            )
        self.directory = directory
        self.failure: OSError | None = None
        self.is_load_ok = True
        self.deleted: tuple[int, int] | None = None
        self.rules = rules
        self._file_system = file_system
        self._clock = clock
        self._on_full = on_full
        self._on_error = on_error
        self._time_zone = time_zone
        self._run = run
        self._files: list[IndexFile] = []
        self._lock = RLock()

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The files, oldest first."""
        with self._lock:
            return tuple(self._files)

    @property
    def end_physical_offset(self) -> int:
        """Where the index ends: messages before it are not put again; 0 without files."""
        last = self._last()
        return 0 if last is None else last.end_physical_offset

    def _last(self) -> IndexFile | None:
        with self._lock:
            return self._files[-1] if self._files else None

    def load(self, last_exit_ok: bool, index_msg_timestamp: int) -> tuple[str, ...]:  # noqa: FBT001 -- RocketMQ's own
        """Load the existing files, in the order of their names.

        After an abnormal exit a file that ends later than `index_msg_timestamp` is deleted, for dispatching to rebuild;
        so is one whose first write-back was interrupted, which only this package leaves (`IndexFile.is_half_new`).
        One of RocketMQ's rules is not followed: it opens a file of another length than the configured one, lengthens
        it, and misreads it. Here such a file is left alone, and reported.

        A directory whose name is a number ends the list; a load of release 5.3 fails then, as `is_load_ok` reports.

        Parameters
        ----------
        last_exit_ok : bool
            False after an abnormal exit.
        index_msg_timestamp : int
            The checkpoint's, ms.

        Returns
        -------
        tuple of str
            What was skipped or deleted, and why.

        Raises
        ------
        OSError
            As raised by the system.
        """
        notes: list[str] = []
        for name in self._file_system.names(self.directory):
            path = self.directory / name
            try:
                offset_of(path)
            except SegmentLayoutError:
                notes.append(f"{path} is skipped: its name is not a number, so it is not an index file")
                continue
            status = self._file_system.status(path)
            if status is not None and status.is_directory:
                self.is_load_ok = not self.rules.features.refuses_directory_in_index
                notes.append(f"{path} is a directory where an index file is expected: files after it are not loaded")
                break
            self._load_file(path, None if last_exit_ok else index_msg_timestamp, notes)
        for note in notes:
            _LOG.warning("%s", note)
        return tuple(notes)

    def _load_file(self, path: Path, newest: int | None, notes: list[str]) -> None:
        try:
            file = IndexFile.load(path, self.rules, self._file_system)
        except SegmentLayoutError as error:
            notes.append(str(error))
            return
        is_kept = newest is None or (file.end_timestamp <= newest and not file.is_half_new)
        if is_kept:
            last = self._last()
            if last is not None:
                file.follow(last.end_physical_offset, last.end_timestamp)
            with self._lock:
                self._files.append(file)
            return
        file.remove()
        begin, end = self.deleted or (file.header.begin_physical_offset, 0)
        self.deleted = begin, max(end, file.end_physical_offset)
        ends = f"it ends at {iso_time(file.end_timestamp)}, {_later_than(newest or 0)}"
        why = "its first entries were being written" if file.is_half_new else ends
        notes.append(f"{path} is not used, and has to be rebuilt: the last exit was abnormal, and {why}")

    def write_back(self) -> None:
        """Write what was put to the last file, see `IndexFile.write_back`; no sync.

        Raises
        ------
        OSError
            As raised by the system.
        """
        for file in self.files[-1:]:
            file.write_back()

    def last_or_new(self) -> IndexFile | None:
        """Return the last file, or a new one if there is none or it is full (``retryGetAndCreateIndexFile``).

        Steps: 1. write the full file back, because dispatching resumes where the new one says that the index ends;
        2. create the new file, in at most three tries a second apart; 3. flush the full one, and call `on_full`.

        Returns
        -------
        IndexFile or None
            None if that failed, now or earlier.
        """
        if self.failure is not None:
            return None
        last = self._last()
        if last is None:
            return self._create_with_retries(None)
        if not last.is_full:
            return last
        created = self._create_with_retries(last) if self.write_back_or_fail(last) else None
        if created is not None:
            self._flush_full(last)
        return created

    def _create_with_retries(self, last: IndexFile | None) -> IndexFile | None:
        failure = OSError()
        for _ in range(_CREATE_TRIES):
            try:
                return self._create(last)
            except OSError as error:
                _LOG.error("no index file can be made in %s: %s", self.directory, error)
                failure = error
                self._clock.sleep(_SECONDS_BETWEEN_TRIES)
        self.fail(failure)
        return None

    def _create(self, last: IndexFile | None) -> IndexFile:
        ends = (0, 0) if last is None else (last.end_physical_offset, last.end_timestamp)
        path = self.directory / self._new_name(last)
        created = IndexFile.create(path, self.rules, self._file_system, *ends)
        with self._lock:
            self._files.append(created)
        return created

    def _new_name(self, last: IndexFile | None) -> str:
        """Name a new file by the clock, but later than the last one, and different from all others.

        Two files created in one millisecond, or after the clock was set back, must neither share a name nor change
        their order. In RocketMQ they do: the second maps the file of the first, and entries are lost.
        """
        name = index_file_name(self._clock.now_ms(), self._time_zone)
        if last is not None and is_index_file_name(last.path.name) and name <= last.path.name:
            name = next_index_file_name(last.path.name)
        while self._file_system.status(self.directory / name) is not None:
            name = next_index_file_name(name)
        return name

    def _flush_full(self, file: IndexFile) -> None:
        def flush() -> None:
            try:
                file.flush()
            except OSError as error:
                _LOG.error("index file %s is full and could not be flushed: %s", file.path, error)
                return
            if file.end_timestamp > 0 and self._on_full is not None:
                self._on_full(file.end_timestamp)

        if self._run is None:
            flush()
        else:
            self._run(flush)

    def write_back_or_fail(self, file: IndexFile) -> bool:
        """Write a file back; False if that failed."""
        try:
            file.write_back()
        except OSError as error:
            self.fail(error)
            return False
        return True

    def fail(self, error: OSError) -> None:
        """Stop writing the index for good, and call `on_error` once."""
        if self.failure is None:
            self.failure = error
            _LOG.error("the index is not written any more: %s", error)
            if self._on_error is not None:
                self._on_error()

    def delete_expired_file(self, offset: int) -> int:
        """Delete leading files that end before `offset`, never the last; return how many (``deleteExpiredFile``).

        Raises
        ------
        OSError
            As raised by the system; a file that could not be deleted stays in the list.
        """
        deleted = 0
        for file in self.files[:-1]:
            if file.end_physical_offset >= offset:
                break
            file.remove()
            with self._lock:
                self._files.remove(file)
            deleted += 1
        return deleted

    def flush(self) -> None:
        """Sync everything that was put.

        Raises
        ------
        OSError
            As raised by the system.
        """
        for file in self.files:
            file.flush()

    def sync_ahead(self) -> None:
        """Sync what was written to the last file, while puts continue; `flush` reports failures."""
        last = self._last()
        if last is not None:
            last.sync_ahead()

    def close(self) -> None:
        """Flush everything and release the files (``shutdown``).

        Release 5.3 also writes the header of a file without entries, whose count is then 1. Earlier releases leave it
        at 0.

        Raises
        ------
        OSError
            As raised by the system, after all are closed; what could not be written is lost.
        """
        failure: OSError | None = None
        for file in self.files:
            try:
                file.flush(with_header=self.rules.features.writes_header_of_unused_index)
            except OSError as error:
                failure = failure or error
            file.close()
        if failure is not None:
            raise failure

    def destroy(self) -> None:
        """Delete all files.

        Raises
        ------
        OSError
            As raised by the system.
        """
        for file in self.files:
            file.remove()
            with self._lock:
                self._files.remove(file)


def _later_than(checkpoint: int) -> str:
    """Return what an index file is later than: the checkpoint's time, ms, if it has one."""
    return f"later than the checkpoint's {iso_time(checkpoint)}" if checkpoint else "and the checkpoint has no time"
