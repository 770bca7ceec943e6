# SPDX-License-Identifier: Apache-2.0
"""Every link within the documents has a target; `make linkcheck` tries those to other sites."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.documents.blocks import ROOT, documents
from tests.documents.links import anchors_of, links_of

if TYPE_CHECKING:
    from pathlib import Path

OTHERS = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/**/README.md"))]


def _text(document: str) -> str:
    return ROOT.joinpath(document).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", [*documents(), *OTHERS])
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(document: str) -> None:
    here = ROOT / document
    for link in links_of(_text(document)):
        path, _, anchor = link.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        target = (here.parent / path).resolve() if path else here

        assert target.exists(), f"{document} links to {link}"
        assert not anchor or anchor in _anchors(target), f"{document} links to {link}"


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page, and of what it includes."""
    text = page.read_text(encoding="utf-8")
    included = [page.parent / name for name in re.findall(r"^`{3,}{include} (\S+)$", text, re.MULTILINE)]
    return anchors_of(text).union(*map(_anchors, included))


def test_no_document_of_the_site_links_out_of_it() -> None:
    """The site has only the pages of `docs`; other files are named, or included."""
    pages = [document for document in documents() if document.startswith("docs/")]
    links = {(page, link) for page in pages for link in links_of(_text(page)) if "://" not in link}
    outside = {(page, link) for page, link in links if not _is_inside(page, link)}

    assert set() == outside


def _is_inside(page: str, link: str) -> bool:
    return (ROOT / page).parent.joinpath(link.partition("#")[0]).resolve().is_relative_to(ROOT / "docs")


def test_links_are_found_and_those_in_code_are_none() -> None:
    text = 'See [a](x.md#y "t"), ![](z.svg) and `[b](no.md)`.\n```python\nc[0](no.md)\n```\n:link: start\n'
    text += '<img alt="" src="a.png">\n'

    assert ["x.md#y", "z.svg", "start.md", "a.png"] == links_of(text)


def test_anchors_are_those_of_headings_and_the_second_of_a_name_gets_a_number() -> None:
    text = "# On a `bad` day\n## What's new?\n## What's new?\n```sh\n# no heading\n```\n"

    assert {"on-a-bad-day", "whats-new", "whats-new-1"} == anchors_of(text)
