# SPDX-License-Identifier: Apache-2.0
"""Hashes, the order of a ``HashMap`` and integers are those of Java 17; vectorised hashes equal the definition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format import java
from store_core.format.columnar.java_hashes import hash_codes, hash_slices
from store_core.format.java import (
    INT_BITS,
    LONG_BITS,
    SHORT_BITS,
    hash_code,
    hash_map_capacity,
    hash_map_order,
    parse_java_int,
    spread_hash,
    wrap,
)
from store_core.format.properties import decode_text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("\0", 0),
        ("a", 97),
        (" ", 32),
        ("\u00ff", 255),
        ("TagA", 2598919),
        ("TagA || TagB", 1359775119),
        ("TopicA#k1", -1903240649),
        ("polygenelubricants", -(1 << 31)),
        ("z" * 20, 1718487168),
        ("中文", 646394),
        ("😀", 1772899),
        ("a😀b", 57849694),
        ("\ud83d", 55357),
        ("\ude00\ud83d", 1817149),
    ],
)
def test_hash_is_that_of_java(text: str, code: int) -> None:
    assert hash_code(text) == code


@given(st.text())
def test_hash_fits_an_int_and_grows_unit_by_unit(text: str) -> None:
    units = text.encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = value * 31 + int.from_bytes(units[at : at + 2], "big")

    assert (hash_code(text) - value) % (1 << 32) == 0
    assert -(1 << 31) <= hash_code(text) < 1 << 31


any_texts = st.lists(st.none() | st.text() | st.text("abc") | st.sampled_from(["TagA", "😀", "x" * 300]), max_size=40)


@given(any_texts)
def test_hashes_of_many_equal_those_of_each(texts: list[str | None]) -> None:
    expected = [hash_code(text or "") for text in texts]

    assert hash_codes(pa.array(texts, pa.string())).tolist() == expected


@given(any_texts, st.integers(0, 45), st.integers(0, 45))
def test_hashes_of_a_slice_are_those_of_its_texts(texts: list[str | None], begin: int, length: int) -> None:
    expected = [hash_code(text or "") for text in texts[begin : begin + length]]

    assert hash_codes(pa.array(texts, pa.string()).slice(begin, length)).tolist() == expected


any_bytes = (
    st.text().map(str.encode)
    | st.binary(max_size=9)
    | st.sampled_from(
        [b"", b"12345678", b"x" * 64, b"x" * 65, b"\xed\xa0\x80", b"\xe4\xb8", "a\U0001f600".encode() * 40]
    )
)
same_length = st.integers(1, 70).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=9))
texts_before = st.lists(st.text(max_size=5), min_size=60, max_size=60)


@given(st.lists(any_bytes, max_size=60) | same_length, texts_before)
def test_hashes_of_slices_are_those_of_the_texts_that_java_reads(pieces: list[bytes], before: list[str]) -> None:
    texts = [decode_text(piece) for piece in pieces]
    stops = np.cumsum([0, *map(len, pieces)]).astype(np.int64)
    data = np.frombuffer(b"".join(pieces), np.uint8)
    prefixes = np.array([hash_code(text) for text in before[: len(pieces)]], np.int32)

    assert [hash_code(text) for text in texts] == hash_slices(data, stops[:-1], stops[1:]).tolist()

    joined = hash_slices(data, stops[:-1], stops[1:], prefixes).tolist()
    assert [hash_code(first + text) for first, text in zip(before, texts, strict=False)] == joined


ON_SEND = ("TAGS", "KEYS", "WAIT", "UNIQ_KEY", "CLUSTER", "DELAY", "REAL_TOPIC", "REAL_QID")
PARTS = ("Aa", "BB")
COLLIDING = tuple("".join(PARTS[number >> place & 1] for place in range(4)) for number in range(10))


@pytest.mark.parametrize(
    ("names", "capacity", "expected"),
    [
        (ON_SEND, 16, "REAL_TOPIC KEYS UNIQ_KEY CLUSTER WAIT DELAY TAGS REAL_QID"),
        (ON_SEND, 128, "UNIQ_KEY CLUSTER DELAY TAGS KEYS WAIT REAL_TOPIC REAL_QID"),
        (("AaAa", "BBBB", "AaBB", "BBAa"), 16, "AaAa BBBB AaBB BBAa"),
        (
            tuple(f"name{number}" for number in range(20)),
            16,
            (
                "name19 name18 name17 name16 name6 name15 name5 name14 name4 name13 name3 name12 name11 name9 name10 "
                "name8 name7 name2 name1 name0"
            ),
        ),
        ((*COLLIDING, "z"), 16, " ".join((*COLLIDING, "z"))),
        (tuple(chr(32 + 16 * number) for number in range(12)), 16, "  @ ` \x80 \xa0 \xc0 0 P p \x90 \xb0 \xd0"),
    ],
)
def test_keys_come_in_the_order_of_java(names: tuple[str, ...], capacity: int, expected: str) -> None:
    assert expected == " ".join(hash_map_order(names, hash_map_capacity(names, capacity)))


@pytest.mark.parametrize(
    ("names", "capacity", "expected"),
    [
        ((), 16, 16),
        (tuple("abcdefghijkl"), 16, 16),
        (tuple("abcdefghijklm"), 16, 32),
        (COLLIDING[:8], 16, 16),
        (COLLIDING[:9], 16, 32),
        (COLLIDING, 16, 64),
        (COLLIDING, 128, 128),
        (tuple(map(str, range(97))), 128, 256),
    ],
)
def test_map_grows_when_it_or_a_bucket_is_crowded(names: tuple[str, ...], capacity: int, expected: int) -> None:
    assert expected == hash_map_capacity(names, capacity)


@given(st.lists(st.text(max_size=3), unique=True, max_size=30))
def test_order_keeps_all_keys_and_follows_the_buckets(names: list[str]) -> None:
    capacity = hash_map_capacity(names)
    order = hash_map_order(tuple(names), capacity)

    assert sorted(names) == sorted(order)
    buckets = [spread_hash(name) & (capacity - 1) for name in order]
    assert sorted(buckets) == buckets


def test_what_is_kept_of_maps_does_not_grow_with_them() -> None:
    known = java._known_order.cache_info().currsize, java._known_hash.cache_info().currsize
    many, long = tuple(f"name{number}" for number in range(65)), "n" * 1025

    orders = hash_map_order(many), hash_map_order((long, "b"))

    assert [set(each) for each in orders] == [set(many), {long, "b"}]
    assert java._known_order.cache_info().currsize == known[0]
    assert java._known_hash.cache_info().currsize <= known[1] + len(many) + 1


widths = st.sampled_from([SHORT_BITS, INT_BITS, LONG_BITS])


@given(st.integers(-(1 << 70), 1 << 70), widths)
def test_integers_that_fit_are_read_and_others_refused(value: int, bits: int) -> None:
    if -(1 << bits - 1) <= value < 1 << bits - 1:
        assert parse_java_int(str(value), bits) == value
    else:
        with pytest.raises(ValueError, match=f"not an integer of {bits} bits"):
            parse_java_int(str(value), bits)


@pytest.mark.parametrize(
    ("text", "value"), [("+7", 7), ("-0", 0), ("007", 7), ("\u0661\uff12", 12), ("0" * 9000 + "5", 5)]
)
def test_forms_that_java_reads(text: str, value: int) -> None:
    assert parse_java_int(text, SHORT_BITS) == value


@pytest.mark.parametrize(
    "text", ["", "+", "-", " 1", "1 ", "1\n", "1_0", "0x1", "1.0", "+-1", "--1", "\U0001d7cf", "\u00b2"]
)
def test_forms_that_java_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="not a decimal integer"):
        parse_java_int(text, INT_BITS)


@pytest.mark.parametrize("text", ["1" + "0" * 9000, "-" + "9" * 9000])
def test_very_long_numbers_are_refused_like_others_that_do_not_fit(text: str) -> None:
    with pytest.raises(ValueError, match="not an integer of 64 bits"):
        parse_java_int(text, LONG_BITS)


@given(st.integers(), widths)
def test_wrapping_keeps_the_lowest_bits(value: int, bits: int) -> None:
    wrapped = wrap(value, bits)

    assert (wrapped - value) % (1 << bits) == 0
    assert -(1 << bits - 1) <= wrapped < 1 << bits - 1
