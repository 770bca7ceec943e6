# SPDX-License-Identifier: Apache-2.0
"""The key index of a store: its files, in order, the keys put into them, and searches."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from threading import RLock
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError, SegmentLayoutError
from store_core.files.mapped_file import offset_of
from store_core.format.columns import iso_time
from store_core.queue.index_file import IndexFile
from store_core.queue.index_format import IndexEntries, MessageKeys, index_file_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.files.machine import Clock
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest
    from store_core.queue.queue_path import QueueRules


_LOG: Final = logging.getLogger("store_core")
_CREATE_TRIES: Final = 3
_SECONDS_BETWEEN_TRIES: Final = 1.0
_LARGEST_FILE: Final = 2**31 - 1
_MOST_PENDING: Final = 1 << 20
"""After this many entries, slots and header are written in any case."""

_NAME: Final = re.compile(r"[0-9]{17}")  # as RocketMQ creates them
_MILLISECOND: Final = timedelta(milliseconds=1)
_SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class QueryOffsetResult:
    """Result of `IndexService.query_offset` (RocketMQ: ``QueryOffsetResult``).

    * `index_last_update_timestamp`, `index_last_update_physical_offset`: Where the last file ends: ms and offset; 0
      without files.
    """

    physical_offsets: list[int]  # Newest first. The messages may have other keys with the same hash.
    index_last_update_timestamp: int
    index_last_update_physical_offset: int


def check_index_sizes(rules: QueueRules) -> None:
    """Refuse sizes of which there can't be files: RocketMQ would create new ones without end, or none."""
    if rules.max_index_num <= 1 or index_file_size(rules) > _LARGEST_FILE:
        raise InvalidOptionError(
            f"maxHashSlotNum {rules.max_hash_slot_num} and maxIndexNum {rules.max_index_num} make no index file: "
            f"expected at least 2 entries, and at most {_LARGEST_FILE} bytes, found {index_file_size(rules)}"
        )


class IndexService:
    """The key index (RocketMQ: ``IndexService``): its files, oldest first, puts and searches.

    One thread puts at a time; queries, flushes and deletions may run at the same time.

    **Failures are final.** If no file can be created in three tries, or a write fails, `on_error` is called once
    (RocketMQ: ``makeIndexFileError``, which refuses writes from then on) and nothing more is put until the store is
    opened again. RocketMQ continues with the next message, so that the index gets a hole that is never filled: messages
    before its end offset are never put. Here the index ends before the first missing message.

    * `on_full`: Called with the end timestamp (ms) of a full file that was flushed, to record it in the checkpoint.
    * `on_error`: Called when the index can't be written any more.
    * `time_zone`: Of file names; by default the machine's.

    * `deleted`: Physical offsets of the first and the last record of the files that `load` deleted; None if it deleted
      none.
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
    ) -> None:
        check_index_sizes(rules)
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
        """Load the existing files, in the order of their names; return what was skipped or deleted, and why.

        After an abnormal exit a file that ends later than `index_msg_timestamp`, the checkpoint's, ms, is deleted, for
        dispatching to rebuild; so is one whose first write-back was interrupted, which only this package leaves
        (`IndexFile.is_half_new`). One of RocketMQ's rules is not followed: it opens a file of another length than the
        configured one, lengthens it, and misreads it. Here such a file is left alone, and reported.

        A directory whose name is a number ends the list; a load of release 5.3 fails then, as `is_load_ok` reports.
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
        later = f"later than the checkpoint's {iso_time(newest)}" if newest else "and the checkpoint has no time"
        ends = f"it ends at {iso_time(file.end_timestamp)}, {later}"
        why = "its first entries were being written" if file.is_half_new else ends
        notes.append(f"{path} is not used, and has to be rebuilt: the last exit was abnormal, and {why}")

    def write_back(self) -> None:
        """Write what was put to the last file, see `IndexFile.write_back`; no sync."""
        for file in self.files[-1:]:
            file.write_back()

    def last_or_new(self) -> IndexFile | None:
        """Return the last file, or a new one if there is none or it is full (``retryGetAndCreateIndexFile``).

        Steps: 1. write the full file back, because dispatching resumes where the new one says that the index ends; 2.
        create the new file, in at most three tries a second apart; 3. flush the full one, and call `on_full`. None if
        that failed, now or earlier.
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
        if last is not None and _NAME.fullmatch(last.path.name) and name <= last.path.name:
            name = next_index_file_name(last.path.name)
        while self._file_system.status(self.directory / name) is not None:
            name = next_index_file_name(name)
        return name

    def _flush_full(self, file: IndexFile) -> None:
        """Flush a full file and call `on_full`, at once; RocketMQ does so in another thread."""
        try:
            file.flush()
        except OSError as error:
            _LOG.error("index file %s is full and could not be flushed: %s", file.path, error)
            return
        if file.end_timestamp > 0 and self._on_full is not None:
            self._on_full(file.end_timestamp)

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

        A file that could not be deleted stays in the list.
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
        """Sync everything that was put."""
        for file in self.files:
            file.flush()

    def sync_ahead(self) -> None:
        """Sync what was written to the last file, while puts continue; `flush` reports failures."""
        last = self._last()
        if last is not None:
            last.sync_ahead()

    def close(self) -> None:
        """Flush everything and release the files (``shutdown``); errors are raised after all are closed.

        Release 5.3 also writes the header of a file without entries, whose count is then 1. Earlier releases leave it
        at 0.
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

    # ---- keys

    def build_index(self, request: DispatchRequest) -> None:
        """Put the keys of one message, as `DispatchRequest.index_keys` returns them (``buildIndex``).

        A last file is created if there is none, or it is full, even if the message has no key. Nothing is put for a
        message before the index's end. Everything is written to the file afterwards, by `IndexFile.write_back`.
        """
        if not self.rules.is_index_enabled:
            return
        file = self.last_or_new()
        if file is None or request.physical_offset < max(0, file.end_physical_offset):
            return
        for key in request.index_keys(with_tags=self.rules.features.indexes_tags):
            file = self._put(file, f"{request.topic}#{key}", request)
            if file is None:
                return
        self.write_back_or_fail(file)

    def _put(self, file: IndexFile, key: str, request: DispatchRequest) -> IndexFile | None:
        """Put one key, into a new file if this one is full; return the file used, or None if that failed."""
        last: IndexFile | None = file
        while last is not None:
            try:
                if last.put_key(key, request.physical_offset, request.store_timestamp):
                    return last
            except OSError as error:
                self.fail(error)
                return None
            last = self.last_or_new()
        return None

    def build_indexes(self, batch: DispatchBatch) -> None:
        """Put the keys of many messages, as `build_index` one after the other, but for what `put_keys` leaves to do."""
        if not self.rules.is_index_enabled:
            return
        found = batch.index_hashes(with_tags=self.rules.features.indexes_tags)
        keys = MessageKeys(batch.physical_offset, batch.store_timestamp, found.rows, found.hashes)
        self.put_keys(keys)

    def put_keys(self, keys: MessageKeys) -> None:
        """Put keys of many messages by their hashes.

        Slots and header are written to the file every million keys: the changed slots lie all over the file, so this
        costs a write of 20 MB if a batch has some thousand keys. The caller does the rest, by `write_back`, before a
        checkpoint or the removal of ``abort`` records these messages as dispatched.
        """
        file = self.last_or_new() if keys.physical_offsets.size and self.rules.is_index_enabled else None
        if file is None:
            return
        keys = keys.accepted(file.end_physical_offset)
        if self._fill(keys.entries) and keys.ends_without_key:
            self.last_or_new()  # the next message would call it anyway

    def _fill(self, entries: IndexEntries) -> bool:
        """Put all into the last file, and as many new ones as needed; False if that failed."""
        done = 0
        while done < entries.hashes.size:
            file = self.last_or_new()
            if file is None:
                return False
            try:
                done += file.put_entries(entries.part(done, done + _MOST_PENDING))
                if file.pending >= _MOST_PENDING:
                    file.write_back()
            except OSError as error:
                self.fail(error)
                return False
        return True

    def query_offset(self, topic: str, key: str, max_num: int, begin: int, end: int) -> QueryOffsetResult:
        """Return the offsets of messages by key (``queryOffset``), at most ``maxMsgsNumBatch``, newest file first.

        The store times `begin` and `end`, ms, are both included; the index stores them in seconds.
        """
        found: list[int] = []
        max_num = min(max_num, self.rules.max_msgs_num_batch)
        files = self.files
        for file in reversed(files):
            header = file.header
            if header.is_time_matched(begin, end):
                try:
                    found += file.select_physical_offsets(f"{topic}#{key}", max_num - len(found), begin, end)
                except FileNotFoundError:
                    break  # deleted meanwhile, as are those before it
            if header.begin_timestamp < begin or len(found) >= max_num:
                break
        last = files[-1].header if files else None
        if last is None:
            return QueryOffsetResult(found, 0, 0)
        return QueryOffsetResult(found, last.end_timestamp, last.end_physical_offset)


def index_file_name(timestamp: int, time_zone: tzinfo | None = None) -> str:
    """Return the name of a file created at a time (``UtilAll.timeMillisToHumanString``).

    * `timestamp`: Ms since 1970.
    * `time_zone`: RocketMQ uses the machine's, which is the default.

    >>> from datetime import UTC
    >>> index_file_name(1_700_000_000_123, UTC)
    '20231114221320123'
    """
    seconds, milliseconds = divmod(timestamp, _SECOND_MS)
    return _name(datetime.fromtimestamp(seconds, time_zone).replace(microsecond=milliseconds * 1000))


def _name(time: datetime) -> str:
    return f"{time.year:04d}{time:%m%d%H%M%S}{time.microsecond // 1000:03d}"


def next_index_file_name(name: str) -> str:
    """Return the name for one millisecond later, so that files created in the same one get different names.

    >>> next_index_file_name("20231231235959999")
    '20240101000000000'
    """
    try:
        return _name(datetime.strptime(f"{name}000", "%Y%m%d%H%M%S%f") + _MILLISECOND)  # noqa: DTZ007 -- local, as names are
    except (ValueError, OverflowError):
        return f"{int(name) + 1:017d}"
