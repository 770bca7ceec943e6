# SPDX-License-Identifier: Apache-2.0
"""The words of a salvage: what a range of a log is, how sure a record is, and what becomes of the records.

Help needs them, and nothing of what reads a log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Self

from store_core.errors import InvalidOptionError


class SalvageFormat(Enum):
    """What the records become: a store with a new log, or Parquet files with a row per message."""

    STORE = "store"
    PARQUET = "parquet"

    @classmethod
    def of(cls, kind: str) -> Self:
        """Return the format of a name.

        Raises `InvalidOptionError`: If there is none.
        """
        try:
            return cls(kind)
        except ValueError as error:
            names = " or ".join(repr(each.value) for each in cls)
            raise InvalidOptionError(f"kind: expected {names}, found {kind!r}") from error


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


@dataclass(slots=True)
class Tiles:
    """Ranges in ascending order, each of which begins where the one before ends."""

    found: list[Tile] = field(default_factory=list)

    def add(self, tile: Tile) -> None:
        """Add a range; records that follow records become one range with them, and an empty range is left out."""
        if tile.begin >= tile.end:
            return
        last = self.found[-1] if self.found else None
        if last is not None and last.kind is tile.kind is TileKind.RECORDS and last.end == tile.begin:
            self.found[-1] = last._replace(end=tile.end, records=last.records + tile.records)
        else:
            self.found.append(tile)


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
