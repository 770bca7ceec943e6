# SPDX-License-Identifier: Apache-2.0
"""The words of a salvage: what a range of a log is, how sure a record is, and what becomes of the records.

Help needs them, and nothing of what reads a log.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class SalvageFormat(Enum):
    """What the records become: a store with a new log, or Parquet files with a row per message."""

    STORE = "store"
    PARQUET = "parquet"


class TileKind(Enum):
    """What a range of a log is."""

    RECORDS = "records"
    LOST = "lost"
    MISSING = "missing"
    FILLER = "filler"
    UNWRITTEN = "unwritten"
    IN_PROGRESS = "in progress"
    STALE = "stale"


class Tile(NamedTuple):
    """A range of one kind.

    * `begin`, `end`: Physical offsets.
    """

    begin: int
    end: int
    kind: TileKind
    records: int = 0
    reason: str = ""  # of what is lost, why there is no record at `begin`; else empty


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
