# SPDX-License-Identifier: Apache-2.0
"""How plots look."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from store_core.answers.shown_text import escape_text
from store_core.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

__all__ = [
    "BLUE",
    "COLOURS",
    "GREY",
    "INK",
    "LINE",
    "ORANGE",
    "PAPER",
    "TEXT",
    "VERMILLION",
    "apart",
    "bar_axes",
    "bare_axes",
    "behind_bar",
    "binary_bytes",
    "duration",
    "few_ticks",
    "new_figure",
    "no_ticks",
    "quantity_formatter",
    "sequential_colours",
    "shown_name",
    "si",
    "throughput",
    "time_axis",
    "times_of_day",
    "title",
    "topic_colours",
]

INK: Final = "#24292f"
"""Text colour: its contrast to `PAPER` is 14.6."""
PAPER: Final = "#ffffff"
"""Background: in a dark theme the plot looks like a card, and its text stays readable."""
LINE: Final = "#80808059"
"""Colour of grid and axes: faint on light and dark pages."""
GREY: Final = "#8c8c8c"

BLUE: Final = "#0072B2"
ORANGE: Final = "#E69F00"
VERMILLION: Final = "#D55E00"
COLOURS: Final = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", VERMILLION, "#B8AD2B")
"""Okabe and Ito's colours, without black, which disappears on dark pages, and with a darker yellow for light ones."""

TEXT: Final = 10.0
"""Text size in points: a figure 9 inches wide is shown in a column of about 8."""
_WIDTH: Final = 9.0
_DPI: Final = 160
_PAD: Final = 0.08
_TITLE: Final = 12.0
_LONGEST_NAME: Final = 60
"""Characters of a label: longer names would leave no room for what they are of."""
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400


def new_figure(
    height: float, rows: int = 1, columns: int = 1, **grid: object
) -> tuple[Figure, npt.NDArray[np.object_]]:
    """Make a figure and its axes.

    * `height`: Inches; the width is the same for all.
    * `grid`: Passed to `Figure.subplots`.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 -- an extra
        from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 -- an extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "plots are drawn by matplotlib, which is not installed: pip install 'matplotlib>=3.9'",
            name="matplotlib",
        ) from None

    class CommitLogFigure(Figure):
        """A figure that notebooks show as the value of a cell, in full resolution, whatever the backend."""

        def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
            width, height = self.get_size_inches() * 96
            return buffer.getvalue(), {"width": round(width), "height": round(height)}

    layout = ConstrainedLayoutEngine(w_pad=_PAD, h_pad=_PAD)
    figure = CommitLogFigure(figsize=(_WIDTH, height), dpi=_DPI, layout=layout, facecolor=PAPER)
    return figure, figure.subplots(rows, columns, squeeze=False, **grid)  # type: ignore[call-overload]


def bare_axes(axes: Axes, *, grid: str | None = "y") -> None:
    """Reduce the axes to what is needed: a base line, a faint grid, and unobtrusive numbers."""
    axes.set_facecolor("none")
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(colors=INK, labelcolor=INK, labelsize=TEXT, length=0, pad=6)
    axes.tick_params(axis="x", pad=9)
    axes.set_axisbelow(True)
    if grid == "y":
        axes.yaxis.grid(visible=True, color=LINE, linewidth=0.7)
    elif grid == "x":
        axes.xaxis.grid(visible=True, color=LINE, linewidth=0.7)


def title(axes: Axes, text: str, note: str = "") -> None:
    """Write a title above the left corner, and a note above the right one."""
    axes.set_title(text, loc="left", color=INK, fontsize=_TITLE, fontweight="bold", pad=8)
    if note:
        axes.set_title(note, loc="right", color=INK, fontsize=TEXT, pad=8)


def shown_name(name: str) -> str:
    r"""Return the name of a topic or a group as a label that matplotlib draws as it is: no formula, and not too long.

    >>> shown_name("$\\frac{1$")
    '\\$\\frac{1\\$'
    """
    text = escape_text(name)
    text = text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"
    return text.replace("$", r"\$")


def few_ticks() -> MaxNLocator:
    """Return a locator of at most five round ticks."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 -- an extra

    return MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10])


def no_ticks() -> NullLocator:
    """Return a locator of no ticks."""
    from matplotlib.ticker import NullLocator  # noqa: PLC0415 -- an extra

    return NullLocator()


def quantity_formatter(unit: str) -> FuncFormatter:
    """Return a formatter that writes ticks as `si` does."""
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415 -- an extra

    return FuncFormatter(lambda value, _: si(value, unit))


def sequential_colours() -> ListedColormap:
    """Return viridis without its ends, which disappear on dark and light pages."""
    from matplotlib import colormaps  # noqa: PLC0415 -- an extra
    from matplotlib.colors import ListedColormap  # noqa: PLC0415 -- an extra

    return ListedColormap(colormaps["viridis"](np.linspace(0.15, 0.95, 256)), name="viridis-middle")


def topic_colours(topics: Sequence[str]) -> dict[str, str]:
    """Return the colour of each topic; after the seventh all are grey."""
    return {topic: COLOURS[place] if place < len(COLOURS) else GREY for place, topic in enumerate(topics)}


def time_axis(axes: Axes, begins_ms: npt.NDArray[np.int64], end_ms: int) -> None:
    """Label the x axis, which is in seconds since the epoch, with round times in UTC, and with the day."""
    begin, end = int(begins_ms[0]) // 1000, max(end_ms // 1000, int(begins_ms[0]) // 1000 + 1)
    step = next((step for step in _TICK_SECONDS if (end - begin) / step <= _MOST_TICKS), 7 * _DAY)
    ticks = np.arange(-(-begin // step) * step, end + 1, step)
    pattern = "%d %b" if step >= _DAY else "%H:%M" if step >= _MINUTE else "%H:%M:%S"
    axes.set_xlim(begin, end)
    axes.set_xticks(ticks.tolist(), [datetime.fromtimestamp(int(tick), UTC).strftime(pattern) for tick in ticks])
    axes.set_xlabel(_days(begin, end), color=INK, fontsize=TEXT, loc="left")


def times_of_day(times_ms: npt.NDArray[np.int64]) -> tuple[list[str], str]:
    """Format times, with the day if there are several; return them, and a note that says what they are."""
    times = [datetime.fromtimestamp(int(time) // 1000, UTC) for time in times_ms]
    if len({time.date() for time in times}) > 1:
        return [f"{time.day} {time:%b %H:%M}" for time in times], "first record stored, UTC"
    return [f"{time:%H:%M}" for time in times], f"first record stored, {times[0].day} {times[0]:%b %Y}, UTC"


_TICK_SECONDS: Final = (1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800)
_MOST_TICKS: Final = 10


def _days(begin: int, end: int) -> str:
    first, last = (datetime.fromtimestamp(time, UTC) for time in (begin, max(begin, end - 1)))
    text = f"{first.day} {first:%b %Y}"
    return f"{text}, UTC" if first.date() == last.date() else f"{text} to {last.day} {last:%b %Y}, UTC"


def si(value: float, unit: str = "") -> str:
    """Format a number with at most three digits and an SI prefix.

    Examples
    --------
    >>> si(1234, "B/s"), si(950_000), si(0), si(7.5)
    ('1.23 kB/s', '950k', '0', '7.5')
    """
    prefixes = ("", "k", "M", "G", "T", "P")
    place = 0
    while abs(value) >= 999.5 and place < len(prefixes) - 1:  # noqa: PLR2004 -- what would be written as 1000
        value /= 1000
        place += 1
    return f"{value:.3g}{' ' if unit else ''}{prefixes[place]}{unit}"


def binary_bytes(value: int) -> str:
    """Format an offset or a size in binary units.

    Examples
    --------
    >>> binary_bytes(0), binary_bytes(1 << 18), binary_bytes(3 << 29)
    ('0', '256 KiB', '1.5 GiB')
    """
    if value == 0:
        return "0"
    place = min((value.bit_length() - 1) // 10, 5)
    return f"{value / (1 << 10 * place):.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[place]}"


def duration(milliseconds: float) -> str:
    """Format a duration with the unit that fits.

    Examples
    --------
    >>> duration(3), duration(1500), duration(250_000), duration(7_200_000), duration(3 * 86_400_000)
    ('3 ms', '1.5 s', '4 min', '2 h', '3 days')
    """
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds:.3g} ms"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.3g} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.0f} h"
    return f"{seconds / _DAY:.0f} days"


def apart(places: Sequence[float], gap: float) -> list[float]:
    """Move labels apart, upwards, so that neighbours are `gap` from each other; they keep their order.

    Examples
    --------
    >>> apart([3.0, 1.0, 1.1], 0.5)
    [3.0, 1.0, 1.5]
    """
    moved = list(places)
    last = -np.inf
    for number in sorted(range(len(moved)), key=moved.__getitem__):
        moved[number] = last = max(moved[number], last + gap)
    return moved


def behind_bar(axes: Axes, value: float, row: float, text: str) -> None:
    """Write a text to the right of a bar's end."""
    axes.annotate(text, (value, row), xytext=(5, 0), textcoords="offset points", va="center", color=INK, fontsize=TEXT)


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
