# SPDX-License-Identifier: Apache-2.0
"""The limits of the product's weight only fall, and what is beyond one is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.thermometer import WORDS, Weight, complaints, read_limits

if TYPE_CHECKING:
    from pathlib import Path


def test_every_figure_has_a_limit() -> None:
    limits = read_limits()

    assert list(WORDS) == list(limits)


@pytest.mark.parametrize("name", WORDS)
def test_a_figure_beyond_its_limit_is_told(name: str) -> None:
    limits = dict.fromkeys(WORDS, 5)
    told = list(complaints(limits | {name: 6}, limits, limits))

    assert [f"{name}: expected at most 5, found 6 ({WORDS[name]})"] == told


def test_a_limit_that_has_risen_is_told() -> None:
    before = dict.fromkeys(WORDS, 5)
    told = list(complaints(before, before | {"lines": 6}, before))

    assert ["lines: a limit only falls, and this one was 5 and is 6"] == told


def test_code_is_what_is_neither_blank_nor_comment_nor_docstring(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""Of two\n\nlines."""\n\nimport os\nfrom re import (\n    sub,\n)\n\n# Why.\nX = os.sep, sub\n')

    assert Weight(path, lines=11, code=5, imports=4, docstrings=3) == Weight.of(path)
