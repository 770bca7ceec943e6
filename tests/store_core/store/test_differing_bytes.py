# SPDX-License-Identifier: Apache-2.0
"""Where two arrays differ: the fast path equals its definition, however the arrays are cut into blocks."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_core.store.segment_diff import JOINED, DifferingBytes, compare_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt


def pairs() -> st.SearchStrategy[tuple[bytes, bytes]]:
    """Return two equal strings in which some bytes of the second are then inverted."""
    positions = st.lists(st.integers(0, 599), max_size=12)

    def changed(data: bytes, at: list[int]) -> tuple[bytes, bytes]:
        other = bytearray(data)
        for position in at:
            if position < len(other):
                other[position] ^= 0xFF
        return data, bytes(other)

    return st.builds(changed, st.binary(min_size=0, max_size=600), positions)


def chunks(data: npt.NDArray[np.uint8]) -> Callable[[int, int], npt.NDArray[np.uint8]]:
    return lambda begin, end: data[begin:end]


@given(pairs(), st.sampled_from([1, 7, 64, 100, 1 << 20]))
def test_differing_ranges_equal_their_definition(pair: tuple[bytes, bytes], block: int) -> None:
    a, b = (np.frombuffer(each, np.uint8) for each in pair)
    found = DifferingBytes.between(chunks(a), chunks(b), a.size, block)

    ranges = (found.begins.tolist(), found.ends.tolist(), found.counts.tolist())

    assert compare_bytes(*pair) == list(zip(*ranges, strict=True))
    assert blake2b(pair[0], digest_size=16).digest() == found.digest_a
    assert blake2b(pair[1], digest_size=16).digest() == found.digest_b


def test_ranges_are_one_with_less_than_the_joined_bytes_between_them() -> None:
    data = bytes(JOINED + 1)
    near = b"x" + data[: JOINED - 1] + b"x"
    far = b"x" + data[:JOINED] + b"x"

    assert [(0, JOINED + 1, 2)] == compare_bytes(bytes(len(near)), near)
    assert [(0, 1, 1), (JOINED + 1, JOINED + 2, 1)] == compare_bytes(bytes(len(far)), far)


def test_a_range_touches_what_has_a_byte_in_common_with_it() -> None:
    a, b = np.zeros(300, np.uint8), np.zeros(300, np.uint8)
    b[[100, 199]] = 1
    found = DifferingBytes.between(chunks(a), chunks(b), a.size)
    starts, stops = np.array([0, 90, 101, 150, 199, 200]), np.array([100, 101, 150, 200, 200, 300])

    assert [False, True, False, True, True, False] == found.touches(starts, stops).tolist()
