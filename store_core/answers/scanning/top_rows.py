# SPDX-License-Identifier: Apache-2.0
"""The largest groups of a table as rows of a report, and one row for all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.answers.scanning.group_table import GroupTable

__all__ = ["OTHERS_DOC", "TOP", "top_rows", "uncertain_note"]

TOP: Final = 50
"""Rows of a table by default."""

OTHERS_DOC: Final = "null; in the last row, how many more groups it has the totals of (at least, if some were left out)"
"""Meaning of the column `others` in a report."""


def top_rows(groups: GroupTable, most: int, totals: Sequence[str]) -> list[dict[str, Any]]:
    """Return the largest groups, and a row with the totals of all others, if there are any.

    Parameters
    ----------
    most : int
        Groups that have a row of their own.
    totals : sequence of str
        Columns that are summed for the others.
    """
    table = groups.table()
    rows: list[dict[str, Any]] = table.slice(0, most).to_pylist()
    rest = table.slice(most)
    if not rest.num_rows and not groups.left_out:
        return rows
    summed = {name: (pc.sum(rest[name]).as_py() or 0) + groups.left_out.get(name, 0) for name in totals}
    return [*rows, {**summed, "others": rest.num_rows}]


def uncertain_note(groups: GroupTable, what: str) -> tuple[str, ...]:
    """Return what an operator should know of groups that were left out, in words; nothing if there are none.

    Parameters
    ----------
    groups : GroupTable
        Its first total is in bytes.
    what : str
        What the groups are, in the plural.
    """
    if not groups.left_out:
        return ()
    said = f"each that is listed may have up to {groups.uncertain:,} bytes more than it says"
    return (f"there are more {what} than are counted one by one: the smallest are among the others, and {said}",)
