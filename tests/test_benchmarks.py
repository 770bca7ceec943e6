# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' figures come into the document as they were measured, and the guard against slow code can fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.benchmarks.guard import _ROUNDS, LIMIT, exceeded, measure_twice
from tests.benchmarks.published import publish, published_rows
from tools.benchmark_curves import drawn
from tools.benchmark_document import document, markdown_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def table(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "command": "make bench",
        "began": "2026-11-23T05:00:00Z",
        "commit": "0123456789ab",
        "machine": {"processor": "a processor", "cores": 2},
        "versions": {"python": "3.11.7", "isal": None},
        "load": [0.5, 1.5],
        "rows": list(rows),
    }


def row(name: str, ratio: float, **more: object) -> dict[str, Any]:
    return {"name": name, "least": ratio / 10, "median": ratio / 5, "ratio": ratio, "median_ratio": ratio, **more}


def test_every_published_table_is_in_the_document() -> None:
    assert "ratio" in markdown_document()


def test_a_row_shows_its_figures_and_whether_its_target_is_met() -> None:
    rows = row("copy", 1.0), row("fast", 1.15, target=1.2), row("slow", 5.551, target=3), row("better", 9, at_least=8)

    text = document("{{ core }}", {"core": table(*rows)})

    assert "| copy | 0.100 (0.200) |  |  |" in text
    assert "| fast | 0.115 (0.230) | 1.15 (1.15) | ≤ 1.2: met |" in text
    assert "| slow | 0.555 (1.11) | 5.55 (5.55) | ≤ 3: **missed** |" in text
    assert "| better | 0.900 (1.80) | 9.00 (9.00) | ≥ 8: met |" in text
    assert "2026-11-23 05:00:00 UTC; commit `0123456789ab`; load average 0.5 to 1.5" in text


def test_groups_of_rows_are_tables_of_their_own() -> None:
    text = document("{{ core }}", {"core": table(row("a", 1.0, group="elapsed"), row("b", 2.0, group="processor"))})

    assert "| elapsed | s |\n" in text
    assert "| processor | s | ratio |\n" in text


@pytest.mark.parametrize("template", ["", "{{ core }}\n{{ other }}"])
def test_a_template_has_exactly_the_published_tables(template: str) -> None:
    with pytest.raises(ValueError, match="not the same tables"):
        document(template, {"core": table(row("a", 1.0))})


def test_publishing_replaces_the_tables_that_were_measured_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    publish({"core": table(row("a", 1.0)), "spark": table(row("b", 2.0))}, path)

    publish({"core": table(row("c", 3.0))}, path)

    assert published_rows("core", path) == [row("c", 3.0)]
    assert published_rows("spark", path) == [row("b", 2.0)]
    assert list(json.loads(path.read_text(encoding="utf-8"))) == ["core", "spark"]


def test_a_planted_slowdown_fails_and_the_same_work_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "benchmarks.json"

    def work() -> int:
        return sum(range(100_000))

    def rows(planted: Callable[[], object]) -> list[dict[str, Any]]:
        return measure_twice({"fixed work": work, "reading": planted}, limits)

    limits: dict[str, float] = {}
    publish({"guard": table(*rows(work))}, path)
    limits = {"reading": published_rows("guard", path)[1]["ratio"] * LIMIT}

    assert exceeded({"guard": table(*rows(work))}, path) == []
    assert exceeded({"guard": table(*rows(lambda: [work() for _ in range(3)]))}, path) == ["reading"]
    assert "SLOWER: reading" in capsys.readouterr().out


def test_a_row_that_was_slow_only_once_passes() -> None:
    calls = iter(range(1000))

    def slow_at_first() -> int:
        return sum(range(1_000_000 if next(calls) <= _ROUNDS else 100_000))

    rows = measure_twice({"fixed work": lambda: sum(range(100_000)), "reading": slow_at_first}, {"reading": LIMIT})

    assert rows[1]["ratio"] < LIMIT


def test_nothing_is_compared_with_what_was_not_measured(tmp_path: Path) -> None:
    assert exceeded({"core": table(row("a", 99.0))}, tmp_path / "none.json") == []


def test_curves_have_a_dot_for_each_row() -> None:
    axes = ("log, MiB", "body, bytes", "topics", "partitions, 1 core", "partitions, 2 cores")
    rows = [{"axis": axis, "place": place, "least": place + 1.0, "unit": "s"} for axis in axes for place in (1, 10_000)]
    drawing = drawn([*rows, {"axis": "topics", "place": 1, "least": 99.0, "unit": "MiB"}])

    assert drawing.count("<circle") == len(rows)
    assert ">10 k</text>" in drawing
