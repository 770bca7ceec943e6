# SPDX-License-Identifier: Apache-2.0
"""The end of a log, determined in the same way for every report; ADR 0005 defines the terms.

The end is one past the last sound record. A preallocated file has no record and does not move the end; neither does
the remainder of a record that a crash interrupted, the *torn tail*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.files.segment_source import open_segment
from store_core.format.columnar.chain import Place
from store_core.format.damage.log_end import LogEnd, find_log_end, find_tail_end
from store_core.format.layout import BLANK_RECORD, BLANK_SIZE, field_position, unit_dtype
from store_core.format.record.dledger_entry import ENTRY_DTYPE
from store_core.format.record.framing import Framing, check_frame, frame_size
from store_core.format.record.scan import StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    import numpy as np

    from store_core.files.segment_source import Segment, SegmentBytes
    from store_core.format.segment_view import SegmentView

__all__ = ["FoundEnd", "SegmentEnd", "TornTail", "find_end", "segment_end", "segment_ends"]


_SEGMENT_START: Final = Place()
_HEAD: Final = 4 << 10
"""Bytes in which a record tells its size."""


def _bytes_of(dtype: np.dtype[np.void], name: str) -> slice:
    begin = field_position(dtype, name)
    return slice(begin, begin + dtype[name].itemsize)


_MAGIC_CODES: Final = {
    Framing.RECORDS: _bytes_of(unit_dtype(BLANK_RECORD), "magic_code"),
    Framing.ENTRIES: _bytes_of(ENTRY_DTYPE, "magic"),
}
"""Where the magic code of a segment's first frame is."""


@dataclass(frozen=True, slots=True)
class TornTail:
    """Bytes after the end of a log that are not a record: an unfinished record, or older remains.

    Attributes
    ----------
    path : str
        The segment file.
    begin, end : int
        Physical offsets; the end is after the last non-zero byte, or where older records begin.
    reason : StopReason
        Why there is no record at `begin`.
    """

    path: str
    begin: int
    end: int
    reason: StopReason

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.end - self.begin

    def __str__(self) -> str:
        is_hole = self.reason is StopReason.UNWRITTEN
        why = "it begins with zeros" if is_hole else self.reason.value
        return f"{self.size} bytes at offset {self.begin} of {self.path} are not a record: {why}"


@dataclass(frozen=True, slots=True)
class FoundEnd:
    """The end of a log.

    Attributes
    ----------
    end_offset : int
        Physical offset one past the last sound record, whatever damage precedes it; where the log starts if it has no
        record.
    path : str
        The segment file that holds the end; empty if there is no segment.
    tails : tuple of TornTail
        Bytes after the end that are neither zeros nor records, in log order; usually one tail.
    """

    end_offset: int = 0
    path: str = ""
    tails: tuple[TornTail, ...] = ()

    @classmethod
    def of(cls, ends: Sequence[SegmentEnd]) -> Self:
        """Combine the ends of segments, ordered from the last one backwards to the first that has a record."""
        if not ends:
            return cls()
        tails = (end.tail for end in reversed(ends))
        return cls(ends[-1].end_offset, ends[-1].segment.path, tuple(tail for tail in tails if tail is not None))


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """Where the records of one segment end, given that no later segment has any.

    Attributes
    ----------
    found : LogEnd
        Its position is 0 if the segment has no record.
    tail_end : int
        Position one past the bytes after the end that are neither zeros nor records; that of `found` if there are none.
    is_foreign : bool
        Whether the segment has no record because it is another kind of file, or a renamed one.
    """

    segment: Segment
    found: LogEnd
    tail_end: int
    is_foreign: bool = False

    @property
    def end_offset(self) -> int:
        """Physical offset one past the last record."""
        return self.segment.start_offset + self.found.position

    @property
    def tail(self) -> TornTail | None:
        """The torn tail; None if there is none."""
        if self.tail_end <= self.found.position:
            return None
        end = self.segment.start_offset + self.tail_end
        return TornTail(self.segment.path, self.end_offset, end, self.found.reason)


def find_end(
    segments: Sequence[Segment],
    *,
    verify_crc: bool = True,
    open_bytes: Callable[[Segment], SegmentBytes] = open_segment,
    place_in: Callable[[Segment], Place] | None = None,
) -> FoundEnd:
    """Find where a log ends, and what follows the end.

    Parameters
    ----------
    segments : sequence of Segment
        The log's segments, in order.
    verify_crc : bool
        Whether the bodies of the last records must match their checksums.
    open_bytes : callable
        Opens a segment.
    place_in : callable, optional
        Returns where the records of a segment ended before: what precedes that is not walked again.

    Raises
    ------
    SegmentVanishedError
        If a segment is gone, or shorter than it was when it was listed.
    """
    return FoundEnd.of(segment_ends(segments, verify_crc=verify_crc, open_bytes=open_bytes, place_in=place_in))


def segment_ends(
    segments: Sequence[Segment],
    *,
    verify_crc: bool,
    open_bytes: Callable[[Segment], SegmentBytes] = open_segment,
    place_in: Callable[[Segment], Place] | None = None,
) -> list[SegmentEnd]:
    """Find where the records of segments end, from the last segment backwards to the first that has a record.

    Parameters and errors as of `find_end`.
    """
    ends: list[SegmentEnd] = []
    for number in reversed(range(len(segments))):
        segment = segments[number]
        after = _SEGMENT_START if place_in is None else place_in(segment)
        end = segment_end(segment, is_first=not number, verify_crc=verify_crc, after=after, open_bytes=open_bytes)
        ends.append(end)
        if ends[-1].found.position:
            break
    return ends


def segment_end(  # noqa: PLR0913 -- two are for tests and for followers of a log
    segment: Segment,
    *,
    is_first: bool,
    verify_crc: bool,
    has_tail: bool = True,
    after: Place = _SEGMENT_START,
    open_bytes: Callable[[Segment], SegmentBytes] = open_segment,
) -> SegmentEnd:
    """Find where the records of a segment end, given that later segments have none.

    Parameters
    ----------
    is_first : bool
        Whether it is the log's first segment.
    verify_crc, open_bytes
        As of `find_end`.
    has_tail : bool
        Whether to look for a tail when the records end in zeros; if anything else ends them, it is always looked for.
    after : Place
        Where the records ended before: what precedes it is not walked again.
    """
    with open_bytes(segment) as opened:
        view = segment.view(opened)
        found = find_log_end(view, verify_crc=verify_crc, after=after)
        is_unwritten = has_tail and found.reason is StopReason.UNWRITTEN
        is_looked_for = found.reason.is_damage or found.is_unfinished or is_unwritten
        tail_end = find_tail_end(view, found) if is_looked_for else found.position
        is_foreign = is_first and not found.position and _is_foreign(view)
    return SegmentEnd(segment, found, tail_end, is_foreign)


def _is_foreign(segment: SegmentView) -> bool:
    """Return whether a file without any readable record is not this segment: another kind of file, or renamed."""
    segment.pages.load(0, _HEAD)
    if segment.size >= BLANK_SIZE:
        segment.pages.load(0, frame_size(segment.raw.data, 0, segment.framing))
    check = check_frame(segment.raw.data, 0, segment.start_offset, segment.framing)
    if check.reason is StopReason.BAD_MAGIC:
        return bool(segment.raw[_MAGIC_CODES[segment.framing]].any())
    return check.reason is StopReason.WRONG_OFFSET
