# SPDX-License-Identifier: Apache-2.0
"""The balance of units is that of a path exactly where they are one; parts of blocks keep their queue offsets."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.store.read.lookup.survey import LogSpans, balance_of, overlapping
from store_core.store.read.lookup.unit_block import UnitBlock

EDGES = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), max_size=12)


def balance(edges: list[tuple[int, int]], scale: int = 1) -> int:
    """Return the balance of edges, each as its start and its length."""
    starts, sizes = np.array(edges, np.int64).reshape(-1, 2).T * scale
    return balance_of(starts, starts + sizes)


def ends_of(edges: list[tuple[int, int]]) -> Counter[int]:
    """Count where edges end, less where they start."""
    counts = Counter(start + size for start, size in edges)
    counts.subtract(start for start, _ in edges)
    return Counter({place: count for place, count in counts.items() if count})


@given(edges=EDGES, others=EDGES, scale=st.sampled_from([1, 91, 1 << 20, 1 << 40]))
def test_edges_balance_alike_if_and_only_if_they_lead_between_the_same_places(
    edges: list[tuple[int, int]], others: list[tuple[int, int]], scale: int
) -> None:
    assert (balance(edges, scale) == balance(others, scale)) == (ends_of(edges) == ends_of(others))


def test_units_that_err_in_opposite_directions_do_not_cancel_out() -> None:
    path = [(0, 100), (100, 100), (200, 100), (300, 100)]
    moved = [(1, 100), (99, 100), (199, 100), (301, 100)]

    assert balance(path) == balance([(0, 400)])
    assert balance(moved) != balance([(0, 400)])


@pytest.mark.parametrize("batches", [None, np.array([5, 8, 9, 20])])
def test_a_part_of_a_block_stands_for_its_own_queue_offsets(batches: np.ndarray | None) -> None:
    starts = np.array([100, 200, 300, 400])
    block = UnitBlock(starts, starts + 100, 5, 8 if batches is None else 24, batches)
    indexes = [5, 6, 7, 8] if batches is None else batches.tolist()

    part = block.between(150, 400)

    assert part is not None
    assert (part.starts.tolist(), part.ends.tolist()) == ([200, 300], [300, 400])
    assert part.indexes.tolist() == indexes[1:3]
    assert (part.first_index, part.last_index) == (indexes[1], indexes[3] - 1)
    assert block.between(100, 401) is block
    assert block.between(401, 500) is None
    assert block.within(indexes[1], indexes[3]).indexes.tolist() == indexes[1:3]  # type: ignore[union-attr]
    assert block.within(indexes[3] + 1, 99) is None


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(0, 45), st.integers(0, 45))
def test_the_segments_of_a_range_are_those_that_have_bytes_of_it(sizes: list[int], begin: int, end: int) -> None:
    ends = np.cumsum(sizes).tolist()
    spans = tuple(zip([0, *ends], ends, strict=False))
    expected = tuple(span for span in spans if span[0] < end and begin < span[1])

    assert overlapping(spans, begin, end) == expected
    leads = tuple(range(len(spans)))
    assert [span for span, _ in LogSpans(spans, leads).of(begin, end)] == list(expected)
