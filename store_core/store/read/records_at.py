# SPDX-License-Identifier: Apache-2.0
"""Reading records of a log at positions that units name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import SegmentVanishedError
from store_core.files.segment_source import open_pages
from store_core.store.read.message_reader import read_range
from store_core.store.read.picks import NO_QUEUE, Picks
from store_core.store.read.ranges import ReadRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from store_core.files.segment_source import Segment
    from store_core.store.read.read_options import ReadOptions

__all__ = ["records_at"]


def records_at(
    segments: Sequence[Segment], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the sound records at some physical offsets, in log order; where there is none of that size, no row.

    * `segments`: Of the log, in order.
    * `starts`, `sizes`: int64, shape (n,): physical offsets, in any order and perhaps repeated, and bytes.
    * `options`: Columns, and what else narrows the rows.
    """
    starts, rows = np.unique(starts, return_index=True)
    nowhere = np.full(starts.size, NO_QUEUE, np.int32), np.zeros(starts.size, np.int64)
    every = Picks(starts, sizes[rows], *nowhere)
    for segment in segments:
        picks = every.between(segment.start_offset, segment.end_offset)
        if picks is None:
            continue
        try:
            with open_pages(segment) as opened:
                begins = picks.starts - segment.start_offset
                opened.load_many(list(zip(begins.tolist(), (begins + picks.sizes).tolist(), strict=True)))
                sound = picks.take(np.flatnonzero(picks.are_right(opened.raw, segment)))
        except SegmentVanishedError:
            if options.fail_on_data_loss:
                raise
            continue
        if len(sound):
            end = segment.end_offset
            yield from read_range(ReadRange(segment, segment.start_offset, end, end, picks=sound), options)
