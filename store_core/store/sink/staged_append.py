# SPDX-License-Identifier: Apache-2.0
"""Appending what many tasks have staged: all of it or nothing, even if the process or the machine crashes.

Records are written to disk hidden, and all of them are published by a single write or rename:

==============================  ======================================  ==========================================
where                           hidden until published                  what publishes them
==============================  ======================================  ==========================================
`UnseenTail`: after the last    in the filler of a blank record         the first record's head, eight bytes, over
record of the last segment                                              that of the blank record
`UnseenSegments`, no log yet    in a directory of their own             its rename to ``commitlog``
`UnseenSegments`, one           in a directory of its own               its rename; the segment before was closed
                                                                        by a blank record already
`UnseenSegments`, several       first in a directory of their own; then the blank record, eight bytes, that closes
                                after the unclosed segment before       the segment before
==============================  ======================================  ==========================================

Before publishing, the log ends where it did, for every RocketMQ release and for readers of this package; afterwards it
has all records. Between the renames of several segments and the blank record, readers see a log with a hole and refuse
it; recovery after a crash deletes these segments if it starts before the hole, so the caller rewinds the checkpoint
first. From release 5.4 on a recovery starts at one of the last ``commitLogRecoverMaxNum`` segments, 10 by default, and
does not see a hole before them: jobs open the store with no such limit, and a broker needs a larger one if it is
started after a crash between these two steps, before any other job.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from store_core.files.file_system import FileSystem, OpenFile, write_all
from store_core.files.mapped_file import file_name_of
from store_core.files.service_thread import WorkerThread
from store_core.format.columnar.encode_batch import EncodedBatch, complete_batch
from store_core.format.crc32 import crc32
from store_core.format.layout import BLANK_SIZE
from store_core.format.record.encode import blank_head, fill_segments, has_room
from store_core.queue.dispatch.stored_batch import KnownColumns
from store_core.store.sink.staged_batch import StagedBatch, StagedFile, read_staged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from store_core.store.message_store import DefaultMessageStore
    from store_core.store.put.put_preparation import QueueOffsets
    from store_core.store.store_life import AppendPlace, LogAdoption


HEAD_SIZE: Final = BLANK_SIZE
"""Bytes that distinguish a record from a blank one: size and magic code."""

_SECTOR: Final = 512
_PIECE: Final = 1 << 20
_MOST_WAITING: Final = 2
"""Batches waiting for the writing thread, besides its current one."""

_SYNC_BYTES: Final = 32 << 20
"""Bytes after which a sync starts while writing continues; `prepare` waits for it."""


class WrittenRows(NamedTuple):
    """Records of a batch that are contiguous in one segment."""

    physical_offset: int  # offset of the first one
    rows: slice  # their rows in the batch


class UnseenTail:
    """Records after the last one of the last segment, in the filler of a blank record.

    Steps: 1. a blank record temporarily closes the segment, and is synced; 2. the records are written over its filler,
    all but the first eight bytes; 3. they are synced; 4. `publish` writes these eight bytes over the blank record's.

    A broker that takes over after a crash between 2 and 4 continues where the blank record begins, and leaves the bytes
    after that, as RocketMQ does with everything it truncates. A store opened by this package zeroes them.
    """

    @staticmethod
    def fits(place: AppendPlace, size: int) -> bool:
        """Return whether records of `size` bytes can be hidden after the last one.

        The head that publishes them must lie in one sector, so that on a power failure all or nothing of it is written.
        """
        return has_room(size, place.room) and place.position % _SECTOR <= _SECTOR - HEAD_SIZE

    def __init__(self, place: AppendPlace, file: OpenFile) -> None:
        self._place = place
        self._file = file
        self._stop = place.position
        self._head = b""
        self.begin_offset = place.end_offset
        self.new_segments = 0

    @property
    def end_offset(self) -> int:
        """Physical offset one past the last record."""
        return self.begin_offset + self._stop - self._place.position

    def write(
        self, batch: EncodedBatch, queue_offsets: npt.NDArray[np.int64], times: int | npt.NDArray[np.int64]
    ) -> list[WrittenRows]:
        """Write the next records."""
        if not self._head:
            self._hide()
        written = WrittenRows(self.end_offset, slice(0, len(batch)))
        records = complete_batch(batch, slice(0, len(batch)), self.end_offset, queue_offsets, times)
        held_back = 0 if self._head else HEAD_SIZE
        self._head = self._head or bytes(records[:HEAD_SIZE])
        self._stop += len(records)
        write_all(self._file, records[held_back:], self._stop - len(records) + held_back)
        return [written]

    def _hide(self) -> None:
        write_all(self._file, memoryview(blank_head(self._place.room)), self._place.position)
        self._file.sync()

    def prepare(self) -> None:
        """Sync all records to disk, still hidden."""
        self._file.sync()

    def publish(self) -> None:
        """Write the first record's head."""
        write_all(self._file, memoryview(self._head), self._place.position)
        self._file.sync()

    def discard(self) -> None:
        """Overwrite all with zeros, starting with the first bytes."""
        zeros, stop = memoryview(bytes(_PIECE)), max(self._stop, self._place.position + HEAD_SIZE)
        for position in range(self._place.position, stop, _PIECE):
            write_all(self._file, zeros[: stop - position], position)
        self._file.sync()


class UnseenSegments:
    """Records in new segments, laid out as RocketMQ would.

    * `work`: A directory for the segments, on the log's file system; it must not have any yet.
    """

    def __init__(self, place: AppendPlace, work: Path, file_system: FileSystem) -> None:
        self._place = place
        self._work = work
        self._file_system = file_system
        self._files: list[OpenFile] = []
        self._position = 0
        self._renamed = 0
        self._unsynced = 0
        self._writer = WorkerThread("write", _MOST_WAITING)
        self._syncer = ThreadPoolExecutor(1, "sync")
        self._syncing: Future[None] | None = None
        self.begin_offset = place.next_start

    @property
    def new_segments(self) -> int:
        """Number of segments created."""
        return len(self._files)

    @property
    def _room(self) -> int:
        return self._place.file_size - self._position if self._files else 0

    @property
    def _current_start(self) -> int:
        return self.begin_offset + (len(self._files) - 1) * self._place.file_size

    @property
    def end_offset(self) -> int:
        """Physical offset one past the last record."""
        return self._current_start + self._position if self._files else self.begin_offset

    def write(
        self, batch: EncodedBatch, queue_offsets: npt.NDArray[np.int64], times: int | npt.NDArray[np.int64]
    ) -> list[WrittenRows]:
        """Write the next records; a segment without room for the next one is closed with a blank record."""
        written = []
        for number, rows in enumerate(fill_segments(batch.starts, self._room, self._place.file_size)):
            if number:
                self._next_segment()
            if rows.start < rows.stop:
                written.append(WrittenRows(self.end_offset, rows))
                self._write_behind(complete_batch(batch, rows, self.end_offset, queue_offsets, times))
        return written

    def _write_behind(self, records: memoryview) -> None:
        """Write records, and sync the file if due, in threads while the next are completed; raise earlier errors."""
        if self._unsynced >= _SYNC_BYTES and (self._syncing is None or self._syncing.done()):
            self._wait_for_sync()
            self._syncing = self._syncer.submit(self._files[-1].sync)
            self._unsynced = 0
        self._writer.take(write_all, self._files[-1], records, self._position)
        self._position += len(records)
        self._unsynced += len(records)

    def _wait_for_sync(self) -> None:
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.result()

    def _next_segment(self) -> None:
        self._writer.wait()
        if self._files:
            write_all(self._files[-1], memoryview(blank_head(self._room)), self._position)
        else:
            self._file_system.make_directories(self._work)
        file = self._file_system.open(self._work / self._name(len(self._files)), create=True)
        self._files.append(file)
        self._position = 0
        file.grow(self._place.file_size)

    def prepare(self) -> None:
        """Sync all records to disk; if there is only one new segment, close the one before it."""
        self._writer.wait()
        self._writer.close()
        self._wait_for_sync()
        self._syncer.shutdown()
        for file in self._files:
            file.sync()
        self._file_system.sync_directory(self._work)
        if len(self._files) == 1:
            self._close_last()

    def _close_last(self) -> None:
        self._write_head(memoryview(blank_head(self._place.room)))

    def _write_head(self, head: memoryview) -> None:
        if self._place.last_path is None:
            return
        last = self._file_system.open(self._place.last_path)
        write_all(last, head, self._place.position)
        last.sync()
        last.close()

    def publish(self) -> None:
        """Move the segments into place; several are then published by the blank record before them."""
        if self._place.last_path is None:
            self._file_system.make_directories(self._place.directory.parent)
            self._file_system.rename(self._work, self._place.directory)
            self._renamed = len(self._files)
            self._file_system.sync_directory(self._place.directory.parent)
            return
        for number in range(len(self._files)):
            name = self._name(number)
            if self._file_system.status(self._place.directory / name) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self._place.directory / name))
            self._file_system.rename(self._work / name, self._place.directory / name)
            self._renamed = number + 1
        self._file_system.sync_directory(self._place.directory)
        if len(self._files) > 1:
            self._close_last()

    def discard(self) -> None:
        """Delete the segments, last one first; zero the blank record if it closed the segment before them."""
        self._writer.close()
        self._syncer.shutdown()
        for number in reversed(range(len(self._files))):
            directory = self._place.directory if number < self._renamed else self._work
            self._file_system.remove(directory / self._name(number))
        if self._files and self._place.last_path is not None:
            self._write_head(memoryview(bytes(HEAD_SIZE)))
        if self._renamed:
            self._file_system.sync_directory(self._place.directory)

    def _name(self, number: int) -> str:
        return file_name_of(self.begin_offset + number * self._place.file_size)


UnseenRecords: TypeAlias = UnseenTail | UnseenSegments
"""Records written hidden: `write` all, `prepare`, then `publish`; `discard` restores the log as it was."""

_MOST_BYTES: Final = 256 << 20
"""Maximum memory used; records beyond that are read from the log."""


class KnownRecords:
    """Columns of the first records of an append, up to a memory limit and as long as all are known."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._parts: list[KnownColumns] = []
        self._left = most_bytes
        self._is_over = False

    def add(
        self,
        batch: StagedBatch,
        written: list[WrittenRows],
        queue_offsets: npt.NDArray[np.int64],
        times: int | npt.NDArray[np.int64],
    ) -> None:
        """Keep the known columns of the next records."""
        derived = batch.derived
        for place in written:
            if self._is_over or derived is None or self._left <= 0:
                self._is_over = True
                return
            records, rows = batch.records, place.rows
            starts = records.starts[rows.start : rows.stop + 1]
            self._parts.append(
                KnownColumns(
                    place.physical_offset,
                    (starts - starts[0]).astype(np.int32),
                    records.queues,
                    records.queue_index[rows],
                    queue_offsets[rows],
                    times if isinstance(times, int) else times[rows],
                    records.is_queued[rows],
                    derived.rows(rows),
                )
            )
            self._left -= self._parts[-1].held_bytes

    def take(self) -> Iterator[KnownColumns]:
        """Yield the columns in log order, releasing each."""
        self._parts.reverse()
        while self._parts:
            yield self._parts.pop()


T = TypeVar("T")

_LARGEST_TAIL: Final = 64 << 20
"""Maximum bytes appended after the last record of a segment. Larger appends get new segments, because after a crash a
broker deletes these, whereas it leaves the bytes of a tail."""

_MOST_AHEAD: Final = 3
"""Batches read ahead."""


@dataclass(frozen=True, slots=True)
class Appended:
    """An append that was made, or is about to be."""

    records: int
    begin_offset: int  # physical offset of the first record
    end_offset: int  # physical offset one past the last record
    new_segments: int = 0
    store_timestamp: int = 0  # store time of the last record, ms
    first_size: int = 0  # bytes of the first record
    first_crc: int = 0  # CRC-32 of the first record, which shows whether a log holds these records or others


def append_staged(  # noqa: PLR0913 -- the store, the records, how to append, and callbacks
    store: DefaultMessageStore,
    staged: Sequence[StagedFile],
    work: Path,
    file_system: FileSystem,
    on_prepared: Callable[[Appended], None] | None = None,
    *,
    dispatches: bool = True,
    on_read: Callable[[StagedFile], None] | None = None,
) -> Appended:
    """Append staged records to a store in file order, under its lock, then update queues and index.

    Steps: 1. choose where: after the last record if they are few and there is room, else in new segments; 2. read,
    complete and write the records hidden, see `store_core.store.sink.staged_append`; 3. sync them; 4. for several new
    segments, rewind the checkpoint, so that a recovery from now on starts at the first segment; 5. call `on_prepared`,
    which may note durably what is about to happen; 6. publish all of them by one write or rename; 7. have the open
    store adopt them: it extends its log, dispatches them, and advances the checkpoint.

    After a crash before step 6 the log has none of the records, after it all of them; the next recovery then updates
    queues and index.

    * `store`: Just opened for writing, with one directory of segments and no write buffers; there is no other writer.
    * `work`: A directory for new segments, on the log's file system; it is created and consumed.
    * `file_system`: The store's root.
    * `dispatches`: If false, step 7 is left to the next opening: the store keeps its ``abort`` file when it is closed.
    * `on_read`: Called by the reading thread with each file that was read completely; it may delete the file.
    """
    adoption = store.prepare_adoption()
    place = adoption.place
    unseen = _hide(place, sum(file.log_bytes for file in staged), work, file_system)
    writer = _Writer(unseen, adoption.offsets, store.now_ms())
    try:
        _write_all(writer, staged, on_read or _keep)
        if not writer.records:
            return Appended(0, place.end_offset, place.end_offset)
        unseen.prepare()
        if unseen.new_segments > 1:
            adoption.rewind_checkpoint()
        if on_prepared is not None:
            on_prepared(writer.result)
        unseen.publish()
    except BaseException:
        _give_up(adoption, unseen)
        raise
    appended = writer.result
    if dispatches:
        known = writer.known.take()
        adoption.adopt(appended.begin_offset, appended.end_offset, appended.store_timestamp, known)
    else:
        adoption.leave_to_recovery()
    return appended


def _keep(_: StagedFile) -> None:
    pass


def _write_all(writer: _Writer, staged: Sequence[StagedFile], on_read: Callable[[StagedFile], None]) -> None:
    def read() -> Iterator[StagedBatch]:
        for file in staged:
            yield from read_staged(file)
            on_read(file)

    for batch in _ahead(read()):
        writer.write(batch)


def _ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items, fetching the next ones in a thread."""
    with ThreadPoolExecutor(1, "read") as reader:
        coming = deque(reader.submit(next, items, None) for _ in range(_MOST_AHEAD))
        while (item := coming.popleft().result()) is not None:
            coming.append(reader.submit(next, items, None))
            yield item


def _hide(place: AppendPlace, size: int, work: Path, file_system: FileSystem) -> UnseenRecords:
    if place.last_path is not None and size <= _LARGEST_TAIL and UnseenTail.fits(place, size):
        return UnseenTail(place, file_system.open(place.last_path))
    return UnseenSegments(place, work, file_system)


class _Writer:
    """Completes records with their queue offsets and times, and hides them."""

    def __init__(self, unseen: UnseenRecords, offsets: QueueOffsets, now: int) -> None:
        self._unseen = unseen
        self._offsets = offsets
        self._last_time = self._now = now
        self._first: tuple[int, int] | None = None
        self.known = KnownRecords()
        self.records = 0

    def write(self, batch: StagedBatch) -> None:
        """Complete some records and write them hidden."""
        records = batch.records
        times = self._now if batch.store_timestamps is None else batch.store_timestamps
        indexes = records.queue_offsets(self._offsets.next_offsets(records.queues))
        written = self._unseen.write(records, indexes, times)
        self.known.add(batch, written, indexes, times)
        self._offsets.advance_all(records.queues, records.queue_counts)
        self._first = self._first or _fingerprint(records)
        self._last_time = self._now if batch.store_timestamps is None else int(batch.store_timestamps[-1])
        self.records += len(records)

    @property
    def result(self) -> Appended:
        """The append that was written."""
        unseen = self._unseen
        size, crc = self._first or (0, 0)
        return Appended(
            self.records, unseen.begin_offset, unseen.end_offset, unseen.new_segments, self._last_time, size, crc
        )


def _fingerprint(records: EncodedBatch) -> tuple[int, int]:
    size = int(records.starts[1])
    return size, crc32(records.data[:size].tobytes())


def _give_up(adoption: LogAdoption, unseen: UnseenRecords) -> None:
    """Restore the log as it was, or else leave it to the next recovery, from the first segment if needed."""
    try:
        unseen.discard()
    except OSError:
        adoption.leave_to_recovery()
        return
    adoption.restore_checkpoint()
