# SPDX-License-Identifier: Apache-2.0
"""The first record of a segment: whether there is one, and when it was stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.files.segment_source import open_segment
from store_core.format.damage.salvage import store_timestamps
from store_core.format.record.framing import check_frame

if TYPE_CHECKING:
    from store_core.files.segment_source import Segment
    from store_core.format.segment_view import SegmentView

__all__ = ["first_store_timestamp", "has_record"]


def has_record(segment: Segment) -> bool:
    """Return whether a segment begins with a record; one that is preallocated does not."""
    with open_segment(segment) as opened:
        return _begins_with_record(segment.view(opened))


def _begins_with_record(segment: SegmentView) -> bool:
    return check_frame(segment.raw.data, 0, segment.start_offset, segment.framing).reason is None


def first_store_timestamp(segment: Segment) -> int | None:
    """Return the store time of a segment's first record, in ms; None if unknown."""
    with open_segment(segment) as opened:
        if not _begins_with_record(segment.view(opened)):
            return None
        time = int(store_timestamps(opened.raw, np.array([segment.framing.lead]))[0])
    return time if time > 0 else None
