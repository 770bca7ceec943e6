# SPDX-License-Identifier: Apache-2.0
"""Checksums of many bodies."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.message import CRC_MASK
from store_core.format.spans import gather

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["body_crcs"]

_LONGEST_ALIKE: Final = 1 << 10
"""Bodies of more bytes cost so much to check that how they are cut out no longer matters."""

_FEWEST_ALIKE: Final = 64
_TOGETHER_BYTES: Final = 128 << 10
"""Bytes cut out at a time: the objects of one round take the memory of the last."""


def body_crcs(
    raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Give `store_core.format.message.body_crc` of many pieces, shape (n,); of no bytes it is 0.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,), contiguous.
    starts, stops : numpy.ndarray
        int64, shape (n,): the pieces ``raw[starts[i]:stops[i]]``.

    Notes
    -----
    The checksum itself is a call a piece. Cutting a piece out of a buffer costs as much again, but for pieces of one
    length, which one call turns into a list.
    """
    crcs = np.zeros(starts.size, np.int64)
    lengths = stops - starts
    counts = np.bincount(np.minimum(lengths, _LONGEST_ALIKE + 1), minlength=_LONGEST_ALIKE + 2)
    alike = np.flatnonzero(counts[: _LONGEST_ALIKE + 1] >= _FEWEST_ALIKE)
    for size in alike[alike > 0].tolist():
        rows = np.flatnonzero(lengths == size)
        crcs[rows] = _crcs_alike(raw, starts[rows], size)
    rest = np.flatnonzero((lengths > _LONGEST_ALIKE) | ~np.isin(lengths, alike))
    pieces = map(raw.data.__getitem__, map(slice, starts[rest].tolist(), stops[rest].tolist()))
    crcs[rest] = np.fromiter(map(zlib.crc32, pieces), np.int64, rest.size)
    return crcs & CRC_MASK


def _crcs_alike(raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    crcs = np.empty(starts.size, np.int64)
    together, kind = _TOGETHER_BYTES // size, np.dtype(f"V{size}")
    for first in range(0, starts.size, together):
        pieces: list[bytes] = gather(raw, starts[first : first + together], kind).tolist()
        crcs[first : first + together] = list(map(zlib.crc32, pieces))
    return crcs
