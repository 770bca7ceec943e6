# SPDX-License-Identifier: Apache-2.0
"""Ranges that together are the whole log: records, what was lost, and what never held a record."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

__all__ = ["Tile", "TileKind", "Tiles"]


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
