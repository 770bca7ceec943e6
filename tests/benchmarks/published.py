# SPDX-License-Identifier: Apache-2.0
"""The tables that ``docs/benchmarks.md`` shows: kept in ``docs/benchmarks.json``, and replaced one by one.

A table has ``command``, ``began``, ``commit``, ``machine``, ``versions``, ``load`` (at its beginning and end), and
``rows``. A row has ``name``, ``least``, ``median``, and where it applies ``ratio`` and ``median_ratio`` to another row,
``unit`` (``s`` if it has none), ``load``, ``group``, and what it is to reach: ``target`` (the most that the ratio may
be), ``at_least`` (the least), or ``most`` (of the figure itself).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


PUBLISHED: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.json"


def publish(tables: Mapping[str, Mapping[str, Any]], path: Path = PUBLISHED) -> None:
    """Replace tables by those of the same names; all others stay as they are."""
    all_tables = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    all_tables.update(tables)
    made = path.with_suffix(".made")
    made.write_text(json.dumps(all_tables, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    made.replace(path)


def published_rows(table: str, path: Path = PUBLISHED) -> list[dict[str, Any]]:
    """Return the rows of a table.

    Raises
    ------
    KeyError
        If there is no such table.
    """
    rows: list[dict[str, Any]] = published_table(table, path)["rows"]
    return rows


def published_table(table: str, path: Path = PUBLISHED) -> dict[str, Any]:
    """Return a table; errors as of `published_rows`."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))[table]
    return found
