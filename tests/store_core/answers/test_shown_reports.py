# SPDX-License-Identifier: Apache-2.0
"""What a store holds changes neither a terminal nor a page: text, tables and HTML show every value, and are safe."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from collections import Counter
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core.answers import check, diff, salvage
from store_core.answers.plots import Bar, Bars, Lane, Plot, Plots, Strip, Tone, part
from store_core.answers.shown_text import (
    BytesStyle,
    escape_json,
    escape_text,
    json_of,
    plain_text,
    text_of,
    text_width,
)
from store_core.answers.text_table import TableText, TextWriter, cell_of, rows_of
from store_core.format.columns import MAP_TYPE, STRINGS_TYPE, TIMESTAMP_TYPE
from tests.builders import BODY_AT, LogBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.answers.report import Report


def table_of(batch: pa.RecordBatch, width: int | None = None, *, is_coloured: bool = False) -> list[str]:
    stream = io.StringIO()
    writer = TextWriter(TableText(batch.schema, width=width, is_coloured=is_coloured), stream)
    writer.write(batch)
    writer.close()
    return stream.getvalue().splitlines()


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def test_numbers_stand_right_and_text_left() -> None:
    batch = batch_of(topic=pa.array(["orders", "b"]), queue_id=pa.array([7, 12]), body=pa.array([b"x", b"\x00"]))

    assert ["topic   queue_id  body", "orders         7  x", "b             12  0x00"] == table_of(batch)


def test_lists_maps_times_and_nulls_are_shown() -> None:
    batch = batch_of(
        time=pa.array([datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC), None], TIMESTAMP_TYPE),
        keys=pa.array([["a", "b"], None], STRINGS_TYPE),
        properties=pa.array([[("x", "1"), ("y", "2\n")], []], MAP_TYPE),
        on=pa.array([True, False]),
    )

    assert [
        "time                      keys  properties  on",
        "2023-11-14T22:13:20.500Z  a b   x=1 y=2\\n   true",
        "                                            false",
    ] == table_of(batch)


def test_without_rows_the_names_are_shown() -> None:
    assert ["topic  queue_id"] == table_of(batch_of(topic=pa.array([], pa.string()), queue_id=pa.array([], pa.int32())))


def test_a_column_keeps_the_width_that_the_first_rows_gave_it_and_is_cut_only_on_a_terminal() -> None:
    wide = pa.array(["a"] * 256 + ["a longer one"])

    assert "a longer one" == table_of(batch_of(body=wide))[-1]
    assert "a l…" == table_of(batch_of(body=wide), 80)[-1]


_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Z", "C"]), min_size=1, max_size=40)
_COLUMNS = {
    "messages": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "percent": (st.floats(0, 100), pa.float64()),
    "last_timestamp": (st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)), pa.timestamp("ms")),  # noqa: DTZ001
    "topic": (_TEXTS, pa.string()),
    "consumer_group": (_TEXTS, pa.string()),
    "keys": (st.lists(_TEXTS, max_size=2), pa.list_(pa.string())),
    "body": (st.binary(max_size=200), pa.binary()),
    "why": (st.text(st.characters(codec="utf-8"), max_size=120), pa.string()),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.RecordBatch:
    names = draw(st.lists(st.sampled_from(sorted(_COLUMNS)), min_size=1, unique=True))
    count = draw(st.integers(1, 4))
    columns = {
        name: pa.array(draw(st.lists(values, min_size=count, max_size=count)), kind)
        for name, (values, kind) in ((name, _COLUMNS[name]) for name in names)
    }
    return batch_of(**columns)


@given(tables(), st.integers(1, 120))
def test_numbers_times_and_what_tells_rows_apart_are_whole_at_every_width(batch: pa.RecordBatch, width: int) -> None:
    shown = "\n".join(table_of(batch, width)).split()
    free = [name in {"body", "why"} for name in batch.schema.names]
    whole = [
        word
        for row in rows_of(batch)
        for value, is_free in zip(row, free, strict=True)
        if not is_free
        for word in cell_of(value, BytesStyle.AUTO).split()
    ]

    assert not Counter(whole) - Counter(shown)


@given(tables(), st.integers(30, 120))
def test_a_line_is_wider_than_the_terminal_only_where_a_whole_value_is(batch: pa.RecordBatch, width: int) -> None:
    widest = max(text_width(cell_of(value, BytesStyle.AUTO)) for row in rows_of(batch) for value in row)

    assert all(text_width(line) <= max(width, widest + 2) for line in table_of(batch, width))


@given(tables())
@example(batch_of(why=pa.array([" 0"])))
def test_a_table_that_fits_is_the_same_on_a_terminal(batch: pa.RecordBatch) -> None:
    lines = table_of(batch)

    assert lines == table_of(batch, max(map(text_width, lines)) + 1000)


def test_too_long_names_stand_on_several_lines() -> None:
    batch = batch_of(queue_id=pa.array([7]), max_queue_offset=pa.array([12]))

    assert ["          max_", "queue_  queue_", "    id  offset", "     7      12"] == table_of(batch, 15)


def test_words_stand_on_several_lines() -> None:
    batch = batch_of(at=pa.array([7, 8]), why=pa.array(["expected 21,430 bytes, found 21 of them", "sound"]))

    assert ["at  why", " 7  expected 21,430 bytes,", "    found 21 of them", " 8  sound"] == table_of(batch, 30)


def test_a_long_word_is_broken_and_nothing_of_it_is_lost() -> None:
    assert ["why", "a", "n" * 24, "n" * 6] == table_of(batch_of(why=pa.array(["a " + "n" * 30])), 24)


def test_rows_that_do_not_fit_are_lists_of_their_fields() -> None:
    topics = pa.array(["a-topic", "another-topic-with-a-name"])
    batch = batch_of(topic=topics, messages=pa.array([2143, 7]), why=pa.array(["some words that are long", ""]))

    assert [
        "topic     a-topic",
        "messages  2143",
        "why       some words",
        "          that are",
        "          long",
        "",
        "topic",
        "  another-topic-with-a-name",
        "messages  7",
        "why",
    ] == table_of(batch, 21)


def test_later_rows_are_whole_too() -> None:
    numbers = pa.array([7] * 300 + [123_456_789_012])

    assert "123456789012" == table_of(batch_of(messages=numbers), 9)[-1]


def test_only_the_names_are_bold() -> None:
    lines = table_of(batch_of(topic=pa.array(["orders"])), 80, is_coloured=True)

    assert ["\x1b[1mtopic\x1b[0m", "orders"] == lines


def test_a_huge_body_is_cut_where_no_character_is() -> None:
    body = ("é" * 5000).encode()
    line = table_of(batch_of(body=pa.array([b"a" + body])), 80)[1]

    assert ("a" + "é" * 78 + "…") == line


ANYTHING = st.text(st.characters())


@given(ANYTHING)
def test_no_control_format_or_surrogate_character_is_left(text: str) -> None:
    left = {unicodedata.category(character) for character in escape_text(text)}

    assert not left & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(st.one_of(st.none(), ANYTHING, st.dictionaries(ANYTHING, ANYTHING)))
def test_a_line_of_json_is_safe_and_keeps_its_value(value: object) -> None:
    line = escape_json(json.dumps(value, ensure_ascii=False))

    assert escape_text(line) == line
    assert value == json.loads(line)


@pytest.mark.parametrize("text", ["plain", "café", "订单 全部", "\u3000wide space", 'back\\slash "quoted"'])
def test_text_of_any_language_stays_as_it_is(text: str) -> None:
    assert text == escape_text(text) == escape_json(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("\x1b[2J", "\\x1b[2J"), ("a\nb\tc\r", "a\\nb\\tc\\r"), ("\x9b31m", "\\x9b31m"), ("\u202eevil", "\\u202eevil"),
     ("\U000e0041", "\\U000e0041"), ("\ud800", "\\ud800"), ("\u200bx", "\\u200bx")],
)  # fmt: skip
def test_what_changes_a_terminal_or_the_direction_is_escaped(text: str, shown: str) -> None:
    assert shown == escape_text(text)


@pytest.mark.parametrize(
    ("data", "style", "shown"),
    [(b"one", BytesStyle.AUTO, "one"), ("订单".encode(), BytesStyle.AUTO, "订单"),
     (b"\xff\xfe", BytesStyle.AUTO, "0xfffe"),
     (b"a\x00", BytesStyle.AUTO, "0x6100"), (b"", BytesStyle.AUTO, ""), (b"one", BytesStyle.HEX, "6f6e65"),
     (b"one", BytesStyle.BASE64, "b25l")],
)  # fmt: skip
def test_bytes_are_text_where_they_are_text(data: bytes, style: BytesStyle, shown: str) -> None:
    assert shown == text_of(data, style)


@given(st.binary())
def test_text_of_bytes_is_those_bytes(data: bytes) -> None:
    text = plain_text(data)

    assert text is None or text.encode() == data


def test_lines_and_tabs_are_text() -> None:
    assert "a\n\tb\r\n" == plain_text(b"a\n\tb\r\n")


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("订单", 4), ("e\u0301", 1), ("", 0)])
def test_width_is_in_columns_of_a_terminal(text: str, width: int) -> None:
    assert width == text_width(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), json_values, max_size=3) | st.lists(json_values, max_size=3))
def test_bytes_of_json_are_the_object_or_list_that_they_are(value: object) -> None:
    assert value == json_of(json.dumps(value).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        b"17",
        b'"text"',
        b"{",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": 0.12345678901234567890}',
        b'{"a": 1, "a": 2}',
        b'["\\ud800"]',
        b"[" * 100_000,
        '{"a": 1}'.encode("utf-16-le"),
        b'["\xff"]',
    ],
)
def test_what_is_no_json_or_would_not_keep_its_value_is_none(data: bytes) -> None:
    assert json_of(data) is None


@given(st.binary())
def test_no_bytes_break_the_look_for_json(data: bytes) -> None:
    json_of(b"{" + data)
    json_of(b"[" + data)


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
