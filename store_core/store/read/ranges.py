# SPDX-License-Identifier: Apache-2.0
"""Ranges of a log: what a read covers, and how it is split into tasks."""

from __future__ import annotations

import heapq
import logging
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Self

from store_core.format.layout import MIN_RECORD_SIZE
from store_core.format.record.scan import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from store_core.files.segment_source import Segment
    from store_core.snapshot.log_end import SegmentEnd
    from store_core.store.read.picks import Picks
    from store_core.store.read.read_options import ReadOptions


class CheckKind(Enum):
    """One possible check; JSON uses its name in lower case, text its value."""

    SEGMENT_SIZES = "names and sizes of the segments"
    LENGTHS = "magic codes and lengths of the records"
    LENGTHS_OF_EARLIER_SEGMENTS = "the segments before the one in which the check begins"
    PLACES = "whether records carry their own physical offsets"
    BODY_CHECKSUMS = "body checksums of all records"
    LAST_BODY_CHECKSUMS = "body checksums of the last records"
    PROPERTY_CHECKSUMS = "property checksums"
    QUEUES = "the consume queues against the log"
    INDEX = "the key index against the log"


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was checked, and what was not."""

    checked: tuple[CheckKind, ...] = ()
    not_checked: tuple[CheckKind, ...] = ()

    @classmethod
    def of(cls, checks: Mapping[CheckKind, bool]) -> Self:
        """Make a coverage from a mapping that says whether each check was made."""
        return cls(
            tuple(check for check, is_made in checks.items() if is_made),
            tuple(check for check, is_made in checks.items() if not is_made),
        )

    def as_json(self) -> dict[str, list[str]]:
        """Return both lists as values for JSON."""
        return {
            "checked": [check.name.lower() for check in self.checked],
            "not_checked": [check.name.lower() for check in self.not_checked],
        }

    @property
    def lines(self) -> tuple[str, ...]:
        """The same in words: one line for what was checked, one for what was not."""
        parts = (("checked", self.checked), ("not checked", self.not_checked))
        return tuple(f"{name}: {', '.join(check.value for check in found)}" for name, found in parts if found)


def with_picks(parts: Sequence[ReadRange], options: ReadOptions) -> Iterator[ReadRange]:
    """Split the ranges that are scanned; those of picked records stay as they are."""
    scanned = iter(split_ranges([part for part in parts if part.picks is None], options))
    return heapq.merge((part for part in parts if part.picks is not None), scanned, key=lambda part: part.begin)


def split_ranges(parts: Sequence[ReadRange], options: ReadOptions) -> Iterator[ReadRange]:
    """Split ranges evenly, until none is too large and there are enough."""
    lengths = [part.end - part.begin for part in parts]
    counts = [-(-length // (options.max_partition_bytes or length)) for length in lengths]
    _raise_counts(counts, lengths, options.min_partitions or 0)
    for part, length, wanted in zip(parts, lengths, counts, strict=True):
        count = min(wanted, max(length // MIN_RECORD_SIZE, 1)) if part.segment.codec is None else 1
        cuts = [part.begin + length * cut // count for cut in range(count + 1)]
        yield from (replace(part, begin=begin, end=end) for begin, end in pairwise(cuts))


def _raise_counts(counts: list[int], lengths: Sequence[int], wanted: int) -> None:
    """Repeatedly split the range with the largest pieces until there are enough; no piece is smaller than a record."""
    pieces = [(-length / count, at) for at, (length, count) in enumerate(zip(lengths, counts, strict=True))]
    heapq.heapify(pieces)
    for _ in range(wanted - sum(counts)):
        if not pieces or -pieces[0][0] < 2 * MIN_RECORD_SIZE:
            return
        at = pieces[0][1]
        counts[at] += 1
        heapq.heapreplace(pieces, (-lengths[at] / counts[at], at))


_TASK_BYTES: Final = 32 << 20
"""Bytes of records that are worth a task of their own."""

_OPENING: Final = 64 << 10
"""Bytes that could be read in the time that opening a segment takes."""

_PICKING: Final = 1 << 10
"""Bytes that could be read in the 3 µs that a picked record takes, however small it is."""


def task_groups(ranges: Sequence[ReadRange]) -> list[tuple[ReadRange, ...]]:
    """Return the ranges that each task reads, in order.

    Picked records are read together up to a size, with what a look-up scans beside them. Other scans are read one by
    one, as they were split, but those of a compressed archive: each is reached by expanding what precedes it.
    """
    groups: list[list[ReadRange]] = []
    room = 0
    is_looked_up = any(part.picks is not None for part in ranges)
    for part in ranges:
        if groups and _is_in_archive_of(groups[-1][-1], part):
            groups[-1].append(part)
            continue
        if part.picks is not None:
            size = part.picks.size + _PICKING * len(part.picks) + _OPENING
        else:
            size = part.end - part.walk_begin if is_looked_up else _TASK_BYTES
        if not groups or size > room:
            groups.append([])
            room = _TASK_BYTES
        groups[-1].append(part)
        room -= size
    return [tuple(group) for group in groups]


def _is_in_archive_of(one: ReadRange, other: ReadRange) -> bool:
    is_expanded = other.segment.codec is not None and bool(other.segment.archive)
    return is_expanded and one.segment.archive == other.segment.archive


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
