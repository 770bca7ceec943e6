# SPDX-License-Identifier: Apache-2.0
"""Ranges of a plan, split so that tasks have work of about one size."""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from store_core.format.layout import MIN_RECORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions

__all__ = ["split_ranges", "with_picks"]


def with_picks(parts: Sequence[ReadRange], options: ReadOptions) -> Iterator[ReadRange]:
    """Split the ranges that are scanned; those of picked records stay as they are."""
    scanned = iter(split_ranges([part for part in parts if part.picks is None], options))
    return heapq.merge((part for part in parts if part.picks is not None), scanned, key=_begin)


def _begin(part: ReadRange) -> int:
    return part.begin


def split_ranges(parts: Sequence[ReadRange], options: ReadOptions) -> Iterator[ReadRange]:
    """Split ranges evenly, until none is too large and there are enough."""
    lengths = [part.end - part.begin for part in parts]
    counts = [-(-length // (options.max_partition_bytes or length)) for length in lengths]
    _raise_counts(counts, lengths, options.min_partitions or 0)
    for part, length, wanted in zip(parts, lengths, counts, strict=True):
        count = min(wanted, max(length // MIN_RECORD_SIZE, 1)) if part.segment.codec is None else 1
        cuts = [part.begin + length * cut // count for cut in range(count + 1)]
        yield from (replace(part, begin=begin, end=end) for begin, end in pairwise(cuts))


def _raise_counts(counts: list[int], lengths: Sequence[int], wanted: int) -> None:
    """Repeatedly split the range with the largest pieces until there are enough; no piece is smaller than a record."""
    pieces = [(-length / count, at) for at, (length, count) in enumerate(zip(lengths, counts, strict=True))]
    heapq.heapify(pieces)
    for _ in range(wanted - sum(counts)):
        if not pieces or -pieces[0][0] < 2 * MIN_RECORD_SIZE:
            return
        at = pieces[0][1]
        counts[at] += 1
        heapq.heapreplace(pieces, (-lengths[at] / counts[at], at))
