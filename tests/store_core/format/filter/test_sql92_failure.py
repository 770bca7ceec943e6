# SPDX-License-Identifier: Apache-2.0
"""Why an expression fails: the property and its value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given

from store_core.errors import FilterError
from store_core.format.filter.sql92_expression import Sql92Expression, failure_of
from tests.store_core.format.sql92 import expressions, property_maps

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.parametrize(
    ("expression", "properties", "reason"),
    [
        ("a > 5", {"a": "x"}, "property a: expected a whole number of 32 bits, found 'x'"),
        ("5 < a", {"a": "x"}, "property a: expected a whole number of 32 bits, found 'x'"),
        ("b = 1 OR a = 1.5", {"a": "x", "b": "2"}, "property a: expected a number, found 'x'"),
        ("a BETWEEN 1 AND 5", {"a": "x"}, "property a: expected a whole number of 32 bits, found 'x'"),
        ("a > b", {"a": "1", "b": "x"}, "property b: expected a number, found 'x'"),
        ("TRUE = a", {"a": "x"}, "property a: a boolean on the left can't be compared with a string, found 'x'"),
        ("a > 5", {"a": "6"}, ""),
    ],
)
def test_the_property_is_named(expression: str, properties: Mapping[str, str], reason: str) -> None:
    assert reason == failure_of(Sql92Expression(expression), properties)


def test_a_decimal_beside_a_whole_number_gets_the_way_out() -> None:
    assert failure_of(Sql92Expression("a > 5"), {"a": "19.99"}).endswith("such as 30.0, it is read as a decimal")


@given(expressions, property_maps)
def test_there_is_a_reason_where_the_evaluation_fails_and_nowhere_else(text: str, properties: dict[str, str]) -> None:
    try:
        expression = Sql92Expression(text)
    except FilterError:
        assume(condition=False)
        return
    expected = ""
    try:
        expression.evaluate(properties)
    except FilterError as error:
        expected = error.problem

    reason = failure_of(expression, properties)
    assert bool(expected) == bool(reason)
    assert expected in reason
