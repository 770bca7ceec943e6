# SPDX-License-Identifier: Apache-2.0
"""How two logs are compared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["DiffBy", "DiffOptions"]


class DiffBy(Enum):
    """What is compared.

    Attributes
    ----------
    AUTO
        Bytes, unless a segment file of one log begins inside one of the other: their files then have different sizes.
    BYTES
        The bytes at each physical offset, as replicas have them.
    RECORDS
        The records, wherever in the log they are.
    """

    AUTO = "auto"
    BYTES = "bytes"
    RECORDS = "records"


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """How two logs are compared.

    Attributes
    ----------
    by : DiffBy
    most_rows : int
        Differing ranges, and differing records of each log, that are listed for each part of the log and in the report;
        all are counted.
    same_extent : bool
        Whether it is a finding, too, that one log begins or ends elsewhere than the other.
    """

    by: DiffBy = DiffBy.AUTO
    most_rows: int = 1000
    same_extent: bool = False
