# SPDX-License-Identifier: Apache-2.0
"""How much of a log one batch of a stream takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.segment_source import open_pages
from store_core.store.read.follow.log_segments import FIRST_STEP

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.store.read.follow.log_position import LogPosition
    from store_core.store.read.follow.log_segments import LogSegments, Stretch
    from store_core.store.read.follow.waypoints import Waypoints

__all__ = ["NO_LIMITS", "ReadLimits", "count_records", "limited_end"]


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of a batch; it has at least one record, if there is one."""

    max_records: int | None = None  # most records, whether or not filters let them become rows
    max_bytes: int | None = None  # most bytes of the log


_USUAL_SIZE: Final = 512
"""Bytes of a record, to estimate how far to walk for a number of them; the estimate affects only speed."""

_MOST_STEP: Final = 256 << 20
"""Most bytes to walk in one step: the starts in them are held, 8 bytes per record."""

NO_LIMITS: Final = ReadLimits()


def limited_end(
    log: LogSegments, start: LogPosition, end: LogPosition, limits: ReadLimits, waypoints: Waypoints
) -> LogPosition:
    """Return where a batch ends that begins at a position: at a record's end, no later than `end`.

    If there are limits, the records of the batch are walked, and no more than about twice as many bytes; those that
    are passed are added to `waypoints`.
    """
    if limits == NO_LIMITS:
        return end
    taken = 0
    last: tuple[Stretch, int] | None = None
    for stretch in log.stretches(start, end, _first_step(limits)):
        waypoints.add(stretch)
        count = _admitted(stretch, start, taken, limits)
        taken += count
        last = (stretch, count) if count else last
        if count < stretch.run.starts.size:
            break
    else:
        return end
    if last is None:
        return start
    (stretch, count), segment = last, last[0].segment
    with open_pages(segment) as opened:  # that of the stretch is closed if the walk has gone on to the next segment
        return log.position_after(segment, segment.view(opened), int(stretch.run.starts[count - 1]))


def _first_step(limits: ReadLimits) -> int:
    """Return how many bytes a batch of these limits is likely to have."""
    by_records = _MOST_STEP if limits.max_records is None else limits.max_records * _USUAL_SIZE
    by_size = _MOST_STEP if limits.max_bytes is None else limits.max_bytes
    return max(min(by_records, by_size, _MOST_STEP), FIRST_STEP)


def _admitted(stretch: Stretch, start: LogPosition, taken: int, limits: ReadLimits) -> int:
    """Return how many records of a stretch still belong to the batch."""
    starts = stretch.run.starts
    count = starts.size if limits.max_records is None else min(starts.size, limits.max_records - taken)
    if limits.max_bytes is not None:
        ends: npt.NDArray[np.int64] = np.append(starts[1:], stretch.run.stop) + stretch.view.start_offset
        by_size = int(np.searchsorted(ends, start.physical_offset + limits.max_bytes, "right"))
        count = min(count, max(by_size, 0 if taken else 1))
    return count


def count_records(log: LogSegments, start: LogPosition, end: LogPosition, most: int) -> int:
    """Count the records between two positions, up to a number that is enough."""
    found = 0
    for stretch in log.stretches(start, end):
        found += stretch.run.starts.size
        if found >= most:
            return most
    return found
