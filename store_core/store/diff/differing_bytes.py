# SPDX-License-Identifier: Apache-2.0
"""Where two arrays of bytes differ.

`compare_bytes` is the definition; `DifferingBytes.between` returns the same for large arrays, in bounded memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["JOINED", "DifferingBytes", "compare_bytes"]

JOINED: Final = 64
"""Ranges with fewer equal bytes than this between them are one: damaged bytes can be right by chance."""

_BLOCK: Final = 1 << 20
_DIGEST_SIZE: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class DifferingBytes:
    """The ranges in which two arrays differ.

    Attributes
    ----------
    begins, ends, counts : numpy.ndarray
        int64, shape (n,), ascending: positions, and how many bytes differ in each range. The first and the last byte
        of a range differ, and `JOINED` or more equal bytes are between two ranges.
    digest_a, digest_b : bytes
        BLAKE2b of the two arrays, 16 bytes.
    """

    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    digest_a: bytes
    digest_b: bytes

    @classmethod
    def between(cls, a: npt.NDArray[np.uint8], b: npt.NDArray[np.uint8], block: int = _BLOCK) -> DifferingBytes:
        """Compare two arrays of equal size, some bytes at a time."""
        digest = blake2b(digest_size=_DIGEST_SIZE)
        other: blake2b | None = None
        found: list[npt.NDArray[np.int64]] = []
        for begin in range(0, a.size, block):
            piece_a, piece_b = a[begin : begin + block], b[begin : begin + block]
            if other is None and not np.array_equal(piece_a, piece_b):
                other = digest.copy()
            digest.update(piece_a.data)
            if other is not None:
                other.update(piece_b.data)
                found.append(_ranges(begin + np.flatnonzero(piece_a != piece_b)))
        ranges = _joined(np.concatenate([np.empty((3, 0), np.int64), *found], axis=1))
        return cls(ranges[0], ranges[1], ranges[2], digest.digest(), (other or digest).digest())

    def __len__(self) -> int:
        """Return the number of ranges."""
        return int(self.begins.size)

    def touches(self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each of some ranges whether a differing range has a byte in common with it."""
        touched: npt.NDArray[np.bool_] = np.searchsorted(self.ends, starts, "right") < np.searchsorted(
            self.begins, stops, "left"
        )
        return touched

    def before(self, position: int) -> int:
        """Return how many ranges begin before a position."""
        return int(np.searchsorted(self.begins, position))


def compare_bytes(a: bytes, b: bytes) -> list[tuple[int, int, int]]:
    """Return begin, end and number of differing bytes of each range in which two strings of equal size differ.

    Examples
    --------
    >>> compare_bytes(b"abcdef" + bytes(100) + b"x", b"aBcDef" + bytes(100) + b"y")
    [(1, 4, 2), (106, 107, 1)]
    """
    ranges: list[tuple[int, int, int]] = []
    for at in (at for at, (left, right) in enumerate(zip(a, b, strict=True)) if left != right):
        if ranges and at - ranges[-1][1] < JOINED:
            ranges[-1] = (ranges[-1][0], at + 1, ranges[-1][2] + 1)
        else:
            ranges.append((at, at + 1, 1))
    return ranges


def _ranges(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return ranges of ascending positions, shape (3, n): begins, ends and counts."""
    if not positions.size:
        return np.empty((3, 0), np.int64)
    firsts = np.flatnonzero(np.diff(positions, prepend=positions[0] - JOINED - 1) > JOINED)
    lasts = np.append(firsts[1:], positions.size)
    return np.stack([positions[firsts], positions[lasts - 1] + 1, lasts - firsts])


def _joined(ranges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Join the last range of a block with the first of the next one if they are close."""
    begins, ends, counts = ranges
    if begins.size < 2:  # noqa: PLR2004 -- nothing to join
        return ranges
    firsts = np.flatnonzero(np.append(True, begins[1:] - ends[:-1] >= JOINED))
    lasts = np.append(firsts[1:], begins.size) - 1
    return np.stack([begins[firsts], ends[lasts], np.add.reduceat(counts, firsts)])
