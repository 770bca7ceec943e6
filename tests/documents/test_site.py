# SPDX-License-Identifier: Apache-2.0
"""The site as somebody finds it whose broker is down: each link has a target, cures are on the first screen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.documents.blocks import ROOT, anchors_of, documents, links_of

if TYPE_CHECKING:
    from pathlib import Path


DOCS: Final = ROOT / "docs"
MOST_PAGES: Final = 36
FIRST_SCREEN: Final = 34
"""Lines of a page's source, with what is not shown: at 1,280 by 900 pixels Chromium shows as much."""

QUESTIONS: Final = {
    "The broker does not start": "incidents/broker-does-not-start.md",
    "Messages were lost": "incidents/lost-messages.md",
    "Consumers' offsets are gone": "incidents/consumer-offsets.md",
    "The disk is full": "incidents/disk-full.md",
    "One topic to Parquet": "guides/export.md",
}
PAGE: Final = ROOT / "store_core" / "answers" / "page.html"
LEAST_CONTRAST: Final = 4.5  # of text, WCAG 2 level AA
OF_ROCKETMQ: Final = (
    "found a illegal magic code",
    "length not matched message store config value",
    "dispatchBehindBytes",
    "maybe delayOffset is wrong",
)


def pages() -> list[str]:
    """Documents that become pages, as ``docs/conf.py`` and the tables of contents say."""
    found, waiting = [], ["index"]
    while waiting:
        page = waiting.pop()
        found.append(page)
        text = DOCS.joinpath(f"{page}.md").read_text(encoding="utf-8")
        for listed in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for line in listed.splitlines():
                name = re.sub(r".*<(.*)>", r"\1", line)
                if "*" in name:
                    found += [path.stem for path in ROOT.joinpath("notebooks").glob("*.ipynb")]
                elif name and not name.startswith(":"):
                    waiting.append((DOCS / page).parent.joinpath(name).resolve().relative_to(DOCS).as_posix())
    return found


def test_the_site_has_few_pages_and_each_is_in_one_table_of_contents() -> None:
    found = pages()
    assert len(found) == len(set(found)) <= MOST_PAGES


@pytest.mark.parametrize(("question", "page"), QUESTIONS.items(), ids=list(QUESTIONS.values()))
def test_the_front_page_leads_to_a_cure_whose_commands_are_on_the_first_screen(question: str, page: str) -> None:
    front = DOCS.joinpath("index.md").read_text(encoding="utf-8")
    lines = DOCS.joinpath(page).read_text(encoding="utf-8").splitlines()

    assert f"[{question}]({page})" in front
    assert "```sh" in lines[:FIRST_SCREEN]


@pytest.mark.parametrize("text", OF_ROCKETMQ)
def test_what_rocketmq_writes_into_its_logs_leads_to_the_page_that_helps(text: str) -> None:
    troubles = DOCS.joinpath("troubleshooting.md").read_text(encoding="utf-8").splitlines()
    row = next(line for line in troubles if text in line)

    assert re.search(r"\]\((?:incidents|guides)/[\w-]+\.md", row)


def palettes() -> dict[str, dict[str, str]]:
    """Return the colours of a report's page, and of the site's links and diagrams, by scheme."""
    site, page = DOCS.joinpath("_static", "site.css").read_text(encoding="utf-8"), PAGE.read_text(encoding="utf-8")
    found = {}
    for scheme in ("light", "dark"):
        blocks = re.findall(rf'html\[data-theme="{scheme}"\](?: svg.diagram)? \{{(.*?)\}}', site, re.DOTALL)
        blocks += re.findall(rf"macro {scheme}\(\) -%\}}(.*?)\{{%-", page, re.DOTALL)
        found[scheme] = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", "\n".join(blocks)))
    return found


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(scheme: str) -> None:
    colours = palettes()[scheme]
    on_page = [
        "ink",
        "soft",
        "good",
        "bad",
        "warning",
        *(f"pst-color-{name}" for name in ("link", "primary", "accent")),
    ]
    pairs = [(name, "paper") for name in on_page]
    pairs += [("d-ink", f"d-{ground}") for ground in ("page", "plain", "blue", "orange", "green", "red")]

    assert {} == {
        f"{text} on {ground}": round(found, 2)
        for text, ground in pairs
        if (found := contrast(colours[text], colours[ground])) < LEAST_CONTRAST
    }


def test_plots_in_a_notebook_are_on_the_ground_of_the_page() -> None:
    site = DOCS.joinpath("_static", "site.css").read_text(encoding="utf-8")
    rule = re.search(r"div\.output\.text_html:has\(\.commitlog-report\) \{(.*?)\}", site, re.DOTALL)

    assert rule is not None
    assert "background-color: transparent" in rule[1]


def test_each_column_of_a_table_has_a_name() -> None:
    nameless = {}
    for page in pages():
        path = DOCS / f"{page}.md"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        heads = re.findall(r"^(\|.*\|)\n\|[-:| ]+\|$", text, re.MULTILINE)
        nameless[page] = [head for head in heads if re.search(r"\|\s*\|", head)]

    assert not [head for heads in nameless.values() for head in heads]


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
