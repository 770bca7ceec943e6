# SPDX-License-Identifier: Apache-2.0
"""Evaluation on columns equals evaluation on each message."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import FilterError
from store_core.format.columns import MAP_TYPE
from store_core.format.filter.sql92_columns import Verdicts, evaluate_columns, evaluate_maps, property_columns
from store_core.format.filter.sql92_expression import Sql92Expression
from tests.store_core.format.sql92 import expressions, property_maps, read_answers, verdict

NAMES = ["false", "true", "null", "error"]
digits = st.text("0123456789", max_size=12)
texts = st.one_of(digits, digits.map("-{}".format), st.text("01-+. ée", max_size=5))


def maps_of(rows: list[dict[str, str] | None]) -> pa.MapArray:
    return pa.array([None if row is None else list(row.items()) for row in rows], MAP_TYPE)


def verdicts(found: Verdicts) -> list[str]:
    return [NAMES[code] for code in found.codes.tolist()]


@pytest.mark.golden
@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_every_answer_is_that_of_rocketmq(release: str) -> None:
    maps, answers = read_answers(release)
    compiling = [answer for answer in answers if answer.verdicts is not None]
    found = [verdicts(evaluate_maps(Sql92Expression(answer.text, release), maps_of([*maps]))) for answer in compiling]

    assert [answer.verdicts for answer in compiling] == found


@given(st.lists(expressions, min_size=1, max_size=4), st.lists(property_maps | st.none(), max_size=12))
def test_columns_equal_each_message(texts: list[str], rows: list[dict[str, str] | None]) -> None:
    for text in texts:
        try:
            expression = Sql92Expression(text)
        except FilterError:
            continue
        expected = [verdict(expression, row or {}) for row in rows]
        found = evaluate_maps(expression, maps_of(rows))

        assert expected == verdicts(found)
        assert [name == "true" for name in expected] == found.matches.tolist()
        assert expected.count("error") == found.error_count


@given(
    st.lists(texts | st.none(), max_size=20),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    st.sampled_from(["0", "5", "-7", "999999999", "3000000000", "-3000000000", "5.5", "-1e3", "'5'", "'-7'"]),
    st.booleans(),
)
def test_strings_against_a_literal_equal_each(
    rows: list[str | None], operator: str, literal: str, is_left: bool
) -> None:
    if literal.startswith("'") and operator not in {"=", "<>"}:
        operator = "="
    expression = Sql92Expression(f"{literal} {operator} a" if is_left else f"a {operator} {literal}")
    column = pa.array(["", *rows], pa.string())[1:]
    expected = [verdict(expression, {} if row is None else {"a": row}) for row in rows]

    assert expected == verdicts(evaluate_columns(expression, {"a": column}, len(rows)))


def test_two_properties_of_many_values_are_joined_by_pairs() -> None:
    rows = [{"a": str(number % 37), "b": str(number % 41)} for number in range(2000)]
    expression = Sql92Expression("a > b OR a = b")

    assert [verdict(expression, row) for row in rows] == verdicts(evaluate_maps(expression, maps_of([*rows])))


def test_a_slice_of_maps_gives_its_own_rows() -> None:
    rows: list[dict[str, str] | None] = [{"a": "1"}, {"b": "2"}, None, {"a": "3", "b": "4"}, {}, {"a": "5"}]
    columns = property_columns(maps_of(rows)[1:5], ["a", "b", "c"])

    assert {"a": [None, None, "3", None], "b": ["2", None, "4", None], "c": [None] * 4} == {
        name: column.to_pylist() for name, column in columns.items()
    }


def test_of_a_name_that_comes_twice_the_last_value_counts() -> None:
    maps = pa.array([[("a", "1"), ("a", "2"), ("b", "3")]], MAP_TYPE)

    assert ["2"] == property_columns(maps, ["a"])["a"].to_pylist()


def test_maps_of_another_arrow_type_are_cast() -> None:
    maps = pa.array([[("a", "5")], []], pa.map_(pa.large_string(), pa.large_string()))

    assert ["true", "null"] == verdicts(evaluate_maps(Sql92Expression("a = 5"), maps))


@pytest.mark.parametrize("text", ["TRUE", "NULL", "a = 5", "1 = 2"])
@pytest.mark.parametrize("count", [0, 3])
def test_without_properties_there_is_a_verdict_a_row(text: str, count: int) -> None:
    expression = Sql92Expression(text)
    found = evaluate_maps(expression, maps_of([{}] * count))

    assert [verdict(expression, {})] * count == verdicts(found)
    assert found.codes.dtype == np.intp
