# SPDX-License-Identifier: Apache-2.0
"""What speaks for a record that was salvaged."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from store_core.format.columnar.checksums import record_crcs
from store_core.format.properties import CRC_RESERVED

if TYPE_CHECKING:
    from store_core.format.columnar.records import Records

__all__ = ["FoundBy", "PropertyCrc", "property_crcs"]


class FoundBy(Enum):
    """How a record was found; in both cases its magic code, place, lengths and body's checksum are right.

    * `CHAIN`: By following lengths from the first byte of its segment, without damage before it.
    * `AFTER_DAMAGE`: Behind damage: where the broken record claims to end, or by searching.
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
    with_room = np.flatnonzero(stops - records.spans.properties_start >= CRC_RESERVED)
    found = [PropertyCrc.NONE] * len(records)
    checked = record_crcs(records.raw, records.starts[with_room], stops[with_room])
    for row, is_right in zip(with_room[checked.rows].tolist(), checked.is_right.tolist(), strict=True):
        found[row] = PropertyCrc.MATCH if is_right else PropertyCrc.MISMATCH
    return found
