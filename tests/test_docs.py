# SPDX-License-Identifier: Apache-2.0
"""Documents that are generated from tables in the code are up to date."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.documents.blocks import documents
from tools import layout_document, options_document, release_document

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.mark.parametrize(
    ("document", "generate"),
    [
        ("FORMAT.md", layout_document.markdown_document),
        ("options.md", options_document.markdown_document),
        ("releases.md", release_document.markdown_document),
    ],
)
def test_generated_documents_are_current(document: str, generate: Callable[[], str]) -> None:
    """`make docs` writes them again."""
    assert DOCS.joinpath(document).read_text(encoding="utf-8") == generate()


def test_nobody_is_told_to_install_from_an_index_on_which_the_project_is_not() -> None:
    """On a package index the name may belong to anyone."""
    sources = [path for name in ("connector", "store_core", "jobs", "tools") for path in ROOT.glob(f"{name}/**/*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in (*(ROOT / name for name in documents()), *sources)}

    assert [] == [path for path, text in texts.items() if re.search(r"pip install \S*pyspark-commitlog", text)]
