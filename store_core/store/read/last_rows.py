# SPDX-License-Identifier: Apache-2.0
"""The last rows of a log, read from its end."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from store_core.store.read.message_reader import read_range
from store_core.store.read.read_plan import plan_and_walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from store_core.files.store_path import StorePaths
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions

__all__ = ["last_rows"]

_PIECE: Final = 8 << 20
"""Bytes of the last segment that are read at once; where its records start is known from planning."""


def last_rows(paths: StorePaths, options: ReadOptions, most: int, before: int | None = None) -> list[pa.RecordBatch]:
    """Read the last rows of a log.

    Parameters
    ----------
    paths : path or sequence of paths
        As for `store_core.read_messages`.
    most : int
        How many rows; fewer if the log has fewer.
    before : int, optional
        Physical offset where the read ends, if not at the log's end.

    Returns
    -------
    list of pyarrow.RecordBatch
        In log order.

    Raises
    ------
    StoreError
        As for `store_core.read_messages`.
    """
    bound = options.ending_offsets if before is None else replace(options.ending_offsets, physical=before)
    plan, mapped = plan_and_walk(paths, replace(options, max_partition_bytes=_PIECE, ending_offsets=bound))
    found: deque[pa.RecordBatch] = deque()
    for part in reversed(_pieces(plan.ranges)):
        missing = most - sum(batch.num_rows for batch in found)
        if missing <= 0:
            break
        found.extendleft(reversed(_last_of(read_range(part, options, mapped), missing)))
    return list(found)


def _pieces(ranges: Sequence[ReadRange]) -> list[ReadRange]:
    """Join the ranges of all segments but the last: each read of a part would walk its segment from the start."""
    segments = [list(parts) for _, parts in groupby(ranges, attrgetter("segment"))]
    whole = [replace(parts[0], end=parts[-1].end) for parts in segments[:-1]]
    return [*whole, *(segments[-1] if segments else [])]


def _last_of(batches: Iterable[pa.RecordBatch], most: int) -> list[pa.RecordBatch]:
    """Return the last rows of some batches, and keep no more of them than needed."""
    kept: deque[pa.RecordBatch] = deque()
    rows = 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        while rows - kept[0].num_rows >= most:
            rows -= kept.popleft().num_rows
    if rows > most:
        kept[0] = kept[0].slice(rows - most)
    return list(kept)
