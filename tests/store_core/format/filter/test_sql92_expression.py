# SPDX-License-Identifier: Apache-2.0
"""SQL92 filters match as RocketMQ's do, and no text can exhaust time or stack."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from store_core.errors import FilterError
from store_core.format.filter.sql92_expression import Sql92Expression, failure_of
from store_core.format.filter.sql92_parser import MOST_CHARACTERS
from tests.store_core.format.sql92 import Answer, expressions, property_maps, read_answers, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping


def answer(text: str, release: str, maps: list[dict[str, str]]) -> Answer:
    try:
        expression = Sql92Expression(text, release)
    except FilterError:
        return Answer(text, None)
    return Answer(text, [verdict(expression, properties) for properties in maps])


@pytest.mark.golden
@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_every_answer_is_that_of_rocketmq(release: str) -> None:
    maps, expected = read_answers(release)

    assert len(expected) == 438
    assert expected == [answer(item.text, release, maps) for item in expected]


@pytest.mark.parametrize(
    ("text", "properties", "expected"),
    [
        ("a > -(b = 5)", {"b": "x"}, "null"),
        ("a > -(b = 5)", {"a": "1", "b": "x"}, "error"),
        ("a BETWEEN 7 AND -(b = 5)", {"a": "1", "b": "x"}, "false"),
        ("a BETWEEN 0 AND -(b = 5)", {"a": "1", "b": "x"}, "error"),
        ("a NOT BETWEEN 7 AND -(b = 5)", {"a": "1", "b": "x"}, "true"),
        ("a NOT BETWEEN 0 AND -(b = 5)", {"a": "1", "b": "x"}, "error"),
        ("-(b = 5) CONTAINS ''", {"b": "x"}, "false"),
        ("-(b = 5) CONTAINS 'x'", {"b": "x"}, "error"),
        ("c = 1 AND -(b = 5) NOT CONTAINS ''", {"b": "x", "c": "1"}, "false"),
    ],
)
def test_what_is_decided_already_is_not_evaluated(text: str, properties: dict[str, str], expected: str) -> None:
    assert expected == verdict(Sql92Expression(text), properties)


@pytest.mark.parametrize("rest", [" 0.0", " 1e999", " 99999999999999999999", " b #", ".0 'x", " b /*"])
def test_of_what_follows_the_expression_only_the_first_word_must_be_one(rest: str) -> None:
    assert "true" == verdict(Sql92Expression(f"a = b{rest}"), {"a": "5", "b": "5"})


@pytest.mark.parametrize("rest", [" #", " 'x", " /* b", " !", "\x0b"])
def test_what_is_no_word_at_all_is_refused_behind_the_expression_too(rest: str) -> None:
    with pytest.raises(FilterError, match="expected a word of the language"):
        Sql92Expression(f"a = b{rest}")


def test_two_dashes_are_a_comment_only_before_the_end_of_a_line() -> None:
    assert "true" == verdict(Sql92Expression("a = --5"), {"a": "5"})
    assert "true" == verdict(Sql92Expression("a = -- 7\n 5"), {"a": "5"})
    assert "true" == verdict(Sql92Expression("a = /* 7 * 8 */ 5"), {"a": "5"})


@pytest.mark.parametrize(
    ("text", "names"),
    [("a > 5 AND b = a OR (TAGS IN ('x'))", ("a", "b", "TAGS")), ("TRUE", ()), ("a = 5 AND c CONTAINS ''", ("a",))],
)
def test_an_expression_knows_the_properties_it_looks_at(text: str, names: tuple[str, ...]) -> None:
    assert names == Sql92Expression(text).names


def compiled(text: str, release: str = "5.3") -> Sql92Expression | FilterError:
    try:
        return Sql92Expression(text, release)
    except FilterError as error:
        return error


@given(expressions, st.sampled_from(["4.3", "5.3"]), property_maps)
def test_expressions_and_their_errors_survive_pickling(text: str, release: str, properties: dict[str, str]) -> None:
    found = compiled(text, release)
    copy = pickle.loads(pickle.dumps(found))  # noqa: S301 -- our own

    assert str(found) == str(copy)
    if isinstance(found, Sql92Expression):
        assert found == copy
        assert verdict(found, properties) == verdict(copy, properties)


@given(st.text(max_size=40) | expressions, property_maps)
def test_any_text_compiles_or_is_refused_and_nothing_else_is_raised(text: str, properties: dict[str, str]) -> None:
    found = compiled(text)

    if isinstance(found, FilterError):
        assert text == found.expression or found.expression == ascii(text)
    else:
        assert verdict(found, properties) in {"true", "false", "null", "error"}


DEEP = 20_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(" * DEEP + "a = 5" + ")" * DEEP, "true"),
        ("NOT " * DEEP + "(a = 5)", "true"),
        ("a = " + "- " * DEEP + "5", "true"),
        ("a = " + "-" * DEEP + "5", "true"),
        (" OR ".join(["a = 6"] * DEEP), "false"),
        ("a = 5" + " = TRUE" * DEEP, "true"),
        ("1 = (" * DEEP + "TRUE" + ")" * DEEP, "false"),
        ("a = 5 AND (" * DEEP + "TRUE" + ")" * DEEP, "true"),
        ("-(" * DEEP + "a BETWEEN 1 AND 9" + ") BETWEEN 1 AND 9" * DEEP, "null"),
        ("a IN (" + ",".join(["'x'"] * DEEP) + ")", "false"),
    ],
    ids=["parentheses", "NOT", "signs", "dashes", "OR", "=", "nested =", "nested AND", "nested BETWEEN", "IN"],
)
def test_no_depth_is_too_deep(text: str, expected: str) -> None:
    assert expected == verdict(Sql92Expression(text), {"a": "5"})


@pytest.mark.parametrize(
    "text", ["(" * DEEP, "NOT " * DEEP, "a = " + "1" * DEEP, "'" * (2 * DEEP + 1), "/*" + "*" * DEEP, "-" * DEEP]
)
def test_what_is_never_closed_is_refused(text: str) -> None:
    with pytest.raises(FilterError):
        Sql92Expression(text)


def test_a_text_beyond_the_bound_is_refused() -> None:
    with pytest.raises(FilterError, match=f"expected at most {MOST_CHARACTERS} characters, found"):
        Sql92Expression("a = 5" + " " * MOST_CHARACTERS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a >", "expected a name, a literal or (, found the end of the text, at character 3 of filter 'a >'"),
        ("(a = 5", "expected an operator or ), found the end of the text, at character 6"),
        ("a = 5 #", "expected a word of the language, found '#', at character 6"),
        ("5", "expected a condition: a comparison, a name, TRUE, FALSE or NULL, found 5, at character 0"),
        ("a > 'x'", "expected a name or a number to compare, found 'x', at character 4"),
        ("a BETWEEN 9 AND 1", "expected an upper bound of at least 9, found 1, at character 16"),
        ("a IN (5)", "expected a string, found '5', at character 6"),
        ("a NOT 5", "expected BETWEEN, CONTAINS, ENDSWITH, IN, STARTSWITH after NOT, found '5', at character 6"),
        ("a IS TRUE", "expected NULL, found TRUE, at character 5"),
        ("a = NULL", "expected IS NULL or another operand, found NULL, at character 4"),
        ("TRUE = 1", "expected a boolean to compare with TRUE, found 1, at character 7"),
        ("a > 0.0", "expected a float that is neither 0 nor infinite, found 0.0, at character 4"),
        ("'\ud800' = a", "expected text that UTF-8 can hold"),
        ("a" * 500 + " #", "at character 501 of filter '" + "a" * 59 + " #' (cut)"),
    ],
)
def test_an_error_says_what_is_expected_and_where(text: str, says: str) -> None:
    with pytest.raises(FilterError, match=re.escape(says)):
        Sql92Expression(text)


def test_an_evaluation_error_says_what_could_not_be_compared() -> None:
    with pytest.raises(FilterError, match=r"expected a whole number of 32 bits, found '5\.0'"):
        Sql92Expression("a = 5").evaluate({"a": "5.0"})
    assert not Sql92Expression("a = 5").is_match({"a": "5.0"})


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
