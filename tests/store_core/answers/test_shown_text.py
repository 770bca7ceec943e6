# SPDX-License-Identifier: Apache-2.0
"""What a store holds can't change a terminal, and JSON keeps its value."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.answers.shown_text import (
    BytesStyle,
    escape_json,
    escape_text,
    json_of,
    plain_text,
    text_of,
    text_width,
)

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
