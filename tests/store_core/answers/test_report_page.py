# SPDX-License-Identifier: Apache-2.0
"""Reports as HTML: text from a store stays text, and a page refers to nothing elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core.answers import check, diff, salvage
from store_core.answers.plots import Bar, Bars, Lane, Plot, Plots, Strip, Tone, part
from tests.builders import BODY_AT, LogBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.answers.report import Report

ROOT_CLASS: Final = "commitlog-report"
HOSTILE: Final = "</td></details><script>alert(1)</script>\"'&\u202e\x1b[31m"
ELEMENTS: Final = (
    "html head meta title style body main div header p h1 span ul li figure figcaption svg path details summary small "
    "table thead tbody tr th td footer h2 dl dt dd code"
)
ATTRIBUTES: Final = (
    "class lang charset name content http-equiv open viewbox preserveaspectratio role aria-label d tabindex"
)
VOID: Final = frozenset({"meta"})


class Page(HTMLParser):
    """Collects what a page is made of, and checks that elements are closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self._open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    """Make a sound and a damaged store, whose topic is hostile."""
    log = LogBuilder()
    log.append_all(*(b"body %d" % number for number in range(20)), topic=HOSTILE)
    sound = log.write(tmp_path / "sound")
    log.flip(log.records[5].physical_offset + BODY_AT, 3)
    return sound, log.write(tmp_path / "damaged")


def test_pages_have_a_stores_text_as_text_and_refer_to_nothing(stores: tuple[Path, Path]) -> None:
    reports: list[Report[Any]] = [check(stores[1]), diff(*stores), salvage(stores[1])]
    for report in reports:
        text = report.to_html()
        page = Page(text)

        assert set(ELEMENTS.split()) >= page.found
        assert set(ATTRIBUTES.split()) >= page.attributes
        assert not re.search(r"url\(|@import|javascript:|https?:", text)
        assert not re.search("[\u202e\x1b]", text)
        assert "default-src 'none'" in text
        assert {"figure", "svg", "table"} <= page.found
    assert any(
        "<script>alert(1)</script>\"'&\\u202e\\x1b[31m" in "".join(Page(each.to_html()).words) for each in reports
    )


def test_a_page_says_what_the_text_says(stores: tuple[Path, Path]) -> None:
    report = diff(*stores)
    page = Page(report.to_html())

    assert set(report.lines) <= set(page.words)
    assert "needs attention" in page.words
    assert report.subject in page.words


def test_a_notebook_shows_a_part_whose_style_applies_to_nothing_else(stores: tuple[Path, Path]) -> None:
    part = check(stores[0])._repr_html_()
    style = part[part.index("<style>") + 7 : part.index("</style>")]
    rules = re.sub(r"@media [^{]*{", "", style)

    assert "html" not in Page(part).found
    assert all(ROOT_CLASS in each for each in re.findall(r"([^{},]+)(?:,[^{}]*)?{", rules) if each.strip())


def test_text_can_leave_neither_an_element_nor_an_attribute() -> None:
    made = Page(Plots((Bars(HOSTILE, (Bar(HOSTILE, 1, Tone.BAD, HOSTILE),), HOSTILE),))._repr_html_())

    assert set(ELEMENTS.split()) >= made.found
    assert set(ATTRIBUTES.split()) >= made.attributes
    assert 4 == "".join(made.words).count("<script>alert(1)</script>\"'&\\u202e\\x1b[31m")


def drawn(plot: Plot) -> str:
    """Return the figure of a plot."""
    text = part(plots=(plot,))
    return text[text.index("<figure>") :]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, as WCAG counts it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("place", [0, 1], ids=["light", "dark"])
def test_words_stand_out_from_the_paper(place: int) -> None:
    colours = {
        name: re.findall(f"--{name}:(#[0-9a-f]{{6}})", part(plots=()))[place]
        for name in ("paper", "ink", "soft", "good", "bad", "warning")
    }

    assert all(contrast(colours["paper"], colour) >= 4.5 for name, colour in colours.items() if name != "paper")


def test_a_plot_is_small_however_many_ranges_it_has() -> None:
    ranges = tuple((at, at + 1) for at in range(0, 1_000_000, 2))
    markup = drawn(Strip("many", 0, 1_000_000, (Lane("lane", ranges, Tone.BAD, "many"),)))

    assert 1000 > len(markup)
    assert 'd="M0 0h1000v10h-1000z"' in markup


@pytest.mark.parametrize(
    ("ranges", "path"),
    [
        (((0, 1),), "M0 0h4v10h-4z"),
        (((99_999, 100_000),), "M996 0h4v10h-4z"),
        (((0, 1), (50_000, 60_000)), "M0 0h4v10h-4zM500 0h100v10h-100z"),
        (((50_000, 60_000), (59_000, 70_000)), "M500 0h200v10h-200z"),
        (((10, 10),), "M0 0h4v10h-4z"),
        ((), ""),
    ],
)
def test_a_range_is_drawn_where_it_is_and_can_be_seen(ranges: tuple[tuple[int, int], ...], path: str) -> None:
    assert f'd="{path}"' in drawn(Strip("", 0, 100_000, (Lane("", ranges, Tone.BAD, ""),)))


def test_bars_share_an_axis_and_show_what_is_missing() -> None:
    bars = (Bar("a", 50, Tone.BAD, "50", full=100), Bar("b", 0, Tone.GOOD, "none"))
    markup = drawn(Bars("quantities", bars, "3 more"))

    assert ["M0 0h1000v10h-1000z", "M0 0h500v10h-500z"] == re.findall(r' d="([^"]+)"', markup)
    assert "3 more" in markup
