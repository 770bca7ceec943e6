# SPDX-License-Identifier: Apache-2.0
"""Appending what many tasks have staged: all of it or nothing, even if the process or the machine crashes.

Columns known when records are written are kept until the records are dispatched.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from store_core.format.crc32 import crc32
from store_core.queue.dispatch.precomputed_batch import KnownColumns
from store_core.store.sink.hidden_append import UnseenSegments, UnseenTail
from store_core.store.sink.staged_batch import read_staged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.file_system import FileSystem
    from store_core.format.columnar.encode_batch import EncodedBatch
    from store_core.store.dispatch.log_adoption import LogAdoption, LogPlace
    from store_core.store.message_store import DefaultMessageStore
    from store_core.store.put.put_preparation import QueueOffsets
    from store_core.store.sink.hidden_append import UnseenRecords, WrittenRows
    from store_core.store.sink.staged_batch import StagedBatch, StagedFile

__all__ = ["Appended", "KnownRecords", "append_staged"]


_MOST_BYTES: Final = 256 << 20
"""Maximum memory used; records beyond that are read from the log."""


class KnownRecords:
    """Columns of the first records of an append, up to a memory limit and as long as all are known.

    * `most_bytes`: Maximum memory used.
    """

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
    complete and write the records hidden, see `store_core.store.sink.hidden_append`; 3. sync them; 4. for several new
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


def _hide(place: LogPlace, size: int, work: Path, file_system: FileSystem) -> UnseenRecords:
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
