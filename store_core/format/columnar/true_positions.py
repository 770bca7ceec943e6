# SPDX-License-Identifier: Apache-2.0
"""Where a long mask is true, if it is true in few places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["true_positions"]

_BITS: Final = 8
_BYTES: Final = np.arange(1 << _BITS, dtype=np.uint8)
_COUNTS: Final = np.bitwise_count(_BYTES).astype(np.int64)
"""How many bits each byte has."""

_LOWEST: Final = np.bitwise_count((_BYTES & -_BYTES) - np.uint8(1)).astype(np.int64)
"""The number of each byte's lowest bit."""


def true_positions(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return ``numpy.flatnonzero(mask)``.

    Parameters
    ----------
    mask : numpy.ndarray
        bool, shape (n,).

    Notes
    -----
    numpy looks at the mask item by item, and where one in twenty is true, as among separators, it guesses wrong at each
    of them. Packed into bits, an eighth of the items remains; the first bits of all bytes are found together, then the
    second ones. That took 0.4 of the time there, and takes longer from one in four on.
    """
    packed = np.packbits(mask, bitorder="little")
    at = np.flatnonzero(packed != 0)
    bits = packed.take(at)
    ends = np.cumsum(_COUNTS.take(bits))
    positions = np.empty(ends[-1] if ends.size else 0, np.int64)
    places = ends - _COUNTS.take(bits)
    at *= _BITS
    while at.size:
        positions[places] = at + _LOWEST.take(bits)
        bits &= bits - np.uint8(1)
        more = np.flatnonzero(bits != 0)
        at, bits, places = at[more], bits[more], places[more] + 1
    return positions
