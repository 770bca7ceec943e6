# SPDX-License-Identifier: Apache-2.0
"""The end of a remote log, found from the last part of its last segment.

Only the chain from the segment's first record proves where its records end, and following that takes a download of the
segment, which whoever reads it does anyway. So planning looks at the last part alone, if all is well there; a reader
whose chain does not arrive at that end finds it as for any other log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.files.segment_source import open_pages
from store_core.format.columnar.chain import Place
from store_core.format.columnar.lockstep import find_candidate
from store_core.format.layout import MIN_RECORD_SIZE
from store_core.format.record.scan import StopReason
from store_core.snapshot.log import has_record
from store_core.snapshot.log_end import segment_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.files.segment_source import PagedBytes, Segment, SegmentBytes
    from store_core.snapshot.log_end import SegmentEnd
    from store_core.store.read.read_options import ReadOptions

__all__ = ["find_tail_end"]

_WINDOWS: Final = (1 << 20, 8 << 20)
"""Bytes before the last ones that are not zeros in which a record has to begin: at last, twice what a body may have."""

_LEAST: Final = 32 << 20
"""Bytes of data up to which a segment is followed from its beginning."""

_PROBE: Final = 64 << 10
"""Bytes that are looked at to see whether a place is written."""

_CLEAN: Final = (StopReason.UNWRITTEN, StopReason.END_OF_FILE)


def find_tail_end(
    segment: Segment, options: ReadOptions, open_bytes: Callable[[Segment], SegmentBytes]
) -> SegmentEnd | None:
    """Find where the records of a log's last segment end, as its last part shows it.

    Parameters
    ----------
    options : ReadOptions
        Those of the read.
    open_bytes : callable
        Opens the segment.

    Returns
    -------
    SegmentEnd or None
        With records up to zeros or to the blank record, and nothing else after it. None if there is not much to skip,
        if the bytes are on this machine, or if it takes all of them to tell.
    """
    is_plain = segment.remote is not None and segment.codec is None and segment.entries is None
    is_one = options.max_partition_bytes is None and options.min_partitions is None and not options.is_permissive
    if not (is_plain and is_one) or segment.size < _LEAST or not has_record(segment):
        return None
    with open_pages(segment) as opened:
        data_end = _data_end(opened)
        if data_end < _LEAST:
            return None
        first = next((at for window in _WINDOWS if (at := _record_in(segment, opened, data_end, window)) >= 0), -1)
    if first < 0:
        return None
    end = segment_end(
        segment,
        is_first=False,
        verify_crc=options.verify_crc,
        has_tail=False,
        after=Place(first),
        open_bytes=open_bytes,
    )
    found = end.found
    is_clean = found.reason in _CLEAN and end.tail is None and found.stale < 0 and found.covered < 0
    return end if is_clean and found.position > first and not found.is_unfinished else None


def _record_in(segment: Segment, opened: PagedBytes, end: int, size: int) -> int:
    """Return where the first record in the bytes before a position seems to start; -1 if there is none."""
    begin = end - size
    opened.load(begin, end)
    return find_candidate(opened.raw, begin, end - MIN_RECORD_SIZE, segment.start_offset, (size,))


def _data_end(opened: PagedBytes) -> int:
    """Return about where the zeros of a segment that is not full begin: by halves, since it is written in order."""
    low, high = 0, opened.raw.size
    probe = high - _PROBE
    while low + _PROBE < high:
        opened.load(probe, probe + _PROBE)
        if opened.raw[probe : probe + _PROBE].any():
            low = probe + _PROBE
        else:
            high = probe
        probe = max((low + high - _PROBE) // 2, 0)
    return high if high < opened.raw.size else low
