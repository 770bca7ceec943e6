# SPDX-License-Identifier: Apache-2.0
"""Finding the records at many physical offsets, in parts, without walking to them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.errors import SegmentVanishedError
from store_core.files.segment_source import load_record, open_picks
from store_core.format.columnar.records import Records
from store_core.format.properties import PropertyParser
from store_core.format.record.scan import check_record
from store_core.store.diff.record_rows import record_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from store_core.files.segment_source import Segment

__all__ = ["RecordLookUp", "SegmentOffsets"]


class SegmentOffsets(NamedTuple):
    """A segment, and offsets in it."""

    segment: Segment
    offsets: tuple[int, ...]


class RecordLookUp:
    """Finds records; see `store_core.store.parts.Job`. Its result has a row for each record, by its offset.

    Parameters
    ----------
    segments : sequence of Segment
        Of the log, in order.
    offsets : iterable of int
        Physical offsets, where records may be or not.
    release : str
        By which properties are parsed.
    """

    def __init__(self, segments: Sequence[Segment], offsets: Iterable[int], release: str) -> None:
        self.segments = tuple(segments)
        self.offsets = sorted(set(offsets))
        self.parser = PropertyParser.of_release(release)

    def plan(self) -> Sequence[SegmentOffsets]:
        """Return the parts: the segments with any of the offsets."""
        parts = []
        for segment in self.segments:
            first, stop = (bisect_left(self.offsets, at) for at in (segment.start_offset, segment.end_offset))
            if first < stop:
                parts.append(SegmentOffsets(segment, tuple(self.offsets[first:stop])))
        return parts

    def run(self, part: SegmentOffsets) -> list[dict[str, Any]]:
        """Return the records of a segment; where there is none that carries its own offset, nothing."""
        start = part.segment.start_offset
        try:
            opened = open_picks(part.segment)
        except SegmentVanishedError:
            return []
        with opened:
            raw = opened.raw
            places = [at - start for at in part.offsets]
            for at in places:
                load_record(opened, at)
            sound = [at for at in places if check_record(raw.data, at, start).reason is None]
            if not sound:
                return []
            return record_rows(Records(raw, np.array(sound, np.int64), part.segment.name, start, self.parser))

    def merge(self, partials: Iterable[list[dict[str, Any]]]) -> dict[int, dict[str, Any]]:
        """Put the records together."""
        return {row["physical_offset"]: row for rows in partials for row in rows}
