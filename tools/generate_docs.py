# SPDX-License-Identifier: Apache-2.0
"""Writes the documents that are made from tables in the code.

Usage: generate_docs.py [--check]     (--check writes nothing, and fails for each document that is not current)
"""

from __future__ import annotations

import argparse
import difflib
import pkgutil
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

# Document -> the function without arguments that returns its whole text.
DOCUMENTS: Final = {
    "docs/FORMAT.md": "store_core.format.layout:markdown_document",
    "docs/options.md": "pyspark_commitlog.options_document:markdown_document",
}


def text_of(function: str) -> str:
    """Return what the function named `module:name` makes."""
    text = pkgutil.resolve_name(function)()
    if not isinstance(text, str):
        raise TypeError(f"{function} returned {type(text).__name__}, not the text of a document")
    return text


def is_current(document: str, text: str) -> bool:
    """Tell whether the document on disk has this text, and print how it differs."""
    path = ROOT / document
    found = path.read_text(encoding="utf-8") if path.exists() else ""
    difference = difflib.unified_diff(found.splitlines(), text.splitlines(), document, "generated", lineterm="", n=1)
    print("\n".join(difference), end="\n" if found != text else "")
    return found == text


def main() -> int:
    """Write or check all documents, and return the exit code."""
    parser = argparse.ArgumentParser(description="Writes the documents that are made from tables in the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a document is not current")
    check = parser.parse_args().check
    texts = {document: text_of(function) for document, function in DOCUMENTS.items()}
    if check:
        stale = [document for document, text in texts.items() if not is_current(document, text)]
        print(f"stale: {', '.join(stale)}; run `make docs`" if stale else f"{len(texts)} documents are current")
        return 1 if stale else 0
    for document, text in texts.items():
        (ROOT / document).write_text(text, encoding="utf-8")
        print(f"wrote {document}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
