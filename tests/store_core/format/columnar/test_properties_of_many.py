# SPDX-License-Identifier: Apache-2.0
"""Properties of many records, as positions and as columns, equal what the parser finds in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core.format.columnar import property_columns
from store_core.format.columnar.property_columns import (
    AlikeProperties,
    PropertyColumns,
    PropertyFinder,
    split_key_column,
    without_names,
)
from store_core.format.properties import PropertyParser, decode_text, first_property, parse_properties, split_keys
from tests import strategies
from tests.budgets import budget

if TYPE_CHECKING:
    from collections.abc import Iterator


NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "a", "INNER_MULTI_DISPATCH")

FIRST = PropertyParser.FIRST_SEPARATOR
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
        patch.setattr(property_columns, "_FEWEST_ROWS", 1)
        patch.setattr(property_columns, "_BLOCK", 100)
        patch.setattr(property_columns, "_CUT_BYTES", 60)
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


plain_lists = st.lists(strategies.same_names, max_size=8)
alike_lists = st.integers(1, 5).flatmap(
    lambda width: st.lists(
        st.text("ab é", min_size=width, max_size=width).map(lambda value: f"TAGS\x01{value}\x02é\x01x{value}".encode()),
        max_size=8,
    )
)
mixed_lists = st.lists(strategies.properties | st.just(b""), max_size=8)
separator_lists = st.lists(st.binary(max_size=12).map(lambda row: bytes(byte % 4 for byte in row)), max_size=6)
names = st.sampled_from(["TAGS", "KEYS", "a", "é", "not there", ""])


def columns(rows: list[bytes], parser: PropertyParser = FIRST) -> PropertyColumns:
    return PropertyColumns(pa.array(rows, pa.binary()), parser)


def maps(rows: list[bytes], parser: PropertyParser = FIRST) -> list[list[tuple[str, str]]]:
    array = columns(rows, parser).map()
    array.validate(full=True)
    found: list[list[tuple[str, str]]] = array.to_pylist()
    return found


@budget(2)
@given(plain_lists | alike_lists | mixed_lists | separator_lists, parsers)
@example([], FIRST)
@example([b""], FIRST)
@example([b""] * 3, FIRST)
@example([b"a\x01b", b"a\x01b\x02", b"", b"a\x01b\x02c\x01d"], FIRST)
@example([b"a\x01", b"b\x02", b"a", b"\x01b\x02", b"c\x01d\x02"], FIRST)
@example([b"a\x01b\x02", b"a\x01\xff\x02", b"a\x01b\x02"], FIRST)
@example([b"a\x01b\x02", b"\xff\x01b\x02", b"a\x01b\x02"], FIRST)
@example([b"a\x01b\x02", b"a\x01\xed\xa0\x80\x02", b"a\x01b\x02"], FIRST)
@example([b"a\x01b\x02", b"a\x01b\xc3\x02", b"a\x01b\x02"], FIRST)
@example([b"a\x01" + b"v" * 32_765] * 2, FIRST)
def test_maps_equal_what_the_parser_makes_of_each_row(rows: list[bytes], parser: PropertyParser) -> None:
    expected = [list(parse_properties(decode_text(row), parser).items()) for row in rows]

    assert maps(rows, parser) == expected


@given(plain_lists | alike_lists | mixed_lists, parsers, names)
@example([b""] * 3, FIRST, "TAGS")
@example([b"TAGS\x01A\x02TAGS2\x01B\x02", b"TAGS2\x01B\x02TAGS\x01A\x02"], FIRST, "TAGS")
@example([b"TAGS\x01A\x02TAGS2\x01B\x02", b"TAGS2\x01B\x02TAGS\x01A\x02"], FIRST, "TAG")
@example([b"TAGS\x01A\x02KEYS\x01B\x02", b"KEYS\x01B\x02TAGS\x01A\x02"], FIRST, "TAGS")
@example([b"TAGS\x01A\x02KEYS\x01B\x02", b"KEYS\x01B\x02TAGS\x01A\x02"], FIRST, "KEYS")
def test_a_property_equals_what_the_parser_makes_of_each_row(
    rows: list[bytes], parser: PropertyParser, name: str
) -> None:
    expected = [parse_properties(decode_text(row), parser).get(name) for row in rows]
    found = columns(rows, parser).value(name)
    found.validate(full=True)

    assert found.to_pylist() == expected
    firsts = [first_property(decode_text(row), name, parser) for row in rows]
    assert columns(rows, parser).first(name).to_pylist() == firsts


@pytest.mark.parametrize("parser", PropertyParser)
@pytest.mark.parametrize("row", [b"TAGS\x01TagA\x02a\x01b\x02", "é\x01ä\x02KEYS\x01b".encode()])
def test_a_row_that_differs_in_one_byte_from_the_others_parses_as_by_itself(row: bytes, parser: PropertyParser) -> None:
    assert AlikeProperties.of(pa.array([row] * 3, pa.binary())) is not None

    for at in range(len(row)):
        for byte in (0, 1, 2, ord("z"), 0x80, 0xC3):
            rows = [row, row[:at] + bytes([byte]) + row[at + 1 :], row]
            expected = [list(parse_properties(decode_text(row), parser).items()) for row in rows]

            assert maps(rows, parser) == expected


@given(st.lists(st.none() | st.text(" ab\té", max_size=9), max_size=8))
def test_keys_of_many_rows_split_as_those_of_each(rows: list[str | None]) -> None:
    expected = [None if row is None else split_keys(row) for row in rows]
    found = split_key_column(pa.array(rows, pa.string()))
    found.validate(full=True)

    assert found.to_pylist() == expected


MAP_NAMES = st.sampled_from(["KEYS", "TAGS", "DELAY", "é"])
MAP_ROWS = st.lists(st.none() | st.dictionaries(MAP_NAMES, st.text(max_size=3)), max_size=6)


@given(MAP_ROWS, st.integers(0, 3), st.lists(MAP_NAMES, min_size=1, max_size=2))
def test_maps_without_names_are_those_with_the_other_names(
    rows: list[dict[str, str] | None], skipped: int, names: list[str]
) -> None:
    pairs = [None if row is None else list(row.items()) for row in rows]
    maps = pa.array(pairs, pa.map_(pa.string(), pa.string())).slice(min(skipped, len(rows)))
    expected = [row and [pair for pair in row if pair[0] not in names] for row in pairs[skipped:]]

    assert expected == without_names(maps, names).to_pylist()
