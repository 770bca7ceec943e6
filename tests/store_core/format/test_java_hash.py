# SPDX-License-Identifier: Apache-2.0
"""Hashes equal Java 17's, and the vectorised ones equal the definition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar.java_hashes import hash_codes, hash_slices
from store_core.format.java import hash_code, tags_code
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


@pytest.mark.parametrize(
    ("tags", "code"), [(None, 0), ("", 0), ("TagA", 2598919), ("TagA||TagB", hash_code("TagA||TagB"))]
)
def test_tags_code_is_the_hash_of_all_tags_or_0(tags: str | None, code: int) -> None:
    assert tags_code(tags) == code
