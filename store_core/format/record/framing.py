# SPDX-License-Identifier: Apache-2.0
"""How records lie in a segment: one after the other, or in the entries of a DLedger log.

`check_entry` is the definition; `store_core.format.columnar.entries` checks many entries at once. DLedger leaves its
checksums 0, so an entry is checked by its position, its two sizes, its place in the sequence, and by its record.

A *frame* is what a segment is made of: a record, or an entry that holds one. Walks go from frame to frame; positions
that they return are those of frames, and a frame's record begins `Framing.lead` bytes after it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import numpy as np

from store_core.format.layout import BLANK_SIZE, DLEDGER_ENTRY_HEAD, MIN_RECORD_SIZE, unit_dtype
from store_core.format.record.record_head import read_frame
from store_core.format.record.scan import (
    RecordCheck,
    Scan,
    StopReason,
    check_record,
    damaged,
    follow_chain,
    rest_of_file,
)

__all__ = [
    "BLANK_MAGIC",
    "ENTRY_DTYPE",
    "ENTRY_HEAD_SIZE",
    "ENTRY_MAGIC",
    "Framing",
    "check_entry",
    "check_frame",
    "entry_size",
    "follow_frames",
    "frame_size",
]

ENTRY_DTYPE: Final = unit_dtype(DLEDGER_ENTRY_HEAD)
ENTRY_HEAD_SIZE: Final = ENTRY_DTYPE.itemsize
"""Bytes of an entry before its record (DLedger: ``DLedgerEntry.BODY_OFFSET``)."""

ENTRY_MAGIC: Final = 1
"""Magic code of every entry (DLedger: ``DLedgerMmapFileStore.CURRENT_MAGIC``)."""

BLANK_MAGIC: Final = -1
"""Magic code where a file holds nothing more (DLedger: ``MmapFileList.BLANK_MAGIC_CODE``)."""

_FRAME: Final = np.dtype([(name, ENTRY_DTYPE[name]) for name in ("magic", "size")])


def entry_size(data: memoryview, position: int) -> int:
    """Return the size that an entry, or the blank at a file's end, claims; at least 8 bytes must be there."""
    return int(np.frombuffer(data, _FRAME, 1, position)["size"][0])


def check_entry(
    data: memoryview, position: int, start_offset: int | None = 0, *, verify_crc: bool = False, previous: int = -1
) -> RecordCheck:
    """Check for an entry at a position of a file.

    * `data`: All bytes of the file (format ``B``).
    * `position`: Where to look, in bytes from the file's start.
    * `start_offset`: Physical offset of the file's first byte, with which entry and record must agree; None leaves that
      unchecked.
    * `verify_crc`: Whether to check the record's body against its checksum.
    * `previous`: Position of the last sound entry before. If it ends at `position`, its index and term must be followed
      by those of this one. -1 if there is none.

    Returns: Its size is that of the entry, its parts are those of the record.
    """
    frame = _check_frame(data, position)
    if frame.reason is not None:
        return frame
    head = _head(data, position)
    problem = _head_problem(head, None if start_offset is None else start_offset + position)
    if problem is not None:
        return problem
    record = check_record(data, position + ENTRY_HEAD_SIZE, start_offset, verify_crc=verify_crc)
    if record.reason is not None or record.size != frame.size - ENTRY_HEAD_SIZE:
        return _record_problem(record, frame.size)
    if previous >= 0 and previous + entry_size(data, previous) == position:
        problem = _sequence_problem(_head(data, previous), head)
    return problem or RecordCheck(frame.size, None, record.spans)


def _head(data: memoryview, position: int) -> np.void:
    head: np.void = np.frombuffer(data, ENTRY_DTYPE, 1, position)[0]
    return head


def _check_frame(data: memoryview, position: int) -> RecordCheck:  # noqa: PLR0911 -- one return per rule
    """Check magic code and size."""
    room = len(data) - position
    if room < BLANK_SIZE:
        return rest_of_file(data, position)
    magic, size = np.frombuffer(data, _FRAME, 1, position)[0].tolist()
    least = ENTRY_HEAD_SIZE + MIN_RECORD_SIZE
    if magic == BLANK_MAGIC:
        return RecordCheck(0, StopReason.END_OF_FILE)
    if magic == 0 and size == 0:
        return RecordCheck(0, StopReason.UNWRITTEN)
    if magic != ENTRY_MAGIC:
        return damaged(StopReason.BAD_MAGIC, f"magic code {ENTRY_MAGIC} of a DLedger entry", f"{magic}")
    if size < least:
        return damaged(StopReason.BAD_SIZE, f"a DLedger entry of {least} bytes or more", f"{size}")
    if size > room:
        return damaged(StopReason.TORN, f"at most the {room} bytes left in the file", f"a DLedger entry of {size}")
    return RecordCheck(size)


def _head_problem(head: np.void, offset: int | None) -> RecordCheck | None:
    """Return what is wrong with an entry's head, given its size is possible."""
    size, body = int(head["size"]), int(head["body_length"])
    if body != size - ENTRY_HEAD_SIZE:
        expected = f"a record of {size - ENTRY_HEAD_SIZE} bytes in the DLedger entry of {size}"
        return damaged(StopReason.SIZE_MISMATCH, expected, f"{body}", size)
    if offset is not None and int(head["position"]) != offset:
        return damaged(StopReason.WRONG_OFFSET, f"a DLedger entry of position {offset}", f"{head['position']}", size)
    if int(head["index"]) < 0:
        return damaged(StopReason.WRONG_INDEX, "a DLedger entry of index 0 or more", f"{head['index']}", size)
    return None


def _record_problem(record: RecordCheck, size: int) -> RecordCheck:
    """Return what is wrong with the record in an entry of a size; one that is no damage elsewhere is damage here."""
    if record.reason is None:
        expected = f"a record of {size - ENTRY_HEAD_SIZE} bytes in the DLedger entry of {size}"
        return damaged(StopReason.SIZE_MISMATCH, expected, f"{record.size}", size)
    if not record.reason.is_damage:
        return damaged(StopReason.BAD_MAGIC, "a record in the DLedger entry", record.reason.value, size)
    return damaged(record.reason, f"{record.expected} in the DLedger entry", record.found, size)


def _sequence_problem(before: np.void, head: np.void) -> RecordCheck | None:
    """Return in what an entry does not continue the one before it."""
    size, index, term = (int(head[name]) for name in ("size", "index", "term"))
    if index != int(before["index"]) + 1:
        return damaged(StopReason.WRONG_INDEX, f"DLedger index {int(before['index']) + 1}", f"{index}", size)
    if term < int(before["term"]):
        return damaged(StopReason.EARLIER_TERM, f"DLedger term {before['term']} or later", f"{term}", size)
    return None


class Framing(Enum):
    """What a segment is made of."""

    RECORDS = "records"
    ENTRIES = "entries of a DLedger log, each with one record"

    @property
    def lead(self) -> int:
        """Bytes of a frame before its record."""
        return ENTRY_HEAD_SIZE if self is Framing.ENTRIES else 0

    @property
    def least(self) -> int:
        """Bytes of the smallest frame with a record."""
        return self.lead + MIN_RECORD_SIZE


def check_frame(  # noqa: PLR0913 -- where to look, and how strictly
    data: memoryview,
    position: int,
    start_offset: int | None = 0,
    framing: Framing = Framing.RECORDS,
    *,
    verify_crc: bool = False,
    previous: int = -1,
) -> RecordCheck:
    """Check for a frame at a position of a segment; its size is returned, and the parts of its record.

    Parameters as of `store_core.format.record.framing.check_entry`; for records `previous` means nothing.
    """
    if framing is Framing.RECORDS:
        return check_record(data, position, start_offset, verify_crc=verify_crc)
    return check_entry(data, position, start_offset, verify_crc=verify_crc, previous=previous)


def frame_size(data: memoryview, position: int, framing: Framing) -> int:
    """Return the size that a frame, or a blank one, claims; at least 8 bytes must be there."""
    size: int = read_frame(data, position)[0] if framing is Framing.RECORDS else entry_size(data, position)
    return size


def follow_frames(  # noqa: PLR0913 -- where to look, and what for
    data: memoryview,
    begin: int = 0,
    end: int | None = None,
    start_offset: int | None = 0,
    framing: Framing = Framing.RECORDS,
    *,
    previous: int = -1,
) -> Scan:
    """Follow frames one by one from `begin` until one starts at or after `end`, or none follows.

    The readable definition of `store_core.format.columnar.lockstep.scan`; parameters as there.
    """
    if framing is Framing.RECORDS:
        return follow_chain(data, begin, end, start_offset)
    limit = len(data) if end is None else end
    starts: list[int] = []
    position = begin
    while position < limit:
        check = check_entry(data, position, start_offset, previous=previous)
        if check.reason is not None:
            return Scan(np.array(starts, np.int64), position, check.reason)
        starts.append(position)
        previous, position = position, position + check.size
    return Scan(np.array(starts, np.int64), position, StopReason.LIMIT)
