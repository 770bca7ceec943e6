# SPDX-License-Identifier: Apache-2.0
"""Appending many encoded messages under one lock, over as many files as they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from store_core.files.mapped_file import RECORD_SEAL
from store_core.format.append import BLANK_SIZE, write_blank
from store_core.format.append_result import AppendMessageResult, AppendMessageStatus, PutMessageStatus
from store_core.format.batch_append import complete_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.files.mapped_file import MappedFile
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.format.batch_append import EncodedBatch

__all__ = ["AppendBatchResult", "append_records", "fits", "join_results"]


@dataclass(frozen=True, slots=True, eq=False)
class AppendBatchResult:
    """What became of many messages.

    Attributes
    ----------
    status : PutMessageStatus
        As of a put. Where it is neither PUT_OK nor about flush or replicas, only the first `msg_num` messages are in
        the log, as if all had been put one by one and the next had failed.
    msg_num : int
        Messages in the log.
    wrote_offset : int
        Where the log ended before.
    next_offset : int
        Where it ends now; blank records between count.
    store_timestamp : int
        Of all these messages, ms.
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
        """Make the result of messages none of which was appended."""
        nothing = np.zeros(0, np.int64)
        return cls(status, 0, offset, offset, 0, nothing, nothing)


def join_results(results: Sequence[AppendBatchResult]) -> AppendBatchResult:
    """Make one result of those of batches that were appended one behind the other; there is at least one."""
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
    """Tell whether every record has room in a file of its own, with a blank record behind it."""
    return len(batch) == 0 or int(np.diff(batch.starts).max()) + BLANK_SIZE <= file_size


def append_records(
    queue: MappedFileQueue, batch: EncodedBatch, queue_offsets: npt.NDArray[np.int64], store_timestamp: int
) -> AppendBatchResult:
    """Append all records, in order; the caller holds the put lock, and every record `fits`.

    Steps, for each file: 1. give the file, making it if the last is full; 2. complete and append as many records as
    leave room for a blank record, in one write; 3. close it with a blank record if records are left.

    Parameters
    ----------
    queue : MappedFileQueue
    batch : EncodedBatch
    queue_offsets : numpy.ndarray
        int64, shape (n,).
    store_timestamp : int
        ms.
    """
    begin, row = queue.max_wrote_position, 0
    physical = np.empty(len(batch), np.int64)
    status = PutMessageStatus.PUT_OK
    while row < len(batch) and status is PutMessageStatus.PUT_OK:
        file = queue.get_last_mapped_file()
        if file is None:
            status = PutMessageStatus.CREATE_MAPPED_FILE_FAILED
            break
        stop = _stop_row(batch, row, file.file_size - file.wrote_position - BLANK_SIZE)
        offset = file.file_from_offset + file.wrote_position
        if stop > row and not _append(file, batch, slice(row, stop), queue_offsets, store_timestamp):
            status = PutMessageStatus.UNKNOWN_ERROR
            break
        physical[row:stop] = batch.starts[row:stop] - batch.starts[row] + offset
        row = stop
        if row < len(batch) and not _close(file, store_timestamp):
            status = PutMessageStatus.UNKNOWN_ERROR
    end = queue.max_wrote_position
    return AppendBatchResult(status, row, begin, end, store_timestamp, physical[:row], queue_offsets[:row])


def _stop_row(batch: EncodedBatch, row: int, room: int) -> int:
    """Give the first row, from `row` on, that does not fit into `room` bytes with those before it."""
    return int(np.searchsorted(batch.starts, batch.starts[row] + room, side="right")) - 1 if room > 0 else row


def _append(
    file: MappedFile, batch: EncodedBatch, rows: slice, queue_offsets: npt.NDArray[np.int64], store_timestamp: int
) -> bool:
    offset = file.file_from_offset + file.wrote_position
    try:
        file.append(complete_batch(batch, rows, offset, queue_offsets, store_timestamp), seal=RECORD_SEAL)
    except OSError:
        return False
    file.store_timestamp = store_timestamp
    return True


def _close(file: MappedFile, store_timestamp: int) -> bool:
    offset = file.file_from_offset + file.wrote_position

    def blank(_: int, view: memoryview, room: int) -> AppendMessageResult:
        write_blank(view)
        return AppendMessageResult(AppendMessageStatus.END_OF_FILE, offset, room, "", store_timestamp)

    return file.append_with(blank).status is AppendMessageStatus.END_OF_FILE
