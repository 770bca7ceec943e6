# SPDX-License-Identifier: Apache-2.0
"""The ranges that tasks read for one batch of a stream: they follow from its two positions alone."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from store_core.snapshot.log import Log
from store_core.store.read.ranges import ReadRange, split_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.segment_source import Segment
    from store_core.store.read.follow.log_position import LogPosition
    from store_core.store.read.follow.log_segments import LogSegments
    from store_core.store.read.follow.waypoints import Waypoints
    from store_core.store.read.read_options import ReadOptions

__all__ = ["batch_ranges"]

_log: Final = logging.getLogger("store_core")


def batch_ranges(
    log: LogSegments, start: LogPosition, end: LogPosition, options: ReadOptions, waypoints: Waypoints | None = None
) -> list[ReadRange]:
    """Return the ranges between two positions, in log order.

    The segment that the batch ends in is read as if the log ended there, so that a batch has the same rows whatever
    was appended since.

    * `waypoints`: Of a walk that began at `start`; they change where readers start to walk, and nothing else.
    """
    segments = [
        each
        for each in log.segments
        if each.end_offset > start.physical_offset and each.start_offset < end.physical_offset
    ]
    for problem in Log(tuple(segments)).problems:
        if options.is_strict:
            raise problem
        _log.warning("%s", problem.problem)
    usual = Log(log.segments).usual_size
    parts = split_ranges(list(_whole(segments, start, end, usual)), options)
    return (
        list(parts) if waypoints is None else [replace(part, walk_start=waypoints.walk_start(part)) for part in parts]
    )


def _whole(segments: list[Segment], start: LogPosition, end: LogPosition, usual: int) -> Iterator[ReadRange]:
    for segment, following in zip_longest(segments, segments[1:]):
        limit = segment.end_offset if following is None else min(segment.end_offset, following.start_offset)
        data_end = min(limit, end.physical_offset)
        yield ReadRange(
            segment,
            max(segment.start_offset, start.physical_offset),
            data_end,
            data_end=data_end,
            is_last=end.physical_offset < segment.end_offset,
            is_cut=segment.size < usual,
            walk_start=start.walk_start(segment),
        )
