# SPDX-License-Identifier: Apache-2.0
"""Plots of reports and notebooks, and the HTML page that a report becomes.

A plot is rows one below the other, each with a name, a drawing and a label, so that names and labels are text that fits
a narrow page, too. A drawing is paths in a box of 1000 by 10, or by 100 if it is tall, which SVG stretches.
The style of a page says which colours they have.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from math import log1p
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from store_core.answers.shown_text import escape_text
from store_core.errors import UnsupportedStoreError
from store_core.format.words import counted
from store_core.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jinja2 import Template


def page(title: str, **content: object) -> str:
    """Return content as one HTML file: style and plots are inside, and it refers to nothing elsewhere."""
    return _template().render(content | {"title": title, "is_page": True, "version": __version__})


def part(**content: object) -> str:
    """Return content as a part of a page, whose background stays as it is."""
    return _template().render(content | {"is_page": False, "version": __version__})


@cache
def _template() -> Template:
    try:
        from jinja2 import Environment
    except ModuleNotFoundError as error:
        raise UnsupportedStoreError("pages and plots need jinja2: pip install 'jinja2>=3.1'") from error
    environment = Environment(autoescape=True, finalize=_shown, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(files("store_core.answers").joinpath("page.html").read_text(encoding="utf-8"))


def _shown(value: Any) -> Any:  # noqa: ANN401 -- whatever the template has
    r"""Return text without controls and directions of writing; jinja2 then escapes the characters of HTML."""
    return escape_text(value) if type(value) is str else value


class Tone(StrEnum):
    """What a colour stands for; never the only thing that says so."""

    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    PLAIN = "plain"
    MAIN = "main"


@dataclass(frozen=True, slots=True)
class Shape:
    """A path of a drawing: its tone, or `full` for what is behind it, and how dark it is, from 0 to 1."""

    path: str
    tone: str
    opacity: float = 1


@dataclass(frozen=True, slots=True)
class PlotRow:
    """A row of a plot as it is drawn."""

    name: str
    label: str
    shapes: tuple[Shape, ...]


_ACROSS: Final = 1000
"""Across a drawing: nothing is narrower, and no drawing is larger, however many ranges there are."""

_NARROWEST: Final = 4
_LOW: Final = 10
_TALL: Final = 100
_SHADES: Final = 5


def _box(begin: int, end: int) -> str:
    return f"M{begin} 0h{end - begin}v{_LOW}h{begin - end}z"


@dataclass(frozen=True, slots=True)
class Lane:
    """Ranges of offsets of one kind: begins and ends, exclusive; the label says how many there are."""

    name: str
    ranges: tuple[tuple[int, int], ...]
    tone: Tone
    label: str


@dataclass(frozen=True, slots=True)
class Strip:
    """Where along the bytes of a log something is, between two physical offsets: lanes on one axis."""

    is_tall: ClassVar = False
    more: ClassVar = ""

    title: str
    begin: int
    end: int
    lanes: tuple[Lane, ...]

    @property
    def ends(self) -> tuple[str, str]:
        """What the axis begins and ends with."""
        return f"offset {self.begin}", str(self.end)

    @property
    def rows(self) -> Iterator[PlotRow]:
        """A row for each lane, with one path; ranges that share a column are drawn as one."""
        size = max(self.end - self.begin, 1)
        for lane in self.lanes:
            found = [
                ((begin - self.begin) * _ACROSS // size, -((self.begin - end) * _ACROSS // size))
                for begin, end in lane.ranges
            ]
            path = "".join(_box(begin, end) for begin, end in _united(found))
            yield PlotRow(lane.name, lane.label, (Shape(path, lane.tone),))


def _united(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Widen ranges of columns until they can be seen, and unite those that then overlap."""
    last_begin, last_end = -1, -1
    for begin, end in sorted(ranges):
        left = max(min(begin, _ACROSS - _NARROWEST), 0)
        right = min(max(end, left + _NARROWEST), _ACROSS)
        if left > last_end:
            if last_end > 0:
                yield last_begin, last_end
            last_begin = left
        last_end = max(last_end, right)
    if last_end > 0:
        yield last_begin, last_end


@dataclass(frozen=True, slots=True)
class Bar:
    """A quantity, and in words; `full` is what it would be at most, drawn behind it, or 0 if that has no meaning."""

    name: str
    value: float
    tone: Tone
    label: str
    full: float = 0


@dataclass(frozen=True, slots=True)
class Bars:
    """Quantities side by side, on one axis that begins at 0; `more` says what is not shown."""

    is_tall: ClassVar = False
    ends: ClassVar = None

    title: str
    bars: tuple[Bar, ...]
    more: str = ""

    @property
    def rows(self) -> Iterator[PlotRow]:
        """A row for each bar."""
        longest = max((max(bar.value, bar.full) for bar in self.bars), default=0) or 1
        for bar in self.bars:
            shapes = (
                Shape(_box(0, max(int(value * _ACROSS // longest), _NARROWEST)), tone)
                for value, tone in ((bar.full, "full"), (bar.value, bar.tone))
                if value
            )
            yield PlotRow(bar.name, bar.label, tuple(shapes))


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A row of quantities, as many as the other rows have; the label says what they are together."""

    name: str
    values: tuple[int, ...]
    label: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Quantities by two measures, such as days and hours: the larger, the darker. `ends` name the outer columns."""

    is_tall: ClassVar = False

    title: str
    ends: tuple[str, str]
    heat: tuple[HeatRow, ...]
    more: str = ""
    tone: Tone = Tone.WARNING

    @property
    def rows(self) -> Iterator[PlotRow]:
        """A row for each, with a path for each shade: the cells of about the same quantity."""
        most = max((value for row in self.heat for value in row.values), default=0) or 1
        for row in self.heat:
            shades: dict[int, list[int]] = {}
            for at, value in enumerate(row.values):
                if value:
                    shades.setdefault(-(-value * _SHADES // most), []).append(at)
            count = len(row.values)
            shapes = (
                Shape(
                    "".join(_box(at * _ACROSS // count, (at + 1) * _ACROSS // count) for at in cells),
                    self.tone,
                    shade / _SHADES,
                )
                for shade, cells in sorted(shades.items())
            )
            yield PlotRow(row.name, row.label, tuple(shapes))


@dataclass(frozen=True, slots=True)
class Line:
    """Quantities one after the other, at equal distances; the label says what they are together."""

    name: str
    values: Sequence[float]
    label: str
    tone: Tone = Tone.MAIN


@dataclass(frozen=True, slots=True)
class Series:
    """Quantities over time, a row for each thing, all on one scale that begins at 0; `ends` name begin and end."""

    is_tall: ClassVar = True

    title: str
    ends: tuple[str, str]
    lines: tuple[Line, ...]
    more: str = ""
    is_log: bool = False

    @property
    def rows(self) -> Iterator[PlotRow]:
        """A row for each line, filled below."""
        scaled = [[log1p(max(each, 0)) if self.is_log else each for each in line.values] for line in self.lines]
        highest = max((max(values, default=0) for values in scaled), default=0) or 1
        for line, values in zip(self.lines, scaled, strict=True):
            path, last = f"M0 {_TALL}", -1
            for at, value in enumerate(values, 1):
                top = _TALL - round(max(value, 0) * _TALL / highest)
                path += ("" if top == last else f"V{top}") + f"H{at * _ACROSS // len(values)}"
                last = top
            yield PlotRow(line.name, line.label, (Shape(f"{path}V{_TALL}z", line.tone),))


Plot: TypeAlias = Strip | Bars | HeatMap | Series


@dataclass(frozen=True)
class Plots:
    """Plots as a notebook shows them, on light and dark pages.

    Attributes
    ----------
    plots : tuple of Plot
        One below the other.
    """

    plots: tuple[Plot, ...]

    def __repr__(self) -> str:
        return "\n".join(line for plot in self.plots for line in _words_of(plot))

    def to_html(self) -> str:
        """Return the plots as one HTML file, which refers to nothing elsewhere.

        Raises
        ------
        UnsupportedStoreError
            If jinja2 is not installed.
        """
        return page(self.plots[0].title if self.plots else "", plots=self.plots)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return part(plots=self.plots)


def _words_of(plot: Plot) -> Iterator[str]:
    yield plot.title
    for row in plot.rows:
        yield f"  {escape_text(row.name)}: {escape_text(row.label)}"
    if plot.more:
        yield f"  {plot.more}"


def lanes_of(
    ranges: Iterable[tuple[str, int, int]], tones: Mapping[str, Tone], what: str = "range"
) -> tuple[Lane, ...]:
    """Return a lane for each kind that has a tone and ranges, in the order of the tones.

    * `ranges`: Kind, begin and end.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    for kind, begin, end in ranges:
        found.setdefault(kind, []).append((begin, end))
    return tuple(
        Lane(kind, tuple(found[kind]), tone, counted(len(found[kind]), what))
        for kind, tone in tones.items()
        if kind in found
    )
