# SPDX-License-Identifier: Apache-2.0
"""Documents that are made from tables in the code say what the code says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog import options_document
from store_core.format import layout

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    ("document", "generate"),
    [("FORMAT.md", layout.markdown_document), ("options.md", options_document.markdown_document)],
)
def test_generated_documents_are_current(document: str, generate: Callable[[], str]) -> None:
    """`make docs` writes them anew."""
    assert DOCS.joinpath(document).read_text(encoding="utf-8") == generate()
