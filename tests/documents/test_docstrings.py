# SPDX-License-Identifier: Apache-2.0
"""The examples in docstrings, run as they stand."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from tests.documents.blocks import ROOT

_FOLDERS = (ROOT / "store_core", ROOT / "connector" / "pyspark_commitlog", ROOT / "jobs")


def _names() -> list[str]:
    """Return the modules that have examples."""
    paths = (path for folder in _FOLDERS for path in sorted(folder.rglob("*.py")) if ">>> " in path.read_text("utf-8"))
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("connector.") for path in paths]


@pytest.mark.parametrize("name", _names())
def test_examples_give_what_they_say(name: str) -> None:
    assert 0 == doctest.testmod(import_module(name)).failed
