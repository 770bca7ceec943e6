# SPDX-License-Identifier: Apache-2.0
"""Store times of single records of a log, to compare with what other files say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.files.segment_source import open_segment
from store_core.files.store_path import list_segments
from store_core.format.record.record_head import store_timestamp
from store_core.format.record.scan import check_record

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["StoreTimes"]


class StoreTimes:
    """Reads the store times of sound records.

    Parameters
    ----------
    store : Path
        The store's root.
    """

    def __init__(self, store: Path) -> None:
        self._segments = list_segments(str(store)).segments

    def at(self, offset: int) -> int | None:
        """Return the store time of the record at a physical offset, ms; None if there is no sound one."""
        for segment in self._segments:
            if segment.start_offset <= offset < segment.end_offset:
                with open_segment(segment) as opened:
                    position, data = offset - segment.start_offset, opened.raw.data
                    if check_record(data, position, segment.start_offset).reason is None:
                        return store_timestamp(data, position)
        return None
