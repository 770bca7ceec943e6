# SPDX-License-Identifier: Apache-2.0
"""Figures in the documents about the tests' own data match the data."""

from __future__ import annotations

import json
import lzma
import re
from typing import TYPE_CHECKING

import pytest

from tests.documents.blocks import ROOT
from tests.golden_stores import golden_stores

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Golden


GOLDEN = ROOT / "tests" / "golden"
BESIDE = ROOT.parent / "shared" / "golden"


def told(what: str) -> tuple[int, int]:
    """Return the two figures that docs/tested.md has for something."""
    page = ROOT.joinpath("docs", "tested.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {re.escape(what)}.* \| ([\d,]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    assert row is not None, what
    return int(row[1].replace(",", "")), int(row[2].replace(",", ""))


def lines_in(path: Path) -> int:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return sum(1 for _ in lines)


def test_stores_are_as_many_as_told() -> None:
    here, beside = told("stores that RocketMQ wrote")

    assert here == sum(_is_here(store.version, store.scenario) for store in golden_stores())
    assert len(golden_stores()) in (here, beside)


@pytest.mark.golden
def test_their_records_are_as_many_as_told(golden: Golden) -> None:
    inside = [store for store in golden_stores() if GOLDEN.joinpath(f"rocketmq-{store.version}").is_dir()]
    inside = [store for store in inside if _is_here(store.version, store.scenario)]

    assert told("records in them")[0] == sum(len(golden(store.name).expected()) for store in inside)


def _is_here(version: str, scenario: str) -> bool:
    return GOLDEN.joinpath(f"rocketmq-{version}", f"{scenario}.tar.xz").exists()


def test_damaged_stores_are_as_many_as_told() -> None:
    here, beside = told("stores damaged on purpose")

    assert here == len(list(GOLDEN.glob("damage/*.tar.xz")))
    assert len(list(BESIDE.glob("damage/*.tar.xz"))) in (0, beside)


@pytest.mark.parametrize(
    ("what", "file"),
    [
        ("gets", "getmessage_matrix"),
        ("more gets", "gets_at_gaps"),
        ("lookups", "time_index_matrix"),
        ("SQL92 expressions", "sql92_cases"),
    ],
)
def test_answers_are_as_many_as_told(what: str, file: str) -> None:
    here, beside = told(what)
    larger = BESIDE / "answers" / f"{file}.jsonl.xz"

    assert here == lines_in(GOLDEN / "answers" / f"{file}.jsonl.xz")
    assert not larger.exists() or beside == lines_in(larger)


def test_pulls_are_as_many_as_told() -> None:
    with lzma.open(GOLDEN / "answers" / "pull_requests.jsonl.xz", "rt", encoding="utf-8") as lines:
        steps = [step for line in lines for step in json.loads(line)["steps"]]

    assert told("pulls") == (sum("request" in step for step in steps),) * 2
