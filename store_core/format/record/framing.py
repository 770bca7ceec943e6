# SPDX-License-Identifier: Apache-2.0
"""How records follow one another in a segment: directly, or each in an entry of a DLedger log.

A *frame* is what a segment is made of: a record, or an entry that holds one. Walks go from frame to frame; positions
that they return are those of frames, and a frame's record begins `Framing.lead` bytes after it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from store_core.format.layout import MIN_RECORD_SIZE
from store_core.format.record.dledger_entry import ENTRY_HEAD_SIZE, check_entry, entry_size
from store_core.format.record.record_head import read_frame
from store_core.format.record.scan import Scan, StopReason, check_record, follow_chain

if TYPE_CHECKING:
    from store_core.format.record.scan import RecordCheck

__all__ = ["Framing", "check_frame", "follow_frames", "frame_size"]


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

    Parameters as of `store_core.format.record.dledger_entry.check_entry`; for records `previous` means nothing.
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
