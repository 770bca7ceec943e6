# SPDX-License-Identifier: Apache-2.0
"""Pieces of a buffer as 64-bit words from their ends, for loops over eight bytes of all pieces at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.spans import gather

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

__all__ = ["WORD_SIZE", "kept_bytes", "piece_words", "rows_with_byte", "words_before"]

WORD_SIZE: Final = 8
_WORD: Final = np.dtype(f"V{WORD_SIZE}")
_ONES: Final = np.uint64(0x0101010101010101)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_KEPT: Final = np.array([(1 << 64) - (1 << 8 * (WORD_SIZE - left)) for left in range(WORD_SIZE + 1)], np.uint64)
"""Masks, by the number of bytes left in a piece, that keep the piece's part of a word ending there."""


def kept_bytes(left: int) -> np.uint64:
    """Return the mask that keeps the last bytes of a word, 0 to 8 of them."""
    mask: np.uint64 = _KEPT[left]
    return mask


def words_before(
    data: npt.NDArray[np.uint8], stops: npt.NDArray[np.int64], left: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Read the eight bytes before each stop, the first one lowest.

    Parameters
    ----------
    data : numpy.ndarray
        uint8, shape (m,), contiguous.
    stops : numpy.ndarray
        int64, shape (n,).
    left : numpy.ndarray
        int64, shape (n,): how many of the bytes belong to the piece; the others are read as zeros.
    """
    words: npt.NDArray[np.uint64] = gather(data, np.maximum(stops - WORD_SIZE, 0), _WORD).view("<u8")
    if left.size and int(left.min()) < WORD_SIZE:
        words &= _KEPT.take(left, mode="clip")
    return words


def piece_words(
    data: npt.NDArray[np.uint8], stops: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Iterator[tuple[int, npt.NDArray[np.int64] | slice, npt.NDArray[np.uint64]]]:
    """Yield the words of many pieces, last words first; the first words are padded with leading zeros.

    Parameters
    ----------
    data : numpy.ndarray
        uint8, shape (m,), contiguous.
    stops, lengths : numpy.ndarray
        int64, shape (n,): ends and lengths of the pieces. The word that a piece begins in must be inside `data`.

    Yields
    ------
    tuple of int, numpy.ndarray or slice, numpy.ndarray
        How many bytes follow the word, the rows that reach so far, and their words, uint64, which may be written to.
    """
    for passed in range(0, int(lengths.max(initial=0)), WORD_SIZE):
        left = lengths - passed
        rows: npt.NDArray[np.int64] | slice = slice(None)
        if int(left.min()) <= 0:
            rows = np.flatnonzero(left > 0)
            left = left[rows]
        yield passed, rows, words_before(data, stops[rows] - passed, left)


def rows_with_byte(
    data: npt.NDArray[np.uint8], stops: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], byte: int
) -> npt.NDArray[np.int64]:
    """Return the rows of pieces that contain a byte, which must not be 0; parameters as in `piece_words`.

    A word xor eight copies of the byte is zero where they are equal; subtracting 1 from each byte then borrows there.
    """
    found = np.zeros(lengths.size, np.uint64)
    for _, rows, words in piece_words(data, stops, lengths):
        words ^= _ONES * np.uint64(byte)  # noqa: PLW2901 -- the words may be overwritten
        borrowed = words - _ONES
        borrowed &= ~words
        found[rows] |= borrowed
    return np.flatnonzero(found & _HIGH_BITS)
