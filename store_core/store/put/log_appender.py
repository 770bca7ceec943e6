# SPDX-License-Identifier: Apache-2.0
"""Appending to the log under the put lock, whose holder is its only writer: prepared messages, or many encoded ones."""

from __future__ import annotations

import logging
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import SegmentLayoutError
from store_core.files.mapped_file import RECORD_SEAL
from store_core.format.columnar.encode_batch import EncodedBatch, complete_batch
from store_core.format.message import AppendMessageResult, AppendMessageStatus, PutMessageStatus
from store_core.format.record.encode import EncodedRecords, do_append, fill_segments, has_room, write_blank
from store_core.store.put.put_preparation import AppendBatchResult, PutMessageResult, join_results

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.files.clock import Clock
    from store_core.files.mapped_file import AppendCallback, MappedFile
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.store.put.put_preparation import Pending, PutPreparation, QueueOffsets
    from store_core.store.store_state import StoreStats


_LOG: Final = logging.getLogger("store_core")


def fits(batch: EncodedBatch, file_size: int) -> bool:
    """Return whether every record fits into a file of its own, followed by a blank record."""
    return len(batch) == 0 or has_room(int(np.diff(batch.starts).max()), file_size)


def append_records(
    queue: MappedFileQueue, batch: EncodedBatch, queue_offsets: npt.NDArray[np.int64], store_timestamp: int
) -> AppendBatchResult:
    """Append all records, in order; the caller holds the put lock, and every record `fits`.

    Steps, for each file: 1. if it is not the first, close the previous file with a blank record; 2. create the file if
    it is new, then complete and append as many records as `fill_segments` says, in one write.

    * `queue_offsets`: int64, shape (n,).
    * `store_timestamp`: ms.
    """
    begin, done = queue.max_wrote_position, 0
    physical = np.empty(len(batch), np.int64)
    status = PutMessageStatus.PUT_OK
    for number, rows in enumerate(fill_segments(batch.starts, _room(queue), queue.file_size)):
        if number and not _close(queue, store_timestamp):
            status = PutMessageStatus.UNKNOWN_ERROR
            break
        if rows.start == rows.stop:
            continue
        offset, status = _append(queue, batch, rows, queue_offsets, store_timestamp)
        if status is not PutMessageStatus.PUT_OK:
            break
        physical[rows] = batch.starts[rows] - batch.starts[rows.start] + offset
        done = rows.stop
    end = queue.max_wrote_position
    return AppendBatchResult(status, done, begin, end, store_timestamp, physical[:done], queue_offsets[:done])


def _room(queue: MappedFileQueue) -> int:
    """Return the bytes left in the file that `_append` appends to."""
    last = queue.last_mapped_file
    return queue.file_size if last is None or last.is_full else last.file_size - last.wrote_position


def _append(
    queue: MappedFileQueue,
    batch: EncodedBatch,
    rows: slice,
    queue_offsets: npt.NDArray[np.int64],
    store_timestamp: int,
) -> tuple[int, PutMessageStatus]:
    """Append records to the last file, or a new one if that is full; return the offset at which they begin."""
    file = queue.get_last_mapped_file()
    if file is None:
        return 0, PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    offset = file.file_from_offset + file.wrote_position
    try:
        file.append(complete_batch(batch, rows, offset, queue_offsets, store_timestamp), seal=RECORD_SEAL)
    except OSError:
        return offset, PutMessageStatus.UNKNOWN_ERROR
    file.store_timestamp = store_timestamp
    return offset, PutMessageStatus.PUT_OK


def _close(queue: MappedFileQueue, store_timestamp: int) -> bool:
    """Close the last file with a blank record; return False if that can't be written."""
    file = queue.last_mapped_file
    if file is None:
        return False

    def blank(_: int, view: memoryview, room: int) -> AppendMessageResult:
        write_blank(view)
        return AppendMessageResult(AppendMessageStatus.END_OF_FILE, queue.max_wrote_position, room, "", store_timestamp)

    return file.append_with(blank).status is AppendMessageStatus.END_OF_FILE


_SLOW_MS: Final = 500


class LogAppender:
    """Appends prepared messages under the put lock.

    * `preparation`: Encodes what must be encoded under the lock.

    * `begin_time_in_lock`: Time at which the current append took the lock, ms; 0 if there is none.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        clock: Clock,
        preparation: PutPreparation,
        offsets: QueueOffsets,
        stats: StoreStats,
    ) -> None:
        self.begin_time_in_lock = 0
        self._queue = queue
        self._clock = clock
        self._preparation = preparation
        self._offsets = offsets
        self._stats = stats
        self._lock = Lock()

    def append(self, pending: Pending) -> PutMessageResult:
        """Append a message or a batch (steps 2 to 5 of `CommitLog.put`), and count it."""
        with self._lock:
            begin = self.begin_time_in_lock = self._clock.now_ms()
            try:
                result = self._append_locked(pending, begin)
            finally:
                self.begin_time_in_lock = 0
            elapsed = self._clock.now_ms() - begin
        appended = result.append_message_result
        if appended is None or result.status is not PutMessageStatus.PUT_OK:
            return result
        if elapsed > 0:
            appended = replace(appended, pagecache_rt=elapsed)
            result = replace(result, append_message_result=appended)
        if elapsed > _SLOW_MS:
            _LOG.warning("an append to %s held the lock for %d ms: %s", pending.message.topic, elapsed, appended)
        self._stats.add_put(pending.message.topic, appended.msg_num, appended.wrote_bytes)
        return result

    def _append_locked(self, pending: Pending, now: int) -> PutMessageResult:
        message = pending.message
        index = self._offsets.next_offset(message.topic, message.queue_id) if pending.is_queued else 0
        encoded = pending.encoded
        if encoded is None:
            made = self._preparation.encode_in_lock(pending, index)
            if isinstance(made, PutMessageResult):
                return made
            encoded = made
        result = self._append_to_file(encoded, pending, index, now)
        if result.is_ok:
            if pending.is_queued:
                self._offsets.advance(message.topic, message.queue_id, pending.message_num)
            if pending.is_light and pending.properties is not None:
                self._preparation.lmq_queues.advance(message, pending.properties)
        return result

    def _append_to_file(self, encoded: EncodedRecords, pending: Pending, index: int, now: int) -> PutMessageResult:
        """Append to the last file, or to the next if that has no room."""
        result: AppendMessageResult | None = None
        for _ in range(2):
            file = self._queue.get_last_mapped_file()
            if file is None:
                return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, result)
            result = file.append_with(self._append_callback(file, encoded, pending, index, now))
            if result.status is AppendMessageStatus.UNKNOWN_ERROR:
                return PutMessageResult(PutMessageStatus.UNKNOWN_ERROR, result)
            if result.status is not AppendMessageStatus.END_OF_FILE:
                break
        return PutMessageResult(PutMessageStatus.PUT_OK, result)

    def _append_callback(
        self, file: MappedFile, encoded: EncodedRecords, pending: Pending, index: int, now: int
    ) -> AppendCallback:
        def callback(file_from_offset: int, view: memoryview, _room: int) -> AppendMessageResult:
            return do_append(
                encoded,
                view,
                file_from_offset + file.wrote_position,
                queue_offset=index,
                store_timestamp=now,
                append_property_crc=self._preparation.rules.append_property_crc,
                is_queued=pending.is_queued,
                message_num=pending.message_num,
            )

        return callback

    def append_batches(self, batches: Sequence[EncodedBatch]) -> AppendBatchResult:
        """Append batches with `append_records` until one fails, and count them."""
        results = []
        with self._lock:
            now = self.begin_time_in_lock = self._clock.now_ms()
            try:
                for batch in batches:
                    results.append(self._append_batch(batch, now))
                    if not results[-1].is_ok:
                        break
            finally:
                self.begin_time_in_lock = 0
        for batch, result in zip(batches, results, strict=False):
            self._count(batch, result.msg_num)
        return join_results(results)

    def _append_batch(self, batch: EncodedBatch, now: int) -> AppendBatchResult:
        indexes = batch.queue_offsets(self._offsets.next_offsets(batch.queues))
        result = append_records(self._queue, batch, indexes, now)
        taken = batch.queue_index[: result.msg_num][batch.is_queued[: result.msg_num]]
        counts = np.bincount(taken, minlength=len(batch.queues)).astype(np.int64)
        self._offsets.advance_all(batch.queues, counts)
        return result

    def adopt(self, before: int, end_offset: int, store_timestamp: int, offsets: QueueOffsets) -> None:
        """Extend the log over records that another writer has written and flushed to its segments.

        * `before`: Physical offset at which the log ended before they were written.
        * `end_offset`: Where the last of them ends; the segments up to there are opened or created.
        * `store_timestamp`: Store time of the last of them, ms.
        * `offsets`: The next index of every queue after them.
        """
        with self._lock:
            found = self._queue.max_wrote_position
            if found != before or end_offset < found:  # records that were put meanwhile would be lost
                raise SegmentLayoutError(
                    f"the log in {self._queue.paths.paths[0]} can't be extended to {end_offset}: expected its end at "
                    f"{before}, found {found}. Nobody else may put messages meanwhile; close the store and open it "
                    f"again"
                )
            self._offsets.replace(offsets.as_mapping(), offsets.lmq_queues())
            last = self._queue.last_mapped_file
            while last is None or end_offset > last.end_offset:
                if last is not None:
                    last.set_position(last.file_size)
                last = self._queue.get_last_mapped_file()
                if last is None:
                    raise self._queue.create_error or OSError(f"the segment of {end_offset} can't be opened")
            last.set_position(end_offset - last.file_from_offset)
            last.store_timestamp = store_timestamp
            self._queue.flushed_where = self._queue.committed_where = end_offset

    def _count(self, batch: EncodedBatch, messages: int) -> None:
        sizes = np.diff(batch.starts)[:messages]
        index = batch.queue_index[:messages]
        counts = np.bincount(index, minlength=len(batch.queues)).tolist()
        totals = np.bincount(index, sizes, minlength=len(batch.queues)).tolist()
        for (topic, _), count, total in zip(batch.queues, counts, totals, strict=True):
            if count:
                self._stats.add_put(topic, count, int(total))
