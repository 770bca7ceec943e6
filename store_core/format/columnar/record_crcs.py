# SPDX-License-Identifier: Apache-2.0
"""Checksums over whole records, which RocketMQ 5.2 and later can put into a property, ``__CRC32#``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.format.columnar.checksums import body_crcs
from store_core.format.columnar.spans import gather
from store_core.format.properties import PROPERTY_CRC
from store_core.format.property_string import CRC_RESERVED

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["RecordCrcs", "record_crcs", "rows_with_crc"]

_NAME: Final = np.frombuffer(f"{PROPERTY_CRC}\x01".encode(), np.uint8)
_POWERS: Final = 10 ** np.arange(CRC_RESERVED - _NAME.size - 1, dtype=np.int64)
"""What each digit is worth: the least significant comes first."""

_LARGEST_DIGIT: Final = 9
_END: Final = 2


class RecordCrcs(NamedTuple):
    """The records that have such a checksum, and what it says.

    Attributes
    ----------
    rows : numpy.ndarray
        int64, shape (k,), ascending.
    is_right : numpy.ndarray
        bool, shape (k,).
    """

    rows: npt.NDArray[np.int64]
    is_right: npt.NDArray[np.bool_]


def record_crcs(raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> RecordCrcs:
    """Check records against their checksums, as far as they have any.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,), contiguous.
    starts, stops : numpy.ndarray
        int64, shape (n,): records ``raw[starts[i]:stops[i]]`` whose last property has room for a checksum.
    """
    rows, tails = _tails(raw, stops)
    digits = tails[:, _NAME.size : -1].astype(np.int64) - ord("0")
    is_whole = ((digits >= 0) & (digits <= _LARGEST_DIGIT)).all(axis=1) & (tails[:, -1] == _END)
    actual = body_crcs(raw, starts[rows], stops[rows] - CRC_RESERVED)
    return RecordCrcs(rows, is_whole & ((digits * _POWERS).sum(axis=1) == actual))


def rows_with_crc(raw: npt.NDArray[np.uint8], stops: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return which records, that end at some positions, have such a checksum; of each only the end is read."""
    return _tails(raw, stops)[0]


def _tails(
    raw: npt.NDArray[np.uint8], stops: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the rows with a checksum, and their last bytes, shape (k, `CRC_RESERVED`)."""
    begins = stops - CRC_RESERVED
    likely = np.flatnonzero(raw.take(begins) == _NAME[0])  # one byte of each record: most logs have no such checksums
    if not likely.size:
        return likely, np.empty((0, CRC_RESERVED), np.uint8)
    items = gather(raw, begins[likely], np.dtype(f"V{CRC_RESERVED}"))
    tails = items.view(np.uint8).reshape(likely.size, CRC_RESERVED)
    is_named = (tails[:, : _NAME.size] == _NAME).all(axis=1)
    return likely[is_named], tails[is_named]
