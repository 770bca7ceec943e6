# SPDX-License-Identifier: Apache-2.0
"""The two parsers of the properties string, compared with RocketMQ's answers and with a transcript of its rules."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.properties import (
    PropertyParser,
    decode_text,
    parse_properties,
    property_crc_digits,
    split_keys,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.golden_stores import UnpackedStore

GOLDEN = Path(__file__).parents[2] / "golden"
FIRST, EXACT = PropertyParser.FIRST_SEPARATOR, PropertyParser.EXACT_PAIR


@pytest.mark.parametrize("version", ["4.3.0", "4.9.7", "5.3.3"])
def test_odd_properties_parse_as_that_release_parsed_them(version: str) -> None:
    lines = GOLDEN.joinpath(f"rocketmq-{version}/odd_properties.jsonl").read_text(encoding="utf-8").splitlines()
    parser = PropertyParser.of_release(version.rpartition(".")[0])
    for line in map(json.loads, lines):
        text = decode_text(base64.b64decode(line["propertiesRaw"]))

        assert parse_properties(text, parser) == line["properties"]
    assert len(lines) == 12


@pytest.mark.parametrize(("release", "parser"), [("4.3", EXACT), ("4.9", FIRST), ("5.3", FIRST)])
def test_each_release_has_its_parser(release: str, parser: PropertyParser) -> None:
    assert PropertyParser.of_release(release) is parser


@pytest.mark.parametrize("parser", PropertyParser)
@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("\x02\x02", {}),
        ("a", {}),
        ("a\x01", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        ("a\x01b\x02c\x01d\x02", {"a": "b", "c": "d"}),
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),
        ("a\x01b\x02junk\x02c\x01d\x02", {"a": "b", "c": "d"}),
        ("TAGS\x01 \x02", {"TAGS": " "}),
    ],
)
def test_both_parsers_agree_on_regular_items(parser: PropertyParser, text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text, parser) == properties


@pytest.mark.parametrize(
    ("text", "first", "exact"),
    [
        ("a\x01b\x01c\x02", {"a": "b\x01c"}, {}),
        ("a\x01\x01b\x02", {"a": "\x01b"}, {}),
        ("a\x01b\x01\x02", {"a": "b\x01"}, {"a": "b"}),
        ("a\x01b\x01\x01\x02", {"a": "b\x01\x01"}, {"a": "b"}),
        ("a\x01\x01\x02", {"a": "\x01"}, {}),
        ("\x01b\x02", {}, {"": "b"}),
        ("\x01\x01\x02", {}, {}),
        ("a\x01b\x02a\x01c\x01d", {"a": "c\x01d"}, {"a": "b"}),
        ("a\x01b\x02a\x01\x02", {"a": "b"}, {"a": "b"}),
    ],
)
def test_the_parsers_differ_on_odd_items(text: str, first: dict[str, str], exact: dict[str, str]) -> None:
    assert parse_properties(text, FIRST) == first
    assert parse_properties(text, EXACT) == exact


def walk_separators(text: str) -> dict[str, str]:
    """Read item by item with positions, as the rules of 4.9.1 and later are worded."""
    properties = {}
    begin = 0
    while begin < len(text):
        end = text.find("\x02", begin)
        end = len(text) if end < 0 else end
        if end - begin >= 3:
            separator = text.find("\x01", begin)
            if begin < separator < end - 1:
                properties[text[begin:separator]] = text[separator + 1 : end]
        begin = end + 1
    return properties


def walk_parts(text: str) -> dict[str, str]:
    """Read item by item as the rules up to 4.9.0 are worded: split, drop empty parts at the end, count."""
    properties = {}
    for item in text.split("\x02"):
        parts = item.split("\x01")
        while parts and not parts[-1]:
            parts.pop()
        if len(parts) == 2:
            properties[parts[0]] = parts[1]
    return properties


odd_text = st.text("ab\x01\x02é😀", max_size=30)


@given(odd_text)
def test_any_text_parses_by_the_rules_of_later_releases(text: str) -> None:
    assert parse_properties(text, FIRST) == walk_separators(text)


@given(odd_text)
def test_any_text_parses_by_the_rules_of_earlier_releases(text: str) -> None:
    assert parse_properties(text, EXACT) == walk_parts(text)


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ("80", "�"),
        ("c2", "�"),
        ("ff", "�"),
        ("c080", "��"),
        ("e08080", "���"),
        ("e18041", "�A"),
        ("f180", "�"),
        ("f4908080", "����"),
        ("ed9f80", "\ud7c0"),
        ("eda080", "�"),
        ("edbf80", "�"),
        ("eda0", "�"),
        ("edbf41", "�A"),
        ("eda002", "�\x02"),
        ("eda080edb080", "��"),
        ("e4b8ad", "中"),
    ],
)
def test_malformed_utf8_becomes_what_java_makes_of_it(stored: str, text: str) -> None:
    """The texts are those of ``new String(bytes, UTF_8)`` in Java 17."""
    assert decode_text(bytes.fromhex(stored)) == text


@given(st.binary())
def test_no_bytes_are_too_odd_to_decode(data: bytes) -> None:
    assert "\ufffd" not in decode_text(data) or "\ufffd".encode() in data or _is_malformed(data)


def _is_malformed(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


@pytest.mark.parametrize(
    ("keys", "split"),
    [("", []), (" ", []), ("k", ["k"]), ("k1 k2", ["k1", "k2"]), (" k1  k2 ", ["k1", "k2"]), ("k\tk", ["k\tk"])],
)
def test_keys_split_at_blanks_and_empty_ones_vanish(keys: str, split: list[str]) -> None:
    assert split_keys(keys) == split


# --- property CRC ---

crc32 = crcmod.predefined.mkCrcFun("crc-32")
CRC_PROPERTY_SIZE = 20


@pytest.mark.parametrize(
    ("crc", "digits"),
    [(1746536646, "6466356471"), (0, "0000000000"), (1, "1000000000"), (0x7FFFFFFF, "7463847412"), (190, "0910000000")],
)
def test_crc_digits_are_ten_least_significant_first(crc: int, digits: str) -> None:
    assert property_crc_digits(crc) == digits


def test_crc_digits_of_a_store_match_the_bytes_of_its_records(golden: Callable[[str], UnpackedStore]) -> None:
    store = golden("5.3.3/propcrc")
    size = store.segments[0].stat().st_size
    log = b"".join(path.read_bytes() for path in store.segments)
    checked = 0
    for row, stored in zip(store.expected(), store.raw_properties(), strict=True):
        begin = row["physical_offset"] - int(store.segments[0].name)
        record = log[begin : begin + row["store_size"]]
        assert begin // size == (begin + row["store_size"] - 1) // size
        digits = property_crc_digits(crc32(record[:-CRC_PROPERTY_SIZE]) & 0x7FFFFFFF)
        assert stored[-CRC_PROPERTY_SIZE:] == f"__CRC32#\x01{digits}\x02".encode()
        checked += 1
    assert checked == 462
