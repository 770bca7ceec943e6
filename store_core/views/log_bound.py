# SPDX-License-Identifier: Apache-2.0
"""Where the log ends, for queues that run past it: a broker drops such units when it loads the store."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from store_core.files.local_listing import segments_in
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_source import open_picks
from store_core.files.store_lock import is_lock_held
from store_core.format.record.framing import check_frame
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import find_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.files.segment_source import Segment

__all__ = ["LogBound", "bounding_segments"]


def bounding_segments(root: Path, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Return a log's segments if queues are to end where it ends; none if that can't be told, or costs too much.

    A broker may be writing, a part of the log may be elsewhere, or its end would have to be downloaded.

    Parameters
    ----------
    root : Path
        The store's root.
    segments : sequence of Segment
        In order.
    """
    if not segments or isinstance(root, UrlPath) or not segments[-1].is_plain:
        return ()
    return () if Log(tuple(segments)).problems or is_lock_held(root) else tuple(segments)


class LogBound:
    """Finds the end of a log, if there are units of records that it does not have.

    The record of a queue's last unit is looked at first: if it is sound, the log is not walked.

    Parameters
    ----------
    root : Path
        The store's root.
    segments : sequence of Segment
        As of `bounding_segments`.
    """

    def __init__(self, root: Path, segments: Sequence[Segment]) -> None:
        self._root = root
        self._segments = segments
        self._starts = [segment.start_offset for segment in segments]
        self._known = 0  # up to where the log is known to have records
        self._is_searched = False

    def end_before(self, offset: int, size: int) -> int | None:
        """Return where the log ends if that is not after the place of a record; else None, also if it is unknown.

        Parameters
        ----------
        offset, size : int
            Physical offset and bytes of the record, from a unit.
        """
        if not self._segments or offset < self._known:
            return None
        try:
            if self._has(offset, size):
                self._known = offset + size
                return None
            self._search()
            return self._known if offset >= self._known and not self._may_grow() else None
        except OSError:  # files that are gone or may not be read: the queue is all that is known
            return None

    def _has(self, offset: int, size: int) -> bool:
        """Return whether there is a sound record; those in a segment that was compressed after it was written are."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or size <= 0 or offset + size > self._segments[index].end_offset:
            return False
        segment = self._segments[index]
        begin = offset - segment.start_offset - segment.framing.lead
        if not segment.is_plain or begin < 0:
            return not segment.is_plain
        stop = offset + size - segment.start_offset
        with open_picks(segment) as opened:
            opened.load(begin, stop)
            check = check_frame(opened.raw.data, begin, segment.start_offset, segment.framing, verify_crc=True)
        return check.reason is None and check.size == stop - begin

    def _search(self) -> None:
        if not self._is_searched:
            written = Path(self._segments[-1].path).stat().st_mtime_ns
            self._known = max(self._known, _end_of(tuple(self._segments), written))
            self._is_searched = True

    def _may_grow(self) -> bool:
        """Return whether a broker has opened the store, or added a segment, since it was listed."""
        directories = {Path(segment.path).parent for segment in self._segments}
        found = (segment for each in directories for segment in segments_in(each, [], compressed=True))
        is_longer = any(each.start_offset > self._starts[-1] and (each.size or not each.is_plain) for each in found)
        return is_longer or is_lock_held(self._root)


@lru_cache(maxsize=1)
def _end_of(segments: tuple[Segment, ...], written: int) -> int:  # noqa: ARG001 -- a file that changes is walked again
    """Return where a log ends; parts that one process reads have it in common."""
    return find_end(segments).end_offset
