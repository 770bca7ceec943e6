# SPDX-License-Identifier: Apache-2.0
"""Each answer can be had in all ways: by a function, on Spark and by a command, as JSON and HTML; with a page."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Final

import pytest

import pyspark_commitlog.answers
import store_core.answers

_ROOT: Final = Path(__file__).parents[2]
_PAGES: Final = {
    "bill": "guides/disk-and-producers",
    "check": "incidents/queues-and-index",
    "dead_letters": "guides/what-happened",
    "delays": "guides/what-happened",
    "diff": "incidents/lost-messages",
    "export": "guides/export",
    "lag": "guides/consumers",
    "producers": "guides/disk-and-producers",
    "prove": "guides/export",
    "recover": "guides/object-stores",
    "redact": "guides/export",
    "repair": "incidents/queues-and-index",
    "replay": "guides/what-happened",
    "retention": "guides/disk-and-producers",
    "salvage": "incidents/lost-messages",
    "trace": "guides/what-happened",
    "transactions": "guides/what-happened",
}
"""The page that explains an answer, by the name of its function."""

_ARGUMENTS: Final = {"prove": "export --prove", "dead_letters": "deadletters", "plan_repair": "repair --dry-run"}
"""How the command says it, where it is not the function's name."""

_OF_THE_PROCESS: Final = {"processes", "on_progress", "clock", "file_system"}
"""Parameters of answers in processes of their own, and of tests."""


def _command(answer: str) -> str:
    return _ARGUMENTS.get(answer, answer).split()[0]


def test_no_answer_is_missing_here() -> None:
    found = {name for name in store_core.answers.__all__ if inspect.isfunction(getattr(store_core.answers, name))}
    assert {*_PAGES, "plan_repair", "processes"} == found  # and an engine


@pytest.mark.parametrize("answer", [*_PAGES, "plan_repair"])
def test_an_answer_has_a_function_on_spark_with_the_same_parameters(answer: str) -> None:
    of_core = set(inspect.signature(getattr(store_core.answers, answer)).parameters)
    of_spark = set(inspect.signature(getattr(pyspark_commitlog.answers, answer)).parameters)

    assert {"spark"} == of_spark - of_core
    assert of_core - of_spark <= _OF_THE_PROCESS


@pytest.mark.parametrize(("answer", "page"), _PAGES.items())
def test_an_answer_has_a_page_with_its_command_and_where_its_function_is(answer: str, page: str) -> None:
    text = (_ROOT / "docs" / f"{page}.md").read_text()
    assert f"commitlog {_command(answer)} " in text
    assert "pyspark_commitlog.answers" in text or "store_core.answers" in text
