# SPDX-License-Identifier: Apache-2.0
"""Appending many encoded messages under one lock, over as many files as they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from store_core.files.mapped_file import RECORD_SEAL
from store_core.format.columnar.encoded_batch import complete_batch
from store_core.format.message import AppendMessageResult, AppendMessageStatus, PutMessageStatus
from store_core.format.record.encode import write_blank
from store_core.format.segment_room import fill_segments, has_room

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.format.columnar.encoded_batch import EncodedBatch

__all__ = ["AppendBatchResult", "append_records", "fits", "join_results"]


@dataclass(frozen=True, slots=True, eq=False)
class AppendBatchResult:
    """Outcome of appending many messages.

    Attributes
    ----------
    status : PutMessageStatus
        As for a single put. If it is neither PUT_OK nor about flush or replicas, only the first `msg_num` messages are
        in the log, as if all had been put one by one and the next had failed.
    msg_num : int
        Number of these messages that are in the log.
    wrote_offset : int
        Where the log ended before the append.
    next_offset : int
        Where it ends now; blank records in between are included.
    store_timestamp : int
        Store time of all these messages, ms.
    physical_offsets, queue_offsets : numpy.ndarray
        int64, shape (msg_num,).
    """

    status: PutMessageStatus
    msg_num: int
    wrote_offset: int
    next_offset: int
    store_timestamp: int
    physical_offsets: npt.NDArray[np.int64]
    queue_offsets: npt.NDArray[np.int64]

    @property
    def is_ok(self) -> bool:
        """Whether all messages are in the log."""
        return self.status in (
            PutMessageStatus.PUT_OK,
            PutMessageStatus.FLUSH_DISK_TIMEOUT,
            PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
            PutMessageStatus.SLAVE_NOT_AVAILABLE,
        )

    @classmethod
    def refused(cls, status: PutMessageStatus, offset: int) -> AppendBatchResult:
        """Make the result for messages of which none was appended."""
        nothing = np.zeros(0, np.int64)
        return cls(status, 0, offset, offset, 0, nothing, nothing)


def join_results(results: Sequence[AppendBatchResult]) -> AppendBatchResult:
    """Combine the results of batches appended one after another; there is at least one."""
    return AppendBatchResult(
        results[-1].status,
        sum(result.msg_num for result in results),
        results[0].wrote_offset,
        results[-1].next_offset,
        results[0].store_timestamp,
        np.concatenate([result.physical_offsets for result in results]),
        np.concatenate([result.queue_offsets for result in results]),
    )


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
