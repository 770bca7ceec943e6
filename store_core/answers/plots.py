# SPDX-License-Identifier: Apache-2.0
"""Plots of reports: what they show, and how they are drawn.

Text from a store can't get out of the markup: only what is made here has the type that goes into a page. The style is
light or dark as the reader's system is, or as the notebook is that shows it. Plots are SVG between lines of text, which
keeps its size when the drawing is narrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING, Final, NewType, TypeAlias

from store_core.answers.shown_text import escape_text
from store_core.format.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "ROOT_CLASS",
    "STYLE",
    "Bar",
    "Bars",
    "HeatMap",
    "HeatRow",
    "Lane",
    "Markup",
    "Plot",
    "Strip",
    "Tone",
    "element",
    "joined",
    "lanes_of",
    "plot_markup",
    "shown",
]


class Tone(StrEnum):
    """What a colour stands for; never the only thing that says so."""

    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Lane:
    """Ranges of offsets of one kind."""

    name: str
    ranges: tuple[tuple[int, int], ...]  # begin and end, exclusive
    tone: Tone
    label: str  # how many there are, in words


@dataclass(frozen=True, slots=True)
class Strip:
    """Where along the bytes of a log something is: lanes one below the other, on one axis.

    * `begin`, `end`: Physical offsets between which the axis runs.
    """

    title: str
    begin: int
    end: int
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """A quantity."""

    name: str
    value: int
    tone: Tone
    label: str  # the quantity in words
    full: int = 0  # what it would be if nothing were missing, drawn behind it; 0 if that has no meaning


@dataclass(frozen=True, slots=True)
class Bars:
    """Quantities side by side, on one axis that begins at 0."""

    title: str
    bars: tuple[Bar, ...]
    more: str = ""  # what is not shown, in words; empty if nothing is


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A row of a heat map."""

    name: str
    values: tuple[int, ...]  # as many in each row
    label: str  # all of them together, in words


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Quantities by two measures, such as days and hours: the larger, the darker."""

    title: str
    ends: tuple[str, str]  # names of the first and the last column
    rows: tuple[HeatRow, ...]
    more: str = ""  # what is not shown, in words; empty if nothing is


Plot: TypeAlias = Strip | Bars | HeatMap


def lanes_of(
    ranges: Iterable[tuple[str, int, int]], tones: Mapping[str, Tone], what: str = "range"
) -> tuple[Lane, ...]:
    """Return a lane for each kind that has a tone and ranges, in the order of the tones.

    * `ranges`: Kind, begin and end.
    * `what`: What one of them is.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    for kind, begin, end in ranges:
        found.setdefault(kind, []).append((begin, end))
    return tuple(
        Lane(kind, tuple(found[kind]), tone, counted(len(found[kind]), what))
        for kind, tone in tones.items()
        if kind in found
    )


Markup = NewType("Markup", str)
"""HTML or SVG in which all text is escaped."""


def shown(text: str) -> Markup:
    r"""Return text as markup: what has a meaning in HTML, controls and directions of writing are escaped.

    Examples
    --------
    >>> shown("<b> & \u202e")
    '&lt;b&gt; &amp; \\u202e'
    """
    return Markup(escape(escape_text(text)))


def element(name: str, *inside: Markup, **attributes: str | float) -> Markup:
    """Return an element; values of attributes are escaped, and ``_`` in their names is ``-``, or nothing at the end.

    Examples
    --------
    >>> element("p", shown("one"), class_="note")
    '<p class="note">one</p>'
    """
    shown_attributes = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{shown(str(value))}"' for name, value in attributes.items()
    )
    return Markup(f"<{name}{shown_attributes}>{''.join(inside)}</{name}>")


def joined(*parts: Markup) -> Markup:
    """Return markup that follows each other, a part a line."""
    return Markup("\n".join(parts))


ROOT_CLASS: Final = "commitlog-report"
"""Class of the element around a report: the style applies to nothing else on the page."""

_LIGHT: Final = (
    "--paper:#ffffff;--ink:#1f2733;--soft:#5a6675;--line:#dfe3e8;--plain:#8793a3;--track:#f0f2f5;--good:#0b7a55;"
    "--bad:#c2410c;--warning:#b57b00;color-scheme:light"
)
_DARK: Final = (
    "--paper:#14181e;--ink:#e8ecf2;--soft:#a3b0c2;--line:#2f3947;--plain:#77849a;--track:#212833;--good:#4cc38a;"
    "--bad:#ff8a5b;--warning:#e3b341;color-scheme:dark"
)
_RULES: Final = """
& {background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI","Helvetica Neue",Arial,sans-serif;
 max-width:62rem;margin:0 auto;padding:1.5rem clamp(1rem,4vw,2.5rem) 2.5rem;box-sizing:border-box;
 font-variant-numeric:tabular-nums}
& header {border-bottom:1px solid var(--line);padding-bottom:1rem;margin-bottom:1.25rem}
& .kind {color:var(--soft);margin:0}
& h1 {font-size:1.45rem;line-height:1.3;font-weight:600;margin:.15rem 0 .7rem;overflow-wrap:anywhere}
& .verdict {display:inline-block;border:1.5px solid currentColor;border-radius:1rem;padding:.05rem .75rem;
 font-weight:600}
& .verdict.good {color:var(--good)}
& .verdict.bad {color:var(--bad)}
& .verdict.warning {color:var(--warning)}
& .words {list-style:none;margin:0 0 1.75rem;padding:0}
& .words li {margin:.2rem 0;overflow-wrap:anywhere}
& figure {margin:0 0 1.9rem}
& figcaption,& summary {font-size:1.05rem;font-weight:600;margin:0 0 .5rem}
& summary {cursor:pointer}
& summary small {color:var(--soft);font-weight:400}
& .row {display:grid;grid-template-columns:minmax(7rem,14rem) 1fr minmax(4rem,15rem);gap:0 .9rem;align-items:center;
 margin:.25rem 0}
& .row .name {overflow-wrap:anywhere}
& .row .label {color:var(--soft);overflow-wrap:anywhere}
& .row svg {display:block;width:100%;height:.95rem;background:var(--track);border-radius:2px;min-width:0}
& .row .ends {grid-column:2;display:flex;justify-content:space-between;color:var(--soft);font-size:.85rem}
& path.good {fill:var(--good)}
& path.bad {fill:var(--bad)}
& path.warning {fill:var(--warning)}
& path.plain {fill:var(--plain)}
& path.full {fill:var(--line)}
& .more {color:var(--soft);margin:.4rem 0 0}
& details {margin:0 0 1.4rem}
& .scroll {overflow-x:auto}
& table {border-collapse:collapse;font-size:.9rem;color:inherit;margin:0}
& th,& td {text-align:left;vertical-align:top;padding:.28rem 1.1rem .28rem 0;border-bottom:1px solid var(--line);
 background:none;overflow-wrap:anywhere;max-width:26rem}
& th {font-weight:400;color:var(--soft);white-space:nowrap;overflow-wrap:normal}
& td.number,& th.number {text-align:right;white-space:nowrap}
& td.short {white-space:nowrap}
& td.text {min-width:11rem}
& td.long {min-width:14rem}
& footer {color:var(--soft);font-size:.85rem;margin-top:2rem}
@media (max-width:40rem) {& .row {grid-template-columns:1fr auto;margin:.5rem 0}
& .row svg {grid-row:2;grid-column:1/-1}
& .row .label {text-align:right}
& .row .ends {grid-column:1/-1}}
@media print {& {padding:0;max-width:none}}
"""

STYLE: Final = "\n".join(
    (
        f".{ROOT_CLASS} {{{_LIGHT}}}",
        f"@media (prefers-color-scheme:dark) {{.{ROOT_CLASS} {{{_DARK}}}}}",
        f'[data-jp-theme-light="true"] .{ROOT_CLASS} {{{_LIGHT}}}',
        f'[data-jp-theme-light="false"] .{ROOT_CLASS} {{{_DARK}}}',
        _RULES.strip().replace("&", f".{ROOT_CLASS}"),
    )
)
"""CSS without anything from a store; ``data-jp-theme-light`` is JupyterLab's."""


_COLUMNS: Final = 1000
"""Across a drawing: nothing is narrower, and no drawing is larger, however many ranges there are."""

_NARROWEST: Final = 4
_HEIGHT: Final = 10
_SHADES: Final = 5


def plot_markup(plot: Plot) -> Markup:
    """Return a plot as a figure."""
    if isinstance(plot, Strip):
        rows = _strip_rows(plot)
    else:
        rows = _heat_rows(plot) if isinstance(plot, HeatMap) else _bar_rows(plot)
    return element("figure", element("figcaption", shown(plot.title)), *rows)


def _strip_rows(strip: Strip) -> Iterator[Markup]:
    for lane in strip.lanes:
        yield _drawn_row(lane.name, lane.label, f"{lane.name}: {lane.label}", [_lane_path(strip, lane)])
    yield _axis(f"offset {strip.begin}", str(strip.end))


def _lane_path(strip: Strip, lane: Lane) -> Markup:
    """Return a lane as one path; ranges that share a column are drawn as one."""
    size = max(strip.end - strip.begin, 1)
    found = [
        ((begin - strip.begin) * _COLUMNS // size, -((strip.begin - end) * _COLUMNS // size))
        for begin, end in lane.ranges
    ]
    path = "".join(f"M{begin} 0h{end - begin}v{_HEIGHT}h{begin - end}z" for begin, end in _united(found))
    return element("path", d=path, class_=lane.tone)


def _united(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Widen ranges of columns until they can be seen, and unite those that then overlap."""
    last_begin, last_end = -1, -1
    for begin, end in sorted(ranges):
        left = max(min(begin, _COLUMNS - _NARROWEST), 0)
        right = min(max(end, left + _NARROWEST), _COLUMNS)
        if left > last_end:
            if last_end > 0:
                yield last_begin, last_end
            last_begin = left
        last_end = max(last_end, right)
    if last_end > 0:
        yield last_begin, last_end


def _bar_rows(bars: Bars) -> Iterator[Markup]:
    longest = max((max(bar.value, bar.full) for bar in bars.bars), default=0) or 1
    for bar in bars.bars:
        yield _drawn_row(bar.name, bar.label, f"{bar.name}: {bar.label}", list(_bar_paths(bar, longest)))
    if bars.more:
        yield element("p", shown(bars.more), class_="more")


def _bar_paths(bar: Bar, longest: int) -> Iterator[Markup]:
    for value, kind in ((bar.full, "full"), (bar.value, bar.tone)):
        if value:
            width = max(value * _COLUMNS // longest, _NARROWEST)
            yield element("path", d=f"M0 0h{width}v{_HEIGHT}h{-width}z", class_=kind)


def _heat_rows(plot: HeatMap) -> Iterator[Markup]:
    most = max((value for row in plot.rows for value in row.values), default=0) or 1
    for row in plot.rows:
        yield _drawn_row(row.name, row.label, f"{row.name}: {row.label}", list(_heat_paths(row, most)))
    yield _axis(*plot.ends)
    if plot.more:
        yield element("p", shown(plot.more), class_="more")


def _heat_paths(row: HeatRow, most: int) -> Iterator[Markup]:
    """Yield a path for each shade: the cells of about the same quantity."""
    shades: dict[int, list[int]] = {}
    for at, value in enumerate(row.values):
        if value:
            shades.setdefault(-(-value * _SHADES // most), []).append(at)
    for shade, cells in sorted(shades.items()):
        ends = [(at * _COLUMNS // len(row.values), (at + 1) * _COLUMNS // len(row.values)) for at in cells]
        path = "".join(f"M{begin} 0h{end - begin}v{_HEIGHT}h{begin - end}z" for begin, end in ends)
        yield element("path", d=path, class_="warning", fill_opacity=shade / _SHADES)


def _axis(first: str, last: str) -> Markup:
    ends = (element("span", shown(first)), element("span", shown(last)))
    return element("div", element("div", *ends, class_="ends"), class_="row axis")


def _drawn_row(name: str, label: str, description: str, paths: list[Markup]) -> Markup:
    drawing = element(
        "svg", *paths, viewBox=f"0 0 {_COLUMNS} {_HEIGHT}", preserveAspectRatio="none", role="img",
        aria_label=description,
    )  # fmt: skip
    parts = (element("span", shown(name), class_="name"), drawing, element("span", shown(label), class_="label"))
    return element("div", *parts, class_="row")
