# SPDX-License-Identifier: Apache-2.0
"""When a look-up is worth it, in bytes of the log that a scan reads in the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_COSTS", "LookUpCosts"]


@dataclass(frozen=True, slots=True)
class LookUpCosts:
    """Limits within which look-ups are used. Tests set them so that every plan is made.

    Attributes
    ----------
    least_log : int
        Bytes of the log below which it is scanned: that takes a fraction of a second.
    per_file : int
        Cost of opening a file and finding its last unit.
    per_database : int
        Cost of opening a RocksDB, which takes a process of its own.
    per_stored_unit : int
        Cost of a unit in a RocksDB.
    per_record : int
        Cost of a record that is picked out of the log; a page is read for it.
    per_request : int
        Cost of a request to a storage that is not this machine's.
    most_share : float
        Largest cost of a look-up as a share of the scan's bytes.
    """

    least_log: int = 64 << 20
    per_file: int = 64 << 10
    per_database: int = 128 << 20
    per_stored_unit: int = 8 << 10
    per_record: int = 1 << 10
    per_request: int = 256 << 10
    most_share: float = 0.5


DEFAULT_COSTS: Final = LookUpCosts()
