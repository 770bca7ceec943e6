# SPDX-License-Identifier: Apache-2.0
"""Store times, and what the keys are made of, of single records of a log, at positions that other files name."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from store_core.files.segment_source import load_record, open_picks
from store_core.format.properties import decode_text
from store_core.format.record.record_head import store_timestamp
from store_core.format.record.scan import check_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.files.segment_source import Segment

__all__ = ["NamedRecord", "RecordTimes"]


class NamedRecord(NamedTuple):
    """A sound record: its size, store time in ms, topic, and properties as they are stored."""

    size: int
    store_timestamp: int
    topic: str
    properties: bytes


class RecordTimes:
    """Reads the store times of sound records; nothing else of the log is read.

    Parameters
    ----------
    segments : sequence of Segment
        Of the log, in order.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._starts = [segment.start_offset for segment in segments]

    def at(self, offset: int, size: int | None = None) -> int | None:
        """Return the store time of the record at a physical offset, ms; None if there is no sound one.

        Parameters
        ----------
        offset : int
        size : int, optional
            Bytes that the record must have.

        Raises
        ------
        SegmentVanishedError
            If its segment was deleted since it was listed.
        """
        found = self.record_at(offset)
        return None if found is None or size not in (None, found.size) else found.store_timestamp

    def record_at(self, offset: int) -> NamedRecord | None:
        """Return the record at a physical offset; None if there is no sound one."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or offset >= self._segments[index].end_offset:
            return None
        segment = self._segments[index]
        position = offset - segment.start_offset
        with open_picks(segment) as opened:
            load_record(opened, position)
            data = opened.raw.data
            check = check_record(data, position, segment.start_offset)
            if check.spans is None:
                return None
            topic = bytes(data[check.spans.topic_start : check.spans.topic_stop])
            properties = bytes(data[check.spans.properties_start : check.spans.properties_stop])
            return NamedRecord(check.size, store_timestamp(data, position), decode_text(topic), properties)
