# SPDX-License-Identifier: Apache-2.0
"""What an export needs of a table that keeps its own history, such as those of Delta and Iceberg."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from store_core.errors import InvalidOptionError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from store_core.store.export.lake_files import SegmentTotals
    from store_core.store.parts import Engine


LakeFormat: TypeAlias = Literal["parquet", "iceberg", "delta"]
LAKE_FORMATS: Final[tuple[LakeFormat, ...]] = ("parquet", "iceberg", "delta")
"""What exports can be; the last two are tables, which a session of Spark writes."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a commit: a staged file, and the columns that it lacks.

    * `topic`, `day`: The day in UTC, as ``2023-11-14``.
    """

    path: Path  # A Parquet file with the columns `store_core.store.export.lake_files.LAKE_SCHEMA`
    topic: str
    day: str


@dataclass(frozen=True, slots=True)
class TableCommit:
    """An export as a table gets it.

    * `begin`, `end`: Physical offsets of its messages.
    """

    ledger: str  # names the ledger: SHA-256 of its first entry
    number: int  # of the export in that ledger
    begin: int
    end: int
    rows: tuple[TableRows, ...]


class LakeTable(Protocol):
    """A table whose appends are atomic, and which tells whether it has one already."""

    @property
    def name(self) -> str:
        """Format and name, as the ledger has them."""

    def open(self, *, is_new: bool) -> None:
        """Make the table if it is not there.

        * `is_new`: Whether nothing was exported to it yet.

        Raises `StoreError`: If the session can't write such tables, or a new one has rows.
        """

    def append(self, commit: TableCommit) -> None:
        """Append the rows of a commit at once, unless the table has it already."""

    def totals(self, starts: Sequence[int]) -> Iterable[SegmentTotals]:
        """Return the totals of all rows by segment, of which the starts are given; before the first one is -1."""


def check_table(kind: LakeFormat, table: str | None) -> None:
    """Refuse a table's name where a format has none, and none where it needs one."""
    if (table is not None) != (kind == "iceberg"):
        expected = "Iceberg needs CATALOG.NAMESPACE.TABLE, and no other format has a name"
        raise InvalidOptionError(f"table: {expected}, found {table!r} with format {kind}")


def table_of(engine: Engine, kind: LakeFormat, into: str | os.PathLike[str], table: str | None) -> LakeTable | None:
    """Return the table that exports of a format go to; None for Parquet, which has no table.

    Engines whose session writes tables have a method `lake_table`, of the same arguments.
    """
    if kind == "parquet":
        return None
    make = getattr(engine, "lake_table", None)
    if make is None:
        raise InvalidOptionError(f"kind: a table of {kind} is written by Spark: give --spark, or ask in a session")
    found: LakeTable = make(kind, into, table)
    return found
