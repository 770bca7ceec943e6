# SPDX-License-Identifier: Apache-2.0
"""Bar charts of measured rates: a number at the end of each bar, and the spread between rounds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Final, cast

from pyspark_commitlog.plots.style import BLUE, GREY, INK, bare_axes, behind_bar, new_figure, shown_name, si, title
from store_core.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bar_axes", "throughput"]

_ROOM: Final = 1.3
"""Width of the axes in lengths of the longest bar: the number after the bar needs the rest."""


def throughput(
    values: Mapping[str, float | Sequence[float]],
    name: str = "Throughput",
    unit: str = "B/s",
    *,
    compared_with: Collection[str] = (),
) -> Figure:
    """Draw a bar for each rate, which was measured once or in several rounds.

    Parameters
    ----------
    values : mapping of str to float, or to a sequence of float
        Rates by name, drawn in this order. With several rounds the bar shows the median, and a line across its end
        shows the range from the slowest to the fastest: where two lines overlap, the difference may be noise.
    name : str
        Title above the bars.
    unit : str
        Unit of the rates; written with SI prefixes.
    compared_with : collection of str
        Names of the rates that the others are compared with; their bars are grey.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidOptionError
        If there is no rate, or one is negative, or `compared_with` has a name that is not in `values`.
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    rounds = {label: list(value) if isinstance(value, Sequence) else [value] for label, value in values.items()}
    if not rounds or not all(rounds.values()) or min(map(min, rounds.values())) < 0:
        raise InvalidOptionError(f"expected rates that are not negative, and at least one: {dict(values)}")
    if not rounds.keys() >= set(compared_with):
        raise InvalidOptionError(f"compared_with: expected names among {[*rounds]}, found {[*compared_with]}")
    figure, grid = new_figure(0.7 + 0.38 * len(rounds))
    axes = cast("Axes", grid[0, 0])
    for row, (label, measured) in enumerate(rounds.items()):
        _draw_bar(axes, row, measured, unit, GREY if label in compared_with else BLUE)
    bar_axes(axes, [*rounds], (max(map(max, rounds.values())) or 1) * _ROOM, len(rounds))
    has_ranges = any(len(measured) > 1 for measured in rounds.values())
    title(axes, name, "bar: median of the rounds; line: slowest to fastest" if has_ranges else "")
    return figure


def _draw_bar(axes: Axes, row: int, measured: Sequence[float], unit: str, colour: str) -> None:
    middle, slowest, fastest = median(measured), min(measured), max(measured)
    axes.barh(row, middle, height=0.62, color=colour, linewidth=0)
    text = si(middle, unit)
    if slowest < fastest:
        axes.errorbar(middle, row, xerr=[[middle - slowest], [fastest - middle]], color=INK, linewidth=1.4, capsize=4)
        text = f"{text}  ({si(slowest)} to {si(fastest)})"
    behind_bar(axes, fastest, row, text)


def bar_axes(axes: Axes, names: Sequence[str], width: float, rows: int) -> None:
    """Make room for the numbers after the bars, which replace a value axis."""
    bare_axes(axes, grid=None)
    axes.spines["bottom"].set_visible(False)
    axes.set_xlim(0, width)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xticks([])
    axes.set_yticks(range(len(names)), [shown_name(name) for name in names])
