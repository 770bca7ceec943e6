# SPDX-License-Identifier: Apache-2.0
"""Positions of properties in many strings equal those that the parser finds in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar import property_spans
from store_core.format.columnar.property_spans import PropertyFinder
from store_core.format.properties import PropertyParser, decode_text, parse_properties
from tests import strategies

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "a", "INNER_MULTI_DISPATCH")

parsers = st.sampled_from(PropertyParser)
alike = st.lists(strategies.same_names, min_size=1, max_size=40)
mixed = st.lists(strategies.properties | st.just(b""), max_size=12)
separators = st.lists(
    st.lists(st.sampled_from([b"\x01", b"\x02", b"TAGS", b"a", b"KEYS\x01", b"x"]), max_size=9).map(b"".join),
    max_size=8,
)
rows_of_any_kind = alike | mixed | separators | st.builds(lambda one, other: one + other, alike, mixed)


@pytest.fixture(scope="module", autouse=True)
def layouts_from_the_first_string() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(property_spans, "_FEWEST_ROWS", 1)
        patch.setattr(property_spans, "_BLOCK", 100)
        patch.setattr(property_spans, "_CUT_BYTES", 60)
        yield


def find(finder: PropertyFinder, rows: list[bytes]) -> list[dict[str, str]]:
    """Return the properties found in each string, as text; strings lie with gaps between them."""
    data, starts = bytearray(b"\x02gap"), []
    for row in rows:
        starts.append(len(data))
        data += row + b"KEYS\x01between\x02"
    begin = np.array(starts, np.int64)
    lengths = np.array([len(row) for row in rows], np.int64)
    raw = np.frombuffer(bytes(data), np.uint8)
    found: list[dict[str, str]] = [{} for _ in rows]
    for name, spans in zip(NAMES, finder.find(raw, begin, begin + lengths), strict=True):
        if spans is None:
            continue
        for number in np.flatnonzero(spans.present).tolist():
            value = raw[spans.starts[number] : spans.stops[number]].tobytes()
            found[number][name] = decode_text(value)
    return found


def expected(rows: list[bytes], parser: PropertyParser) -> list[dict[str, str]]:
    parsed = (parse_properties(decode_text(row), parser) for row in rows)
    return [{name: row[name] for name in NAMES if name in row} for row in parsed]


@given(rows_of_any_kind, parsers)
def test_found_is_what_the_parser_finds(rows: list[bytes], parser: PropertyParser) -> None:
    assert expected(rows, parser) == find(PropertyFinder(NAMES, parser), rows)


@given(st.lists(rows_of_any_kind, max_size=4), parsers)
def test_what_was_learnt_of_earlier_strings_changes_nothing(batches: list[list[bytes]], parser: PropertyParser) -> None:
    finder = PropertyFinder(NAMES, parser)

    for rows in batches:
        assert expected(rows, parser) == find(finder, rows)


@pytest.mark.parametrize("parser", PropertyParser)
def test_a_string_that_fits_but_for_one_byte_is_not_of_the_layout(parser: PropertyParser) -> None:
    row = b"KEYS\x01key\x02TAGS\x01TagA\x02"
    rows = [row] + [
        row[:at] + byte + row[at + 1 :] for at in range(len(row)) for byte in (b"\0", b"\x01", b"\x02", b"z")
    ]

    assert expected(rows, parser) == find(PropertyFinder(NAMES, parser), rows)


def test_more_layouts_than_are_remembered_are_read_all_the_same() -> None:
    finder = PropertyFinder(NAMES, PropertyParser.FIRST_SEPARATOR)
    rows = [b"n%04d\x01" % number + b"v" * (number % 50) + b"\x02TAGS\x01t\x02" for number in range(300)]

    assert expected(rows, PropertyParser.FIRST_SEPARATOR) == find(finder, rows)
