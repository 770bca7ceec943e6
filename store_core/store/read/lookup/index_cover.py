# SPDX-License-Identifier: Apache-2.0
"""Whether the entries of the index name all records of a segment, and which they leave out.

Which records there are is known from the consume queues, see `QueueTiling`. If the sums over a mixing function of what
units and what entries name are equal, so are the sets. If not, each record is marked at its place: no two records start
in the same 64 bytes, since the smallest is longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.store.read.lookup.survey import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.store.read.lookup.index_survey import IndexSurvey, Stretch
    from store_core.store.read.lookup.queue_tiling import PathEnd, QueueTiling
    from store_core.store.read.lookup.survey import Span

__all__ = ["left_out", "unnamed_starts"]

_SHIFT: Final = 6
_LOW: Final = (1 << _SHIFT) - 1
_NAMED: Final = 0x80
_LARGEST_SEGMENT: Final = 1 << 34
"""Bytes of a segment above which marks would take more than 256 MiB of memory."""


def left_out(
    tiling: QueueTiling,
    surveys: Sequence[IndexSurvey],
    segment: Segment,
    data_end: int,
    unqueued: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64] | None:
    """Return where the records of a segment start that no entry names.

    Parameters
    ----------
    tiling : QueueTiling
        Its units account for all records of the segment but the unqueued ones.
    surveys : sequence of IndexSurvey
        Of the index files, oldest first.
    segment : Segment
    data_end : int
        Physical offset at which its records end; later entries are ignored.
    unqueued : numpy.ndarray
        int64: where the records start that have no unit.

    Returns
    -------
    numpy.ndarray or None
        int64, ascending; None if an entry names a place where no record starts, so that none is believed.
    """
    span = tiling.span_of(segment)
    stretch, path = _joined(surveys, span), tiling.path_end(segment)
    if path is not None and path.offset <= data_end and _is_path(stretch, path, tiling.starts_digest(segment)):
        return np.empty(0, np.int64)
    if span[1] - span[0] > _LARGEST_SEGMENT:
        return None

    def find() -> npt.NDArray[np.int64] | None:
        units = tiling.starts_in(segment, data_end)
        named = (offsets for survey in surveys for offsets in survey.named(span))
        return unnamed_starts((*units, unqueued), named, (span[0], data_end))

    stretches = (survey.stretches.get(span) for survey in surveys)
    entries = tuple((each.first, each.last, each.digest) for each in stretches if each is not None)
    sums = "left out", span, data_end, tiling.starts_digest(segment), digest(unqueued), entries
    return tiling.proofs.following(sums, find)


def _is_path(stretch: Stretch | None, path: PathEnd, starts: int) -> bool:
    """Return whether entries name all records on a path of units, and no other place."""
    return stretch is not None and stretch.last == path.last_start and stretch.digest == starts


def _joined(surveys: Sequence[IndexSurvey], span: Span) -> Stretch | None:
    """Return what all files say about a segment; None if they do not follow one another, or say nothing."""
    joined: Stretch | None = None
    for survey in surveys:
        stretch = survey.stretches.get(span)
        if stretch is None:
            continue
        if joined is not None and stretch.first < joined.last:
            return None
        joined = stretch if joined is None else joined.and_then(stretch)
    return joined


def unnamed_starts(
    starts: Iterable[npt.NDArray[np.int64]], named: Iterable[npt.NDArray[np.int64]], span: tuple[int, int]
) -> npt.NDArray[np.int64] | None:
    """Return the starts that are not named, ascending; None if anything else is named.

    Parameters
    ----------
    starts : iterable of numpy.ndarray
        int64, within the span, no two within 64 bytes.
    named : iterable of numpy.ndarray
        int64; those outside of the span are ignored.
    span : tuple of int
        Physical offsets; the end is exclusive.
    """
    begin, end = span
    marks = np.zeros((max(end - begin, 0) >> _SHIFT) + 1, np.uint8)
    for part in starts:
        places = part - begin
        marks[places >> _SHIFT] = (places & _LOW) + 1
    for part in named:
        places = part[(part >= begin) & (part < end)] - begin
        buckets = places >> _SHIFT
        if ((marks[buckets] & ~np.uint8(_NAMED)) != (places & _LOW) + 1).any():
            return None
        marks[buckets] |= _NAMED
    found = np.flatnonzero((marks > 0) & (marks < _NAMED))
    return begin + (found << _SHIFT) + marks[found] - 1
