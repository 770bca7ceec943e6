# SPDX-License-Identifier: Apache-2.0
"""Java's ``String.hashCode`` for many strings at once; `store_core.format.java` is the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.format.columnar.arrow_slices import as_text, binary_parts, take_slices
from store_core.format.columnar.spans import gather
from store_core.format.java import hash_code
from store_core.format.properties import decode_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa


_WORD: Final = 1 << 32
_SIZE: Final = 8
_KEPT: Final = np.array([(1 << 64) - (1 << 8 * (_SIZE - left)) for left in range(_SIZE + 1)], np.uint64)
"""Masks, by the number of bytes left in a piece, that keep the piece's part of eight bytes that end there."""

_BASE: Final = 31
_BASE_1, _BASE_2, _BASE_4 = (np.uint64(_BASE**count) for count in (1, 2, 4))
_BYTES: Final = np.uint64(0x00FF00FF00FF00FF)
_HALVES: Final = np.uint64(0x0000FFFF0000FFFF)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_LONGEST_ALIKE: Final = 64
"""Pieces of equal length up to this are read whole; longer ones word by word, to stay in cache."""

_CONTINUATION_MASK, _CONTINUATION, _FOUR_BYTES = 0xC0, 0x80, 0xF0


def hash_codes(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    """Hash many strings at once; null counts as empty, with hash 0.

    Returns: int32, shape (n,), equal to `hash_code` of each string.
    """
    offsets, content = _slices(texts.fill_null("") if texts.null_count else texts)
    return hash_slices(content, offsets[:-1], offsets[1:])


def hash_slices(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    before: npt.NDArray[np.int32] | None = None,
) -> npt.NDArray[np.int32]:
    """Hash many pieces of a buffer, each UTF-8; malformed bytes count as the U+FFFD that Java makes of them.

    * `data`: uint8, shape (m,), contiguous.
    * `starts`, `stops`: int64, shape (n,): the pieces ``data[starts[i]:stops[i]]``, ascending and, except for empty
      ones, without overlap.
    * `before`: int32, shape (n,): hash of a string that precedes each piece.

    Returns: int32, shape (n,), equal to `hash_code` of each piece, after its preceding string if given.

    Eight characters at a time, from the end: bytes before a piece are masked to zeros, which do not change the hash of
    a string after them. A 64-bit word folds to the hash of its characters in three multiplications, of neighbours,
    pairs and fours.
    """
    found = hashed_slices(data, starts, stops)
    return found.hashes if before is None else found.after(before)


class SliceHashes(NamedTuple):
    """Hashes of many pieces, from which follow those of longer strings that end with them; shape (n,)."""

    hashes: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]  # characters, as Java counts them

    def take(self, rows: npt.NDArray[np.int64]) -> SliceHashes:
        """Return those of some pieces."""
        return SliceHashes(self.hashes.take(rows), self.lengths.take(rows))

    def after(self, before: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the hashes of the pieces after strings with these hashes."""
        raised = before.view(np.uint32) * _powers(int(self.lengths.max(initial=0))).take(self.lengths)
        raised += self.hashes.view(np.uint32)
        return raised.view(np.int32)


def hashed_slices(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> SliceHashes:
    """Hash many pieces, for strings that end with them; parameters as of `hash_slices`."""
    lengths = stops - starts
    words = -(-lengths // _SIZE)
    if lengths.size and int((stops - words * _SIZE).min()) < 0:
        data = np.concatenate([np.zeros(_SIZE, np.uint8), data])
        starts, stops = starts + _SIZE, stops + _SIZE
    hashes, wide = _fold_words(data, stops, lengths)
    if wide.size:
        hashes[wide], lengths[wide] = _wide_hashes(data, starts[wide], stops[wide])
    return SliceHashes(hashes.view(np.int32), lengths)


def positive_hashes(hash_codes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return `positive_hash` of each hash."""
    hashes = np.abs(hash_codes)
    return np.maximum(hashes, 0, out=hashes)


def _piece_words(
    data: npt.NDArray[np.uint8], stops: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Iterator[tuple[int, npt.NDArray[np.int64] | slice, npt.NDArray[np.uint64]]]:
    """Yield eight bytes of each piece, the first one lowest: the last ones of all pieces first.

    Yields: How many bytes follow them, the rows that reach so far, and their words; bytes before a piece are zeros.
    """
    for passed in range(0, int(lengths.max(initial=0)), _SIZE):
        left = lengths - passed
        rows: npt.NDArray[np.int64] | slice = slice(None)
        if int(left.min()) <= 0:
            rows = np.flatnonzero(left > 0)
            left = left[rows]
        words = gather(data, np.maximum(stops[rows] - passed - _SIZE, 0), np.dtype(f"V{_SIZE}")).view("<u8")
        if int(left.min()) < _SIZE:
            words &= _KEPT.take(left, mode="clip")
        yield passed, rows, words


def _fold_words(
    data: npt.NDArray[np.uint8], stops: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Hash pieces as if each byte were a character; also return the rows where that is wrong."""
    size = int(lengths[0]) if lengths.size else 0
    if 0 < size <= _LONGEST_ALIKE and (lengths == size).all():
        return _fold_alike(data, stops, size)
    hashes, high = np.zeros(lengths.size, np.uint32), np.zeros(lengths.size, np.uint64)
    for passed, rows, words in _piece_words(data, stops, lengths):
        high[rows] |= words
        hashes[rows] += _fold(words) * np.uint32(pow(_BASE, passed, _WORD))
    return hashes, np.flatnonzero(high & _HIGH_BITS)


def _fold_alike(
    data: npt.NDArray[np.uint8], stops: npt.NDArray[np.int64], size: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Do the same for pieces of equal length, all words of a piece at once."""
    count = -(-size // _SIZE)
    words = gather(data, stops - count * _SIZE, np.dtype(f"V{count * _SIZE}")).view("<u8").reshape(-1, count)
    words[:, 0] &= _KEPT[size - (count - 1) * _SIZE]
    folded = _fold(words)
    hashes = folded[:, 0].copy()
    for number in range(1, count):
        hashes *= np.uint32(pow(_BASE, _SIZE, _WORD))
        hashes += folded[:, number]
    high = words & _HIGH_BITS
    return hashes, np.flatnonzero(high.any(axis=1)) if high.any() else np.empty(0, np.int64)


def _fold(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Hash the eight characters of each word, the first in its lowest byte."""
    pairs = words & _BYTES
    pairs *= _BASE_1
    pairs += (words >> np.uint64(8)) & _BYTES
    fours = pairs & _HALVES
    fours *= _BASE_2
    pairs >>= np.uint64(16)
    pairs &= _HALVES
    fours += pairs
    pairs = fours >> np.uint64(32)
    fours *= _BASE_4
    fours += pairs
    return fours.astype(np.uint32)


def _wide_hashes(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Hash pieces that are not ASCII; also return their lengths in UTF-16 units."""
    pieces = take_slices(data, starts, stops)
    offsets, content, _ = binary_parts(pieces)
    content = content[: offsets[-1]]
    if as_text(pieces) is None:
        texts = [decode_text(piece) for piece in pieces.to_pylist()]
        hashes = np.array([hash_code(text) for text in texts], np.int32).view(np.uint32)
        return hashes, np.array([len(text.encode("utf-16-le")) >> 1 for text in texts], np.int64)
    units = np.frombuffer(content.tobytes().decode().encode("utf-16-le"), "<u2")
    counts = ((content & _CONTINUATION_MASK) != _CONTINUATION).astype(np.int64) + (content >= _FOUR_BYTES)
    bounds = np.zeros(content.size + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    bounds = bounds[offsets]
    lengths = np.diff(bounds)
    behind = np.repeat(bounds[1:], lengths) - 1 - np.arange(units.size)
    terms = units * _powers(int(lengths.max())).take(behind)
    return np.add.reduceat(terms, bounds[:-1], dtype=np.uint32), lengths


def _powers(most: int) -> npt.NDArray[np.uint32]:
    """Return the powers of 31 with exponents 0 to `most`, in 32 bits."""
    powers = np.full(most + 1, _BASE, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)


def _slices(texts: pa.StringArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the offsets, starting at 0, and the bytes of a string array without nulls."""
    _, offset_buffer, data = texts.buffers()
    if offset_buffer is None or not len(texts):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return offsets - offsets[0], content[offsets[0] : offsets[-1]]
