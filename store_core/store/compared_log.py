# SPDX-License-Identifier: Apache-2.0
"""A log that is compared with another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, TypeAlias

from store_core.errors import StoreNotFoundError
from store_core.files.segment_source import Segment, open_segment
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import StorePaths, store_roots
from store_core.format.columnar.chain import Chain
from store_core.format.record.scan import store_timestamp
from store_core.format.salvage import Damage, SalvageWalk
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import SegmentEnd, segment_ends

if TYPE_CHECKING:
    from collections.abc import Sequence


class DiffBy(Enum):
    """What is compared.

    Attributes
    ----------
    AUTO
        Bytes, unless a segment file of one log begins inside one of the other: their files then have different sizes.
    BYTES
        The bytes at each physical offset, as replicas have them.
    RECORDS
        The records, wherever in the log they are.
    """

    AUTO = "auto"
    BYTES = "bytes"
    RECORDS = "records"


SideName: TypeAlias = Literal["a", "b"]


@dataclass(frozen=True, slots=True)
class ComparedLog:
    """A log as it was when the comparison was planned.

    * `begin`, `end`: Physical offsets of its first byte, and one past its last sound record.
    """

    name: SideName  # ``"a"`` or ``"b"``
    path: str  # the directory that may be the store's root
    segments: tuple[Segment, ...]
    """Up to the one that the log ends in; the earlier of two files that overlap is cut where the later begins."""
    begin: int
    end: int
    compared_end: int  # where comparing bytes ends: `end`, or after the torn tail that a dead writer left
    last_start: int  # physical offset of its last sound record; -1 if it has none
    last_store_timestamp: int  # store time of that record, ms; 0 if it has none
    stale: int  # physical offset of the first sound record after the end that is older; -1 without any
    is_live: bool  # whether a broker holds the store's lock, so that what follows the end may be a record in progress
    notes: tuple[str, ...]

    @classmethod
    def of(cls, name: SideName, paths: StorePaths) -> ComparedLog:
        """List the segments of a log, and find its end."""
        log = Log.of(paths, packed="refused")
        if not log.segments:
            raise StoreNotFoundError(
                f"nothing to compare in {paths}: expected a segment with bytes, found none; {log.notes[-1]} "
                f"Copy the log again"
            )
        ends = segment_ends(log.segments, verify_crc=True)
        roots = store_roots(paths)
        is_live = any(map(is_lock_held, roots))
        last = ends[-1]
        end = last.end_offset
        torn_end = max((each.tail.end for each in ends if each.tail is not None), default=end)
        compared_end = end if is_live else max(end, torn_end)
        kept = [each for each in log.segments if each.start_offset < compared_end] or [log.segments[0]]
        last_start, last_time = _last_record(last)
        return cls(
            name,
            str(roots[0]),
            without_overlap(kept),
            log.segments[0].start_offset,
            end,
            compared_end,
            last_start,
            last_time,
            last.segment.start_offset + last.found.stale if last.found.stale >= 0 else -1,
            is_live,
            tuple(log.notes),
        )

    @property
    def last_segment(self) -> Segment:
        """The segment that the log ends in."""
        return self.segments[-1]

    def covered(self, begin: int, end: int) -> list[tuple[int, int, Segment]]:
        """Return the parts of a range that segments hold: begin, end and segment of each."""
        bounds = ((max(each.start_offset, begin), min(each.end_offset, end), each) for each in self.segments)
        return [part for part in bounds if part[0] < part[1]]


def without_overlap(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Cut each segment at the begin of the next one: no offset is in two files."""
    return tuple(_cut(each, following) for each, following in zip_longest(segments, segments[1:]))


def _cut(segment: Segment, following: Segment | None) -> Segment:
    if following is None or following.start_offset >= segment.end_offset:
        return segment
    return replace(segment, size=following.start_offset - segment.start_offset)


def _last_record(end: SegmentEnd) -> tuple[int, int]:
    """Return physical offset and store time of the last sound record before an end; -1 and 0 without any."""
    with open_segment(end.segment) as opened:
        view = end.segment.view(opened).up_to(end.found.position)
        chain = end.found.chain or Chain(view)
        kept = chain.starts_before(end.found.position)
        last = int(kept[-1]) if kept.size else -1
        if chain.stop < end.found.position:
            for part in SalvageWalk(view, only_newer=True).parts(chain.place):
                last = last if isinstance(part, Damage) else part.place.last_sound
        if last < 0:
            return -1, 0
        return end.segment.start_offset + last, store_timestamp(view.frame(last).data, 0)
