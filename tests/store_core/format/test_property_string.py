# SPDX-License-Identifier: Apache-2.0
"""Writing properties strings, and removing items from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import InvalidOptionError
from store_core.format.properties import (
    PropertyMap,
    delete_property,
    format_properties,
    parse_decoded_properties,
    parse_properties,
    to_utf8,
)
from store_core.format.record.delayed import delay_level, parse_delay_levels

NAMES = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=4)


@given(st.dictionaries(NAMES, NAMES), st.sampled_from(["4.3", "4.9", "5.3"]))
def test_what_is_written_is_read(properties: dict[str, str], release: str) -> None:
    text = format_properties(properties, release)

    assert properties == parse_properties(text)
    assert (release == "4.9" or not properties) is not text.endswith("\x02")


@pytest.mark.parametrize(("release", "expected"), [("4.3", "a\x01null\x02"), ("4.9", ""), ("5.3", "")])
def test_missing_value_is_text_in_4_3_only(release: str, expected: str) -> None:
    assert expected == format_properties({"a": None}, release)


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


def test_message_without_delay_has_level_0() -> None:
    assert 0 == delay_level({}) == delay_level({"DELAY": None})


@pytest.mark.parametrize("text", ["", "1", "s", "1s  2s", "1s 2w", "1.5s"])
def test_delay_levels_that_make_no_sense_are_named(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="a delay level is a number and s, m, h or d"):
        parse_delay_levels(text)
