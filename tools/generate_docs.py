# SPDX-License-Identifier: Apache-2.0
"""Writes the documents that are generated from tables in the code, and builds the site of all documents.

Usage: generate_docs.py [--check | --links]

With --check no document is written, and each that is out of date is an error; the site is built in a scratch folder,
to see that it can be. With --links the addresses that documents link to are tried, over the network, and no site is
built.
"""

from __future__ import annotations

import argparse
import difflib
import pkgutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "docs"
SITE: Final = SOURCE / "_build" / "html"

# Document -> the function without arguments that returns its whole text.
DOCUMENTS: Final = {
    "docs/FORMAT.md": "tools.layout_document:markdown_document",
    "docs/options.md": "tools.options_document:markdown_document",
    "docs/views.md": "tools.views_document:markdown_document",
    "docs/releases.md": "tools.release_document:markdown_document",
    "docs/exit-codes.md": "tools.exit_code_document:markdown_document",
    "docs/reports.md": "tools.report_document:markdown_document",
    "docs/modules.md": "tools.module_index:markdown_document",
    "docs/benchmarks.md": "tools.benchmark_document:markdown_document",
    "docs/diagrams/store.svg": "tools.diagrams:store",
    "docs/diagrams/reading.svg": "tools.diagrams:reading",
    "docs/diagrams/commit.svg": "tools.diagrams:commit",
    "docs/diagrams/recovery.svg": "tools.diagrams:recovery",
    "docs/diagrams/curves.svg": "tools.benchmark_curves:curves",
}


def text_of(function: str) -> str:
    """Return the text from the function named `module:name`."""
    text = pkgutil.resolve_name(function)()
    if not isinstance(text, str):
        raise TypeError(f"{function} returned {type(text).__name__}, not the text of a document")
    return text


def is_current(document: str, text: str) -> bool:
    """Return whether the document on disk has this text; print the differences."""
    path = ROOT / document
    found = path.read_text(encoding="utf-8") if path.exists() else ""
    difference = difflib.unified_diff(found.splitlines(), text.splitlines(), document, "generated", lineterm="", n=1)
    print("\n".join(difference), end="\n" if found != text else "")
    return found == text


def build_site(builder: str, output: Path) -> int:
    """Build the site with Sphinx, where a warning is an error; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="doctrees-") as doctrees:
        options = ["-q", "-E", "-W", "--keep-going", "-b", builder, "-d", doctrees]
        command = [sys.executable, "-m", "sphinx", *options, str(SOURCE), str(output)]
        return subprocess.run(command, check=False).returncode


def check_documents(texts: dict[str, str]) -> int:
    """Compare the generated documents, and build the site in a scratch folder; return the exit code."""
    stale = [document for document, text in texts.items() if not is_current(document, text)]
    print(f"stale: {', '.join(stale)}; run `make docs`" if stale else f"{len(texts)} documents are up to date")
    with tempfile.TemporaryDirectory(prefix="site-") as site:
        failed = build_site("html", Path(site))
        pages = len(list(Path(site).rglob("*.html")))
    print("the site has warnings" if failed else f"the site has {pages} pages, and no warning")
    return 1 if stale or failed else 0


def write_documents(texts: dict[str, str]) -> int:
    """Write the generated documents, and build the site; return the exit code."""
    for document, text in texts.items():
        (ROOT / document).write_text(text, encoding="utf-8")
        print(f"wrote {document}")
    failed = build_site("html", SITE)
    print("the site has warnings" if failed else f"made {SITE.relative_to(ROOT)}/index.html")
    return failed


def main() -> int:
    """Run as the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(description="Writes the generated documents, and builds the site.")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--check", action="store_true", help="write nothing; fail if a document is out of date")
    modes.add_argument("--links", action="store_true", help="try the links to other sites")
    options = parser.parse_args()
    if options.links:
        return build_site("linkcheck", SITE.with_name("linkcheck"))
    texts = {document: text_of(function) for document, function in DOCUMENTS.items()}
    return check_documents(texts) if options.check else write_documents(texts)


if __name__ == "__main__":
    sys.exit(main())
