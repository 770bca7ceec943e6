# SPDX-License-Identifier: Apache-2.0
"""The view ``segments``: the files of the commit log, and where their records end."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.names import archive_error
from store_core.files.segment_source import Segment, SegmentBytes, open_ahead, open_segment
from store_core.files.store_path import places_of
from store_core.format.columnar.chain import Chain
from store_core.format.record.scan import StopReason
from store_core.format.salvage import store_timestamps
from store_core.snapshot.log_end import segment_end
from store_core.views.view import ViewOptions, going_on, name_text, row_batches, timestamps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from store_core.format.segment_view import SegmentView
    from store_core.snapshot.store import Store
    from store_core.store.read.read_options import ReadOptions


_log: Final = logging.getLogger("store_core")

_WALKED: Final = ("data_end", "stop_reason", "last_store_timestamp", "messages")
"""Columns for which the records of a segment are followed."""

_LISTED: Final = 1000
"""Segments in a part if none is walked."""


class _Walk(NamedTuple):
    """The records of a segment: positions of their starts, where they end, and why."""

    starts: npt.NDArray[np.int64]
    stop: int
    reason: StopReason


@dataclass(frozen=True, slots=True)
class SegmentsPart:
    """Segments that are looked at together; one at a time if they are walked."""

    segments: tuple[Segment, ...]
    last: str  # path of the segment that the log ends in; empty if that is not asked for
    is_first: bool  # whether the first of them is the log's first

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield a row for each segment."""
        rows = []
        for number, segment in enumerate(self.segments):
            with going_on(options):
                rows.append(self._row(segment, options, is_first=self.is_first and not number))
        return row_batches(options, rows)

    def _row(self, segment: Segment, options: ViewOptions, *, is_first: bool) -> dict[str, object]:
        row: dict[str, object] = {
            "segment": segment.name,
            "path": name_text(segment.path),
            "start_offset": segment.start_offset,
            "file_size": segment.size,
            "is_last": segment.path == self.last,
        }
        if options.asks_for(*_WALKED):
            row |= self._walked(segment, options, is_first=is_first)
        if options.asks_for("first_store_timestamp"):
            row["first_store_timestamp"] = _first_time(segment, options)
        return row

    def _walked(self, segment: Segment, options: ViewOptions, *, is_first: bool) -> dict[str, object]:
        with open_ahead(segment) as opened:
            walk = _walk(segment, opened)
            if segment.path == self.last:
                verify_crc = options.read.verify_crc
                end = segment_end(segment, is_first=is_first, verify_crc=verify_crc, has_tail=False).found
                walk = _up_to(walk, end.position, end.reason)  # in front of older records, or of a torn tail
            if options.log_end is not None:  # as if later records were not written yet
                end_at = max(options.log_end - segment.start_offset - segment.framing.lead, 0)
                walk = _up_to(walk, end_at, StopReason.UNWRITTEN)
            return {
                "data_end": segment.start_offset + walk.stop,
                "stop_reason": walk.reason.name,
                "messages": len(walk.starts),
                "last_store_timestamp": _time_of(
                    segment.view(opened), walk.starts[-1:], options, "last_store_timestamp"
                ),
            }


def plan(store: Store, options: ViewOptions) -> list[SegmentsPart]:
    """List the segments, and find the one that the log ends in if that is asked for; no segment is an error."""
    log = store.asked_log
    if log.segments[0].archive:
        raise archive_error(places_of(store.paths)[0])
    for problem in log.problems:
        _log.warning("%s", problem.problem)
    is_walked = options.asks_for(*_WALKED)
    written = tuple(each for each in log.segments if options.log_end is None or each.start_offset < options.log_end)
    last = _last_segment(written, options.read) if written and (is_walked or options.asks_for("is_last")) else ""
    segments = log.segments if options.read.as_of is None else written
    size = 1 if is_walked else _LISTED
    asked = [segment for segment in segments if _is_asked(segment, options.read)]
    groups = [tuple(asked[first : first + size]) for first in range(0, len(asked), size)]
    return [SegmentsPart(group, last, is_first=group[0] == segments[0]) for group in groups]


def _is_asked(segment: Segment, read: ReadOptions) -> bool:
    start, end = read.starting_offsets.physical, read.ending_offsets.physical
    if start is not None and start == end:
        return False
    return (start is None or segment.end_offset > start) and (end is None or segment.start_offset < end)


def _last_segment(segments: Sequence[Segment], read: ReadOptions) -> str:
    """Return the path of the segment that the log ends in, as a plan of a read finds it.

    One whose first record is sound needs no walk. Others are preallocated, damaged or torn.
    """
    for number in reversed(range(len(segments))):
        segment = segments[number]
        if _begins_sound(segment, verify_crc=read.verify_crc) or not number:
            return segment.path
        if segment_end(segment, is_first=False, verify_crc=read.verify_crc, has_tail=False).found.position:
            return segment.path
    raise AssertionError("there is a first segment")


def _walk(segment: Segment, opened: SegmentBytes) -> _Walk:
    """Follow the records from a segment's first byte, as `store_core.format.record.scan.follow_frames` defines."""
    view = segment.view(opened)
    chain = Chain(view).followed_sound()
    starts, stop, last = chain.starts_before(segment.size), chain.stop, chain.place.last_sound
    return _Walk(starts, stop, view.check(stop, previous=last).reason or StopReason.LIMIT)


def _begins_sound(segment: Segment, *, verify_crc: bool = False) -> bool:
    with open_segment(segment) as opened:
        return segment.view(opened).check(0, verify_crc=verify_crc).reason is None


def _up_to(walk: _Walk, position: int, reason: StopReason) -> _Walk:
    """End a walk at a record, if that is earlier."""
    if position >= walk.stop:
        return walk
    return _Walk(walk.starts[: int(np.searchsorted(walk.starts, position))], position, reason)


def _first_time(segment: Segment, options: ViewOptions) -> pa.Scalar | None:
    is_later = options.log_end is not None and segment.start_offset >= options.log_end
    if is_later or not _begins_sound(segment):
        return None
    with open_segment(segment) as opened:
        return _time_of(segment.view(opened), np.zeros(1, np.int64), options, "first_store_timestamp")


def _time_of(segment: SegmentView, starts: npt.NDArray[np.int64], options: ViewOptions, name: str) -> pa.Scalar | None:
    """Return the store time of a record; None without one."""
    if not starts.size:
        return None
    position = int(starts[0])
    times = store_timestamps(segment.frame(position), np.array([segment.framing.lead]))
    offset = segment.start_offset + position
    return timestamps(times, options, name, lambda _: f"the record at offset {offset}")[0]
