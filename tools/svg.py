# SPDX-License-Identifier: Apache-2.0
"""Draws boxes, arrows and text as SVG that is readable on light and dark pages."""

from __future__ import annotations

from html import escape
from typing import Final, Self

# Colours by name, for light and dark pages; docs/_static/site.css sets them by the site's own switch.
PALETTE: Final = {
    "ink": ("#1f2733", "#e8ecf2"),
    "soft": ("#5a6675", "#a3b0c2"),
    "line": ("#8793a3", "#77849a"),
    "plain": ("#f3f5f8", "#232b38"),
    "blue": ("#d6e6fa", "#1d3b5f"),
    "orange": ("#fbe3c4", "#5a3d17"),
    "green": ("#d3eede", "#1b4a37"),
    "red": ("#f8d9d6", "#5c2626"),
    "page": ("#ffffff", "#14181e"),
}

_STYLE: Final = (
    ".diagram text { font-family: system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif; fill: var(--d-ink) }\n"
    ".diagram .soft { fill: var(--d-soft) }\n"
    ".diagram .mono { font-family: ui-monospace, 'DejaVu Sans Mono', monospace }\n"
    ".diagram .arrow { fill: none; stroke: var(--d-line); stroke-width: 1.6 }\n"
    ".diagram .box { stroke: var(--d-line); stroke-width: 1 }\n"
    ".diagram .head { fill: var(--d-line) }"
)


class Drawing:
    """A drawing; each method adds to it and returns it.

    Parameters
    ----------
    name : str
        Name of the file without its suffix; part of ids.
    title, description : str
        Text for readers who can't see it.
    size : tuple of int
        Width and height in pixels, at natural size.
    """

    def __init__(self, name: str, title: str, description: str, size: tuple[int, int]) -> None:
        self._name = name
        self._about = (title, description)
        self._size = size
        self._parts: list[str] = []

    def box(self, place: tuple[int, int, int, int], colour: str = "plain", *, dashed: bool = False) -> Self:
        """Draw a box; `place` is x, y, width and height."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        x, y, width, height = place
        where = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="5"'
        return self._add(f'<rect class="box" {where} style="fill: var(--d-{colour})"{dash}/>')

    def text(self, at: tuple[int, int], text: str, *, size: int = 13, kind: str = "", anchor: str = "start") -> Self:
        """Write a line of text; `kind` is any of ``soft``, ``mono`` and ``bold``."""
        weight = ' font-weight="600"' if "bold" in kind else ""
        classes = " ".join(word for word in kind.split() if word != "bold")
        named = f' class="{classes}"' if classes else ""
        where = f'x="{at[0]}" y="{at[1]}" font-size="{size}" text-anchor="{anchor}"'
        return self._add(f"<text{named} {where}{weight}>{escape(text, quote=False)}</text>")

    def card(self, place: tuple[int, int, int, int], lines: list[str], colour: str = "plain") -> Self:
        """Draw a box with a heading and lines of text, centred."""
        self.box(place, colour)
        x, y, width, height = place
        middle, top = x + width // 2, y + (height - 18 * len(lines)) // 2 + 13
        for number, line in enumerate(lines):
            kind, size = ("bold", 14) if number == 0 else ("soft", 12)
            self.text((middle, top + 18 * number), line, size=size, kind=kind, anchor="middle")
        return self

    def arrow(self, *points: tuple[int, int], dashed: bool = False) -> Self:
        """Draw an arrow through points."""
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        return self._add(f'<path class="arrow" d="{path}"{dash} marker-end="url(#{self._name}-tip)"/>')

    def line(self, points: list[tuple[int, int]], colour: str = "line") -> Self:
        """Draw a line through points, with a dot at each."""
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        self._add(f'<path style="fill: none; stroke: var(--d-{colour}); stroke-width: 2" d="{path}"/>')
        for x, y in points:
            self._add(f'<circle cx="{x}" cy="{y}" r="3" style="fill: var(--d-{colour})"/>')
        return self

    def rule(self, begin: tuple[int, int], end: tuple[int, int]) -> Self:
        """Draw a thin line, as of an axis."""
        where = f'x1="{begin[0]}" y1="{begin[1]}" x2="{end[0]}" y2="{end[1]}"'
        return self._add(f'<line class="box" {where}/>')

    def svg(self) -> str:
        """Return the file's text."""
        width, height = self._size
        light, dark = (
            "; ".join(f"--d-{name}: {colours[index]}" for name, colours in PALETTE.items()) for index in (0, 1)
        )
        tip = (
            f'<defs><marker id="{self._name}-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
        )
        opening = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" viewBox="0 0 {width} {height}" width="{width}" '
            f'role="img" aria-labelledby="{self._name}-title {self._name}-about">'
        )
        title, about = (escape(text, quote=False) for text in self._about)
        head = [
            opening,
            f'<title id="{self._name}-title">{title}</title>',
            f'<desc id="{self._name}-about">{about}</desc>',
            f"<style>\n.diagram {{ {light} }}",
            f"@media (prefers-color-scheme: dark) {{ .diagram {{ {dark} }} }}",
            f"{_STYLE}\n</style>",
            tip,
        ]
        return "\n".join([*head, *self._parts, "</svg>", ""])

    def _add(self, part: str) -> Self:
        self._parts.append(part)
        return self
