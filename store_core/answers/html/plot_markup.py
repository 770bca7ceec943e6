# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG between lines of text: the text keeps its size when the drawing is narrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.answers.html.markup import Markup, element, shown
from store_core.answers.report_plots import HeatMap, Strip

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from store_core.answers.report_plots import Bar, Bars, HeatRow, Lane, Plot

__all__ = ["plot_markup"]

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
        yield _row(lane.name, lane.label, f"{lane.name}: {lane.label}", [_lane_path(strip, lane)])
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
        yield _row(bar.name, bar.label, f"{bar.name}: {bar.label}", list(_bar_paths(bar, longest)))
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
        yield _row(row.name, row.label, f"{row.name}: {row.label}", list(_heat_paths(row, most)))
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


def _row(name: str, label: str, description: str, paths: list[Markup]) -> Markup:
    drawing = element(
        "svg", *paths, viewBox=f"0 0 {_COLUMNS} {_HEIGHT}", preserveAspectRatio="none", role="img",
        aria_label=description,
    )  # fmt: skip
    parts = (element("span", shown(name), class_="name"), drawing, element("span", shown(label), class_="label"))
    return element("div", *parts, class_="row")
