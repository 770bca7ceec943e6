# SPDX-License-Identifier: Apache-2.0
"""The site as somebody finds it whose broker is down: one click from the front page to commands on the first screen."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.documents.blocks import ROOT

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
