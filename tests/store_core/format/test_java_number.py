# SPDX-License-Identifier: Apache-2.0
"""Integers as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.java import INT_BITS, LONG_BITS, SHORT_BITS, parse_java_int, wrap

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
