# SPDX-License-Identifier: Apache-2.0
"""Pieces of a buffer read as words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar.arrow_slices import WORD_SIZE, kept_bytes, piece_words, rows_with_byte

pieces = st.lists(
    st.binary(max_size=30) | st.sampled_from([b"\x1f", b"\x21\x20", b"\xa0", b"\0 \0", b" " * 9]), max_size=12
)


def placed(rows: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Put the pieces after a word of other bytes; return the buffer, their ends and their lengths."""
    data = b"\xff" * WORD_SIZE + b"".join(rows)
    lengths = np.array([len(row) for row in rows], np.int64)
    return np.frombuffer(data, np.uint8), WORD_SIZE + np.cumsum(lengths), lengths


@given(pieces)
def test_words_hold_the_pieces_and_zeros_before_them(rows: list[bytes]) -> None:
    found = [b""] * len(rows)
    for passed, chosen, words in piece_words(*placed(rows)):
        for row, word in zip(np.arange(len(rows))[chosen].tolist(), words.tolist(), strict=True):
            assert passed == len(found[row])
            found[row] = word.to_bytes(WORD_SIZE, "little") + found[row]

    assert [row.rjust(-(-len(row) // WORD_SIZE) * WORD_SIZE, b"\0") for row in rows] == found


alike = st.integers(1, 70).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=12))


@given(pieces | alike, st.sampled_from([0x20, 1, 0x80, 0xFF, 0x21]))
def test_rows_with_a_byte_are_those_that_hold_it(rows: list[bytes], byte: int) -> None:
    expected = [number for number, row in enumerate(rows) if byte in row]

    assert expected == rows_with_byte(*placed(rows), byte).tolist()


@pytest.mark.parametrize("left", range(WORD_SIZE + 1))
def test_the_last_bytes_of_a_word_are_kept(left: int) -> None:
    kept = int(kept_bytes(left)).to_bytes(WORD_SIZE, "little")

    assert b"\0" * (WORD_SIZE - left) + b"\xff" * left == kept
