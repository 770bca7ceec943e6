# SPDX-License-Identifier: Apache-2.0
"""Properties strings: two parsers, compared with RocketMQ's answers and with a transcript of its rules; and writing."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import InvalidOptionError
from store_core.format.properties import (
    PropertyMap,
    PropertyParser,
    crc_property,
    decode_text,
    delete_property,
    format_properties,
    parse_decoded_properties,
    parse_properties,
    to_utf8,
)
from store_core.format.record.delayed import delay_level, parse_delay_levels

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


# --- property CRC ---

crc32 = crcmod.predefined.mkCrcFun("crc-32")
CRC_PROPERTY_SIZE = 20


def test_crc_digits_of_a_store_match_the_bytes_of_its_records(golden: Callable[[str], UnpackedStore]) -> None:
    store = golden("5.3.3/propcrc")
    size = store.segments[0].stat().st_size
    log = b"".join(path.read_bytes() for path in store.segments)
    checked = 0
    for row, stored in zip(store.expected(), store.raw_properties(), strict=True):
        begin = row["physical_offset"] - int(store.segments[0].name)
        record = log[begin : begin + row["store_size"]]
        assert begin // size == (begin + row["store_size"] - 1) // size
        assert stored[-CRC_PROPERTY_SIZE:] == crc_property(crc32(record[:-CRC_PROPERTY_SIZE]) & 0x7FFFFFFF)
        checked += 1
    assert checked == 462


NAMES = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=4)


@given(st.dictionaries(NAMES, NAMES), st.sampled_from(["4.3", "4.9", "5.3"]))
def test_what_is_written_is_read(properties: dict[str, str], release: str) -> None:
    text = format_properties(properties, release)

    assert properties == parse_properties(text)
    assert (release == "4.9" or not properties) is not text.endswith("\x02")


def test_decoded_map_of_5_3_has_an_order_of_its_own() -> None:
    text = "REAL_TOPIC\x01a\x02KEYS\x01b\x02TAGS\x01c\x02REAL_QID\x01d\x02"

    assert text == format_properties(parse_decoded_properties(text, "4.3"), "4.3")
    expected = "TAGS\x01c\x02KEYS\x01b\x02REAL_TOPIC\x01a\x02REAL_QID\x01d\x02"
    assert expected == format_properties(parse_decoded_properties(text, "5.3"))


def test_map_keeps_its_buckets_when_a_key_goes() -> None:
    crowded = PropertyMap((f"name{number}", "") for number in range(13))

    assert (32, 32) == (crowded.buckets, crowded.without("name0").buckets)
    assert "name0" not in crowded.without("name0")


def test_key_put_again_goes_to_the_end_of_its_bucket() -> None:
    colliding = PropertyMap({"AaAa": "1", "BBBB": "2"})
    again = colliding.without("AaAa")
    again["AaAa"] = "3"
    replaced = PropertyMap(colliding)
    replaced["AaAa"] = "3"

    assert "BBBB\x012\x02AaAa\x013\x02" == format_properties(again)
    assert "AaAa\x013\x02BBBB\x012\x02" == format_properties(replaced)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a\x01b\x02", "a\x01b\x02"),
        ("X\x01b\x02", ""),
        ("X\x01b", ""),
        ("a\x01b\x02X\x01c", "a\x01b\x02"),
        ("X\x01b\x02a\x01X\x01\x02", "a\x01X\x01\x02"),
        ("aX\x01b\x02X\x02Xa\x01b\x02", "aX\x01b\x02X\x02Xa\x01b\x02"),
        ("X\x01\x02\x02X\x01b\x02c", "\x02c"),
        ("a\x01\x02X\x01b\x02X\x01c\x02d\x01e", "a\x01\x02d\x01e"),
    ],
)
def test_items_of_a_name_are_cut_out(text: str, expected: str) -> None:
    assert expected == delete_property(text, "X")


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    assert b"a?b" == to_utf8("a\ud800b")


@pytest.mark.parametrize(
    ("text", "level"), [("3", 3), ("+3", 3), ("-3", -3), ("0018", 18), ("2147483647", 2**31 - 1), ("\u0663", 3)]
)
def test_delay_level_is_read_as_java_reads_integers(text: str, level: int) -> None:
    assert level == delay_level({"DELAY": text})


@pytest.mark.parametrize("text", ["", " 3", "3 ", "1_0", "2147483648", "0x3", "+", "three"])
def test_delay_level_that_java_would_not_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="property DELAY is not a 32-bit integer"):
        delay_level({"DELAY": text})


@pytest.mark.parametrize("text", ["", "1", "s", "1s  2s", "1s 2w", "1.5s"])
def test_delay_levels_that_make_no_sense_are_named(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="a delay level is a number and s, m, h or d"):
        parse_delay_levels(text)
