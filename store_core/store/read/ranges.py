# SPDX-License-Identifier: Apache-2.0
"""The ranges of a log that tasks read separately."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from store_core.format.record.scan import StopReason

if TYPE_CHECKING:
    from store_core.files.segment_source import Segment
    from store_core.snapshot.log_end import SegmentEnd
    from store_core.store.read.picks import Picks
    from store_core.store.read.read_options import ReadOptions

__all__ = ["CLOCK_STEP", "ReadRange"]

_log: Final = logging.getLogger("store_core")

CLOCK_STEP: Final = 60_000
"""How far a broker's clock may have been set back, in ms, without a segment with matching rows being skipped.

Store times are the broker's clock, not a counter. Time servers step it by a second or so; a minute is generous, and
costs at most a few segments that are read and have no rows. A larger step is noticed if it leaves the next segment's
first record older than this one's (ADR 0023).
"""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A part of one segment; a record belongs to the range in which it starts.

    Attributes
    ----------
    segment : Segment
    begin, end : int
        Physical offsets; the end is exclusive.
    data_end : int
        Physical offset at which the segment's records end; the same for all its ranges.
    torn_end : int
        Physical offset where the torn tail that begins at `data_end` and becomes rows ends; 0 if there is none.
    is_last : bool
        Whether the log ends in this segment, so that it may hold older bytes.
    is_cut : bool
        Whether the file is shorter than it should be.
    is_by_tail : bool
        Whether `data_end` is from the segment's last part alone: a reader that does not arrive there has to find it.
    walk_start : int or None
        Physical offset of the record at which a reader can start walking; None for the segment's first byte.
    first_stored, next_stored : int or None
        Store times in ms of the first records of this segment and of the next; None if not requested, or unknown.
    picks : Picks or None
        The only records to read, if a look-up picked them; the range is scanned if they are not what it expected.
    """

    segment: Segment
    begin: int
    end: int
    data_end: int
    torn_end: int = 0
    is_last: bool = False
    is_cut: bool = False
    is_by_tail: bool = False
    walk_start: int | None = None
    first_stored: int | None = None
    next_stored: int | None = None
    picks: Picks | None = None

    @property
    def walk_begin(self) -> int:
        """Physical offset at which a reader starts walking: of the records before the range it reads the lengths."""
        return self.segment.start_offset if self.walk_start is None else self.walk_start

    def up_to(self, end: SegmentEnd, torn_end: int = 0) -> ReadRange:
        """Return the range up to where its segment's records end, or the torn tail that becomes rows.

        Parameters
        ----------
        end : SegmentEnd
            The log ends in this segment, or before it.
        torn_end : int
            As of the attribute.
        """
        if end.is_foreign or (self.is_cut and end.found.reason is StopReason.TORN):
            # No writer leaves a record that runs past its file.
            return replace(self, end=self.segment.end_offset, data_end=self.segment.end_offset, is_last=True)
        return replace(
            self, end=max(end.end_offset, torn_end), data_end=end.end_offset, torn_end=torn_end, is_last=True
        )

    def may_hold(self, options: ReadOptions) -> bool:
        """Return whether the range can have rows within the requested store times."""
        start, end = options.starting_timestamp, options.ending_timestamp
        first, following = self.first_stored, self.next_stored
        if first is not None and following is not None and following + CLOCK_STEP < first:
            return True  # the clock was set back in this segment, at a time that its first record does not tell
        return (start is None or following is None or following + CLOCK_STEP >= start) and (
            end is None or first is None or first - CLOCK_STEP < end
        )

    def scanned(self, wrong: int) -> ReadRange:
        """Return the range without its picked records, of which one is not what its unit says, and log that."""
        _log.warning(
            "%s is scanned from offset %d to %d: at offset %d there is not the record that a queue's unit names",
            self.segment.path,
            self.begin,
            self.end,
            wrong,
        )
        return replace(self, picks=None)
