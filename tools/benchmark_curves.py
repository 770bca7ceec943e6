# SPDX-License-Identifier: Apache-2.0
"""Draws the curves that were published last: what a scan costs, by size, bodies, topics, partitions and cores."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any, Final

from tools.benchmark_document import TABLES
from tools.svg import Drawing

_PANELS: Final = (
    ("processor seconds a GiB, by MiB of the log", ("log, MiB",)),
    ("processor seconds a GiB, by bytes of a body", ("body, bytes",)),
    ("processor seconds a GiB, by topics", ("topics",)),
    ("seconds in Spark for 1 GiB, by partitions", ("partitions, 1 core", "partitions, 2 cores")),
)
"""Titles, and the axes of the rows that each shows."""

_COLOURS: Final = ("ink", "line")
_WIDTH: Final = 380
_HEIGHT: Final = 190
_LEFT, _TOP, _INNER_WIDTH, _INNER_HEIGHT = 44, 34, 312, 110
_PLACES: Final = ((0, 0), (_WIDTH, 0), (0, _HEIGHT), (_WIDTH, _HEIGHT))
_THOUSAND: Final = 1000

Row = dict[str, Any]


def curves() -> str:
    """Draw the curves of `docs/benchmarks.json`."""
    return drawn(json.loads(TABLES.read_text(encoding="utf-8"))["curves"]["rows"])


def drawn(rows: list[Row]) -> str:
    """Draw the curves of a table; rows without a time are left out."""
    drawing = Drawing(
        "curves",
        "What a scan costs",
        "Four charts: cost by size of the log, by size of bodies, by number of topics, and in Spark by partitions, for "
        "one core and for two.",
        (2 * _WIDTH, 2 * _HEIGHT),
    )
    timed = [row for row in rows if row["unit"] != "MiB"]
    lines = {axis: list(found) for axis, found in groupby(timed, key=lambda row: str(row["axis"]))}
    for (title, axes), corner in zip(_PANELS, _PLACES, strict=True):
        _panel(drawing, corner, title, [lines[axis] for axis in axes])
    return drawing.svg()


def _panel(drawing: Drawing, corner: tuple[int, int], title: str, lines: list[list[Row]]) -> None:
    left, top = corner[0] + _LEFT, corner[1] + _TOP
    bottom = top + _INNER_HEIGHT
    most = max(row["least"] for line in lines for row in line)
    drawing.text((left, top - 14), title, kind="bold", size=12)
    for share in (0.0, 0.5, 1.0):
        height = bottom - round(share * _INNER_HEIGHT)
        drawing.rule((left, height), (left + _INNER_WIDTH, height))
        drawing.text((left - 6, height + 4), f"{share * most:.2g}", kind="soft", size=11, anchor="end")
    step = _INNER_WIDTH // max(len(lines[0]) - 1, 1)
    for number, row in enumerate(lines[0]):
        drawing.text((left + number * step, bottom + 16), _short(row["place"]), kind="soft", size=11, anchor="middle")
    for line, colour in zip(lines, _COLOURS, strict=False):
        places = [round(bottom - row["least"] / most * _INNER_HEIGHT) for row in line]
        drawing.line([(left + number * step, place) for number, place in enumerate(places)], colour)
    if len(lines) > 1:
        for line, name in zip(lines, ("1 core", "2 cores"), strict=True):
            at = round(bottom - line[-1]["least"] / most * _INNER_HEIGHT)
            drawing.text((left + _INNER_WIDTH, at - 8), name, kind="soft", size=11, anchor="end")


def _short(number: int) -> str:
    return f"{number // _THOUSAND} k" if number >= 10 * _THOUSAND else f"{number}"
