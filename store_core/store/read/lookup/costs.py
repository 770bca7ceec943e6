# SPDX-License-Identifier: Apache-2.0
"""When a look-up is worth its proof; a scan gives the same rows."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

__all__ = ["LookUpCosts"]


@dataclass(frozen=True, slots=True)
class LookUpCosts:
    """Limits within which look-ups are used. Tests set them so that every plan is made.

    Attributes
    ----------
    least_log : int
        Bytes of the log below which it is scanned: that takes a fraction of a second.
    per_file : int
        Bytes of the log that can be scanned in the time that opening a queue's file and checking its edges takes.
    per_database : int
        The same for opening a RocksDB, which takes a process of its own.
    per_stored_unit : int
        The same for a unit in a RocksDB.
    per_record : int
        The same for a record that is picked out of the log; a page is read for it.
    per_request : int
        The same for a request to a storage that is not this machine's.
    most_share : float
        Largest cost of a look-up as a share of the scan's bytes.
    most_gap : int
        Bytes of one segment that units may not account for: planning reads their records.
    most_units : int
        Units of one segment that are held in memory to sort them, 32 bytes each.
    """

    least_log: int = 64 << 20
    per_file: int = 64 << 10
    per_database: int = 128 << 20
    per_stored_unit: int = 8 << 10
    per_record: int = 1 << 10
    per_request: int = 256 << 10
    most_share: float = 0.5
    most_gap: int = 64 << 20
    most_units: int = 32 << 20

    @property
    def values(self) -> tuple[int | float, ...]:
        """All of them, in order."""
        return astuple(self)


DEFAULT_COSTS: Final = LookUpCosts()
