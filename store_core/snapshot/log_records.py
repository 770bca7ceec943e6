# SPDX-License-Identifier: Apache-2.0
"""Single records of a log: the first of a segment, and those at positions that other files name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.segment_source import load_record, open_pages, open_picks
from store_core.format.damage.salvage import store_timestamps
from store_core.format.properties import decode_text
from store_core.format.record.framing import check_frame, frame_size
from store_core.format.record.record_head import store_timestamp
from store_core.format.record.scan import StopReason, check_record

if TYPE_CHECKING:
    from store_core.files.segment_source import PagedBytes, Segment

__all__ = ["NamedRecord", "first_store_timestamp", "has_record", "load_first_frame", "load_frame", "record_in"]

_HEAD: Final = 4 << 10
"""Bytes that are loaded first: more than a record's head, and most records."""


def has_record(segment: Segment) -> bool:
    """Return whether a segment begins with a record; one that is preallocated does not."""
    with open_pages(segment) as opened:
        return _begins_with_record(segment, opened)


def load_first_frame(segment: Segment, opened: PagedBytes) -> None:
    """Load the first record, or entry, of a segment, as long as it says that it is."""
    load_frame(segment, opened, 0)


def load_frame(segment: Segment, opened: PagedBytes, position: int) -> None:
    """Load the record, or entry, at a position of a segment, as long as it says that it is, if it looks like one."""
    opened.load(position, min(position + _HEAD, segment.size))
    if segment.size - position < _HEAD:
        return
    check = check_frame(opened.raw.data, position, segment.start_offset, segment.framing)
    if check.reason is not StopReason.BAD_MAGIC:
        opened.load(position + _HEAD, position + frame_size(opened.raw.data, position, segment.framing))


def _begins_with_record(segment: Segment, opened: PagedBytes) -> bool:
    load_first_frame(segment, opened)
    return check_frame(opened.raw.data, 0, segment.start_offset, segment.framing).reason is None


def first_store_timestamp(segment: Segment) -> int | None:
    """Return the store time of a segment's first record, in ms; None if unknown."""
    with open_pages(segment) as opened:
        if not _begins_with_record(segment, opened):
            return None
        time = int(store_timestamps(opened.raw, np.array([segment.framing.lead]))[0])
    return time if time > 0 else None


class NamedRecord(NamedTuple):
    """A sound record: its size, store time in ms, topic, and properties as they are stored."""

    size: int
    store_timestamp: int
    topic: str
    properties: bytes


def record_in(segment: Segment, offset: int) -> NamedRecord | None:
    """Return the record of a segment at a physical offset; None if there is no sound one.

    Raises
    ------
    SegmentVanishedError
        If the segment was deleted since it was listed.
    """
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
