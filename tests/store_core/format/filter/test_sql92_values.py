# SPDX-License-Identifier: Apache-2.0
"""Values are read and compared as in Java."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import FilterError
from store_core.format.filter.sql92_values import Long, Value, equal, greater, less, negate

NAN = math.nan
INT = 2**31 - 1
LONG = 2**63 - 1
FIVE = "\N{ARABIC-INDIC DIGIT FIVE}"
BOLD_FIVE = "\N{MATHEMATICAL BOLD DIGIT FIVE}"


@pytest.mark.parametrize(
    ("text", "number"),
    [("5", 5), ("+5", 5), ("-5", -5), ("0" * 5000 + "5", 5), ("-" + "0" * 5000 + "7", -7), (FIVE, 5), ("-0", 0)],
)
def test_strings_are_whole_numbers_as_in_java(text: str, number: int) -> None:
    assert equal(text, number) is True
    assert equal(text, Long(number)) is True
    assert equal(number, text) is True


@pytest.mark.parametrize(
    "text", ["", "+", "-", " 5", "5 ", "5.0", "5_0", "1e3", "0x5", "+-5", BOLD_FIVE, "x", "5L", "9" * 5000]
)
def test_other_strings_are_no_whole_numbers(text: str) -> None:
    for number in (5, Long(5)):
        with pytest.raises(FilterError, match="expected a whole number of"):
            equal(text, number)


def test_a_string_is_read_by_the_type_of_the_number() -> None:
    assert equal(str(INT), INT) is True
    assert equal(str(INT + 1), Long(INT + 1)) is True
    assert equal(str(-INT - 1), -INT) is False
    assert equal(str(LONG), Long(LONG)) is True
    for text, number in ((str(INT + 1), 1), (str(-INT - 2), 1), (str(LONG + 1), Long(1)), (str(-LONG - 2), Long(1))):
        with pytest.raises(FilterError):
            equal(text, number)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5.0),
        (" \t5.5\n\x00", 5.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1E+3", 1000.0),
        ("1d", 1.0),
        ("1F", 1.0),
        ("1e5f", 1e5),
        ("0x10p0", 16.0),
        ("-0X.8P1D", -1.0),
        ("0x1p99999999999", math.inf),
        ("-0x1p99999999999", -math.inf),
        ("1e999", math.inf),
        ("-Infinity", -math.inf),
        ("NaN", NAN),
        ("-NaN", NAN),
        ("1" * 400, math.inf),
    ],
)
def test_strings_are_doubles_as_in_java(text: str, number: float) -> None:
    assert equal(text, number) is True


@pytest.mark.parametrize(
    "text", ["", " ", ".", "e5", "1e", "nan", "inf", "infinity", "1_0", "0x10", "0xp0", FIVE, "1dd", "+ 5"]
)
def test_other_strings_are_no_doubles(text: str) -> None:
    with pytest.raises(FilterError, match="expected a number, found"):
        equal(text, 5.5)


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        (NAN, NAN, 0),
        (NAN, math.inf, 1),
        (-0.0, 0.0, -1),
        (0.0, -0.0, 1),
        (5, 5.0, 0),
        (Long(2**53 + 1), float(2**53), 0),
        (Long(5), 5, 0),
        ("5.0", "5", 0),
        ("-0.0", "0", -1),
        ("NaN", "1e999", 1),
        ("10", "9", 1),
    ],
)
def test_numbers_compare_as_in_java(left: Value, right: Value, order: int) -> None:
    assert (order < 0, order > 0) == (less(left, right), greater(left, right))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (None, None, True),
        (None, "x", None),
        ("x", None, False),
        ("TrUe", True, True),
        ("yes", False, True),
        (True, 1, False),
        (1, True, False),
        (True, True, True),
        ("5", "5.0", False),
    ],
)
def test_equality_has_java_s_surprises(left: Value, right: Value, *, expected: bool | None) -> None:
    assert equal(left, right) is expected


def test_a_boolean_can_not_stand_before_a_string() -> None:
    with pytest.raises(FilterError, match="a boolean on the left"):
        equal(True, "true")


@given(st.integers(-LONG, LONG))
def test_a_long_stays_one_when_negated(number: int) -> None:
    assert isinstance(negate(Long(number)), Long)
    assert -number == negate(Long(number))


@given(st.binary(min_size=8, max_size=8).map(lambda bits: struct.unpack("d", bits)[0]))
def test_a_double_equals_its_own_text(number: float) -> None:
    text = repr(number).replace("inf", "Infinity").replace("nan", "NaN")

    assert equal(text, number) is True
