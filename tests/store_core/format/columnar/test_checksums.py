# SPDX-License-Identifier: Apache-2.0
"""Checksums of many bodies equal those of each body, however the bodies are sliced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar import checksums
from store_core.format.columnar.checksums import body_crcs
from store_core.format.crc32 import crc32
from store_core.format.record.scan import body_crc

if TYPE_CHECKING:
    from random import Random

# A body, and the bytes between it and the next one.
bodies = st.binary(max_size=20) | st.sampled_from([b"", b"a", bytes(1023), bytes(1024), bytes(1025), b"x" * 5000])
gaps = st.integers(0, 40) | st.sampled_from([900, 1500])
alike = st.tuples(st.sampled_from([0, 1, 3, 1023, 1024]), st.integers(1, 30), st.binary(min_size=8, max_size=8))
rows = st.lists(st.tuples(bodies, gaps), max_size=30) | alike.map(
    lambda drawn: [((drawn[2] * 128)[number % 8 :][: drawn[0]], number) for number in range(drawn[1])]
)


@given(rows, st.randoms(use_true_random=False), st.booleans(), st.sampled_from([1, 100, 1 << 19]))
def test_checksums_of_many_equal_those_of_each(
    rows: list[tuple[bytes, int]], random: Random, is_shuffled: bool, together: int
) -> None:
    raw = np.frombuffer(b"".join(body + bytes(gap) for body, gap in rows), np.uint8)
    sizes = np.array([(len(body), gap) for body, gap in rows], np.int64).reshape(-1, 2)
    starts = sizes.sum(axis=1).cumsum() - sizes.sum(axis=1)
    order = list(range(len(rows)))
    if is_shuffled:
        random.shuffle(order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksums, "_TOGETHER_BYTES", together)
        found = body_crcs(raw, starts[order], (starts + sizes[:, 0])[order])

    assert [body_crc(rows[row][0]) for row in order] == found.tolist()


def test_pieces_may_overlap() -> None:
    raw = np.arange(100, dtype=np.uint8)
    starts, stops = np.array([0, 0, 10, 5]), np.array([100, 50, 90, 5])

    found = body_crcs(raw, starts, stops)
    assert [body_crc(raw[start:stop].data) for start, stop in zip(starts, stops, strict=True)] == found.tolist()


@pytest.mark.parametrize(
    ("sizes", "gap", "copied"),
    [
        ([200] * 50, 170, 50),
        ([200] * 50, 5000, 50),
        ([150, 200, 0] * 50, 170, 150),
        ([150, 200] * 50, 5000, 0),
        ([1024] * 50, 170, 0),
    ],
    ids=["alike", "alike, far apart", "close", "far apart", "long"],
)
def test_short_pieces_are_copied_and_others_sliced(
    sizes: list[int], gap: int, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = np.array(sizes, np.int64).cumsum() + gap * np.arange(len(sizes))
    starts = stops - sizes
    raw = np.arange(stops[-1]).astype(np.uint8)
    seen: list[bytes | memoryview] = []

    def watched(piece: bytes | memoryview) -> int:
        seen.append(piece)
        return crc32(piece)

    monkeypatch.setattr(checksums, "crc32", watched)
    found = body_crcs(raw, starts, stops)

    assert [raw[start:stop].tobytes() for start, stop in zip(starts, stops, strict=True)] == seen
    assert copied == sum(isinstance(piece, bytes) for piece in seen)
    assert [body_crc(piece) for piece in seen] == found.tolist()
