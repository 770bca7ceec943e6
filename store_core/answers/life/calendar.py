# SPDX-License-Identifier: Apache-2.0
"""A calendar of times to come: how many are in each minute, hour or day, and a heat map of that."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from store_core.answers.report_plots import HeatMap, HeatRow
from store_core.format.counted import counted
from store_core.format.times import iso_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

__all__ = ["Scale", "calendar_rows", "heat_map", "scale_of"]

_SECOND: Final = 1000
_LARGEST: Final = 2**53
"""Later times than those that a calendar has are not put into one."""


class Scale(NamedTuple):
    """How a calendar is divided.

    Attributes
    ----------
    cell : int
        Seconds of a cell.
    row : int
        Seconds of a row of the heat map.
    digits : int
        Characters of a time in ISO 8601 that name a row.
    ends : (str, str)
        Names of a row's first and last cell.
    """

    cell: int
    row: int
    digits: int
    ends: tuple[str, str]


_SCALES: Final = (
    (12 * 3600, Scale(60, 3600, 13, (":00", ":59"))),
    (40 * 86400, Scale(3600, 86400, 10, ("00:00", "23:00"))),
)
_LONGEST: Final = Scale(86400, 30 * 86400, 10, ("first day", "30th"))
_MOST_ROWS: Final = 48


def scale_of(due: npt.NDArray[np.int64]) -> Scale:
    """Return the scale for times in ms: minutes if they are within half a day, hours within 40 days, else days."""
    span = int(due.max() - due.min()) // _SECOND if due.size else 0
    return next((scale for longest, scale in _SCALES if span <= longest), _LONGEST)


def calendar_rows(due: Mapping[str, npt.NDArray[np.int64]], scale: Scale) -> list[dict[str, Any]]:
    """Return a row for each cell with anything in it: when it begins, and how many of each kind are due in it.

    Parameters
    ----------
    due : mapping of str to numpy.ndarray
        Kind -> times in ms.
    """
    cell = scale.cell * _SECOND
    counts = {kind: Counter((times[np.abs(times) < _LARGEST] // cell).tolist()) for kind, times in due.items()}
    cells = sorted(set().union(*counts.values()))
    return [
        {"begin": at * cell * 1000, "seconds": scale.cell} | {kind: those[at] for kind, those in counts.items()}
        for at in cells
    ]


def heat_map(title: str, cells: Sequence[tuple[int, int]], scale: Scale) -> HeatMap:
    """Return a heat map of cells: when each begins, in seconds, and how many it has."""
    columns = scale.row // scale.cell
    rows: dict[int, list[int]] = {}
    for begin, count in cells:
        row = rows.setdefault(begin // scale.row, [0] * columns)
        row[begin % scale.row // scale.cell] += count
    shown = sorted(rows.items())[:_MOST_ROWS]
    names = (iso_time(at * scale.row * _SECOND)[: scale.digits].replace("T", " ") for at, _ in shown)
    made = (
        HeatRow(name, tuple(row), counted(sum(row), "message")) for name, (_, row) in zip(names, shown, strict=True)
    )
    more = f"and {len(rows) - len(shown):,} more rows, which the JSON has" if len(rows) > len(shown) else ""
    return HeatMap(title, scale.ends, tuple(made), more)
