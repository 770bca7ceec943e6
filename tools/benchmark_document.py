# SPDX-License-Identifier: Apache-2.0
"""Generates ``docs/benchmarks.md``: the tables that were published last, between the text of a template.

``docs/benchmarks.json`` has the tables; ``make bench BENCH_ARGS="PART --publish"`` replaces those of a part. A line
``{{ NAME }}`` of the template becomes the table of that name.
"""

from __future__ import annotations

import json
import operator
import re
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parent.parent
_TEMPLATE: Final = Path(__file__).with_name("benchmarks.template")
TABLES: Final = _ROOT / "docs" / "benchmarks.json"
_PLACE: Final = re.compile(r"^\{\{ (.+) \}\}$", re.MULTILINE)
_MANY: Final = 100
"""From here on a figure is shown without decimals."""

Row = dict[str, Any]
Table = dict[str, Any]


def markdown_document() -> str:
    """Return the text of the document.

    Raises
    ------
    ValueError
        If the template names a table that was never published, or does not show one that was.
    """
    tables: dict[str, Table] = json.loads(TABLES.read_text(encoding="utf-8"))
    return document(_TEMPLATE.read_text(encoding="utf-8"), tables)


def document(template: str, tables: dict[str, Table]) -> str:
    """Return a template with its tables."""
    places = set(_PLACE.findall(template)) - {"machine"}
    if places != set(tables):
        raise ValueError(f"published and in the template are not the same tables: {sorted(places ^ set(tables))}")
    usual = Counter(_surroundings(table) for table in tables.values()).most_common(1)[0][0]

    def text_of(place: re.Match[str]) -> str:
        return usual if place[1] == "machine" else _table(tables[place[1]], usual)

    return _PLACE.sub(text_of, template)


def _surroundings(table: Table) -> str:
    """Return the machine and the versions of a table in one line."""
    machine, versions = table["machine"], table["versions"]
    named = [f"{name} {version}" for name, version in versions.items() if version]
    return ", ".join([f"{machine['cores']} cores of {machine['processor']}", *named])


def _table(table: Table, usual: str) -> str:
    """Return where, when and how a table was measured, and its rows."""
    groups = [list(rows) for _, rows in groupby(table["rows"], key=lambda row: row.get("group"))]
    return "\n\n".join([_circumstances(table, usual), *(_group(rows) for rows in groups)])


def _circumstances(table: Table, usual: str) -> str:
    own = _surroundings(table)
    loads = [load for load in (*table["load"], *(row.get("load") for row in table["rows"])) if load is not None]
    parts = [
        f"`{table['command']}`",
        table["began"].replace("T", " ").replace("Z", " UTC"),
        f"commit `{table['commit']}`" if table["commit"] else "commit not recorded",
        f"load average {_range(loads)}" if loads else "load not recorded",
        *([table["note"]] if table.get("note") else []),
        *([own] if own != usual else []),
    ]
    return "; ".join(parts) + "."


def _range(loads: list[float]) -> str:
    least, most = f"{min(loads):.1f}", f"{max(loads):.1f}"
    return least if least == most else f"{least} to {most}"


def _group(rows: list[Row]) -> str:
    """Return rows as a table, with only the columns that have something in them."""
    unit = rows[0].get("unit", "s")
    cells: dict[str, list[str]] = {
        rows[0].get("group") or "minimum (median)": [row["name"] for row in rows],
        unit: [_figures(row.get("least"), row.get("median"), row.get("unit", "s"), unit) for row in rows],
        "ratio": [_figures(row.get("ratio"), row.get("median_ratio")) if not _is_base(row) else "" for row in rows],
        "target": [_target(row) for row in rows],
    }
    first, *others = ((title, column) for title, column in cells.items() if any(column))
    lines = [
        [first[0], *(title for title, _ in others)],
        ["---", *("---:" for _ in others)],
        *([name, *(column[number] for _, column in others)] for number, name in enumerate(first[1])),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _is_base(row: Row) -> bool:
    return bool(row.get("ratio") == 1 and row.get("median_ratio", 1) == 1)


def _figures(least: float | None, median: float | None, unit: str = "", usual: str = "") -> str:
    if least is None:
        return ""
    named = f" {unit}" if unit != usual else ""
    return f"{_shown(least)}{named}" + ("" if median is None else f" ({_shown(median)})")


def _shown(figure: float) -> str:
    """Return a figure with three digits, or all of those before the point."""
    return f"{figure:,.0f}" if figure >= _MANY else f"{figure:#.3g}".rstrip(".")


def _target(row: Row) -> str:
    """Return what a row is to reach, and whether it does."""
    wants = (
        ("target", "ratio", "≤ {:g}", operator.le),
        ("at_least", "ratio", "≥ {:g}", operator.ge),
        ("most", "least", f"≤ {{:g}} {row.get('unit', 's')}", operator.le),
    )
    for name, judged, text, is_met in wants:
        if row.get(name) is not None and row.get(judged) is not None:
            return f"{text.format(row[name])}: {'met' if is_met(row[judged], row[name]) else '**missed**'}"
    return ""
