# SPDX-License-Identifier: Apache-2.0
"""The map of the code names files and modules that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_TEXT: Final = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
_NAMED: Final = sorted(set(re.findall(r"`([a-z_0-9/]+)`", _TEXT.partition("## Code map")[2].partition("\n## ")[0])))
_FOLDERS: Final = ("store_core", "connector", "tools", "jobs", "docs", "tests", "notebooks", "spark-conf")


@pytest.mark.parametrize("name", _NAMED)
def test_what_the_code_map_names_is_in_the_tree(name: str) -> None:
    top, _, rest = name.partition("/")
    places = [ROOT / folder for folder in _FOLDERS]
    found = [place for place in places for _ in place.rglob(f"{name.rstrip('/')}.py")]
    folders = [place for place in places for path in place.rglob(top) if (path / rest).is_dir()]

    assert found or folders or (ROOT / name).is_dir(), f"the code map of ARCHITECTURE.md names {name}; where is it?"
