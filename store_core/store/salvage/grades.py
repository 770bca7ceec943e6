# SPDX-License-Identifier: Apache-2.0
"""What speaks for a record that was salvaged."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.checksums import body_crcs
from store_core.format.columnar.spans import gather
from store_core.format.properties import PROPERTY_CRC
from store_core.format.property_string import CRC_RESERVED

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.format.columnar.records import Records

__all__ = ["FoundBy", "PropertyCrc", "property_crcs"]

_NAME: Final = np.frombuffer(f"{PROPERTY_CRC}\x01".encode(), np.uint8)
_POWERS: Final = 10 ** np.arange(CRC_RESERVED - _NAME.size - 1, dtype=np.int64)
"""What each digit is worth: the least significant comes first."""


class FoundBy(Enum):
    """How a record was found; in both cases its magic code, place, lengths and body's checksum are right.

    Attributes
    ----------
    CHAIN
        By following lengths from the first byte of its segment, without damage before it.
    AFTER_DAMAGE
        Behind damage: where the broken record claims to end, or by searching.
    """

    CHAIN = "chain"
    AFTER_DAMAGE = "after_damage"


class PropertyCrc(Enum):
    """What the checksum over the whole record says, which RocketMQ 5.x can put into a property."""

    NONE = "none"
    MATCH = "match"
    MISMATCH = "mismatch"


def property_crcs(records: Records) -> list[PropertyCrc]:
    """Return for each sound record what its checksum over the whole record says."""
    stops = records.spans.stops
    has_room = stops - records.spans.properties_start >= CRC_RESERVED
    rows = np.flatnonzero(has_room)
    tails = _tails(records, rows)
    has_crc = (tails[:, : _NAME.size] == _NAME).all(axis=1)
    rows, tails = rows[has_crc], tails[has_crc]
    digits = tails[:, _NAME.size : -1].astype(np.int64) - ord("0")
    stored = (digits * _POWERS).sum(axis=1)
    actual = body_crcs(records.raw, records.starts[rows], stops[rows] - CRC_RESERVED)
    found = [PropertyCrc.NONE] * len(records)
    for row, is_right in zip(rows.tolist(), (stored == actual).tolist(), strict=True):
        found[row] = PropertyCrc.MATCH if is_right else PropertyCrc.MISMATCH
    return found


def _tails(records: Records, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the last bytes of some records, shape (n, CRC_RESERVED)."""
    items = gather(records.raw, records.spans.stops[rows] - CRC_RESERVED, np.dtype(f"V{CRC_RESERVED}"))
    return items.view(np.uint8).reshape(rows.size, CRC_RESERVED)
