# SPDX-License-Identifier: Apache-2.0
"""What salvaged records become."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from store_core.errors import InvalidOptionError

if TYPE_CHECKING:
    from typing import Self

__all__ = ["SalvageFormat"]


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
