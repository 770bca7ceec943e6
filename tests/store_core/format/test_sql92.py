# SPDX-License-Identifier: Apache-2.0
"""SQL92 filters match as RocketMQ's do, on messages and on columns, and no text can exhaust time or stack."""

from __future__ import annotations

import json
import lzma
import math
import pickle
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from store_core.errors import FilterError
from store_core.format.columns import MAP_TYPE
from store_core.format.filter.sql92_columns import Verdicts, evaluate_columns, evaluate_maps, property_columns
from store_core.format.filter.sql92_parser import MOST_CHARACTERS, Sql92Expression, failure_of
from store_core.format.filter.sql92_values import Long, Value, equal, greater, less, negate

if TYPE_CHECKING:
    from collections.abc import Mapping


_ANSWERS: Final = Path(__file__).parents[2] / "golden" / "answers" / "sql92_cases.jsonl.xz"
_VERSIONS: Final = {"4.3": "4.3.0", "4.9": "4.9.7"}
_VERDICTS: Final = {True: "true", False: "false", None: "null"}


@dataclass(frozen=True, slots=True)
class Answer:
    """RocketMQ's results for an expression: a verdict for each property map, None if it does not compile."""

    text: str
    verdicts: list[str] | None


def read_answers(release: str) -> tuple[list[dict[str, str]], list[Answer]]:
    """Read the property maps and RocketMQ's answers."""
    with lzma.open(_ANSWERS, "rt", encoding="utf-8") as stream:
        lines: list[dict[str, Any]] = [json.loads(line) for line in stream]
    maps = next([case["properties"] for case in line["cases"]] for line in lines if "cases" in line)
    return maps, [Answer(line["expr"], _answer(line, release)) for line in lines]


def _answer(line: dict[str, Any], release: str) -> list[str] | None:
    version = _VERSIONS.get(release)
    if version is not None and not line[f"same_in_{version}"]:
        other: str | list[str] = line[f"verdicts_{version}"]
        return other if isinstance(other, list) else None
    return [case["verdict"] for case in line["cases"]] if "cases" in line else None


def verdict(expression: Sql92Expression, properties: Mapping[str, str]) -> str:
    """Evaluate an expression on one message: "true", "false", "null" or "error"."""
    try:
        return _VERDICTS[expression.evaluate(properties)]
    except FilterError:
        return "error"


# --- generated expressions: each compiles, or nearly ---

_NAMES: Final = st.sampled_from(["a", "b", "c", "TAGS"])
_STRINGS: Final = st.sampled_from(["'5'", "'x'", "''", "'abc'", "'true'", "'it''s'", "'é'"])
_NUMBERS: Final = st.sampled_from(
    ["5", "0", "7L", "3000000000", "999999999", "1000000000", "5.5", "1e3", ".5", "2147483647"]
)
_TRUTHS: Final = st.sampled_from(["TRUE", "FALSE"])
_ORDERINGS: Final = st.sampled_from([">", ">=", "<", "<="])
_EQUALITIES: Final = st.sampled_from(["=", "<>"])
_MAYBE_NOT: Final = st.sampled_from(["", " NOT"])
_PREDICATES: Final = st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"])
_TESTS: Final = st.sampled_from(["IS NULL", "IS NOT NULL"])

_numeric: Final = _NAMES | _NUMBERS | _NUMBERS.map("-{}".format) | _NAMES.map("-{}".format)
_values: Final = _NAMES | _STRINGS | _NUMBERS | _TRUTHS
_leaves: Final = st.one_of(
    st.builds("{} {} {}".format, _numeric, _ORDERINGS, _numeric),
    st.builds("{} {} {}".format, _NAMES, _EQUALITIES, _values),
    st.builds("{} {} {}".format, _values, _EQUALITIES, _NAMES),
    st.builds("{}{} BETWEEN {} AND {}".format, _numeric, _MAYBE_NOT, _numeric, _numeric),
    st.builds("{}{} IN ({})".format, _NAMES, _MAYBE_NOT, st.lists(_STRINGS, min_size=1, max_size=3).map(",".join)),
    st.builds("{}{} {} {}".format, _values, _MAYBE_NOT, _PREDICATES, _STRINGS),
    st.builds("{} {}".format, _values, _TESTS),
    _NAMES,
    _TRUTHS,
)


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    nested = inner.map("({})".format)
    return st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR"]), inner),
        nested.map("NOT {}".format),
        st.builds("{} {}".format, nested, _TESTS),
        st.builds("{} {} {}".format, nested, _EQUALITIES, _values),
        st.builds("{} > -{}".format, _NAMES, nested),
        st.builds("{} BETWEEN -{} AND -{}".format, _NAMES, nested, nested),
        st.builds("-{} CONTAINS {}".format, nested, _STRINGS),
    )


expressions: Final = st.recursive(_leaves, _grow, max_leaves=6)
"""Expressions that use every operator; some are refused when they are compiled."""

_PROPERTY_VALUES: Final = st.sampled_from([
    "5", "5.0", "x", "abc", "true", "TRUE", "it's", "é", "", "-5", "+5", " 5", "0", "-0", "-0.0", "007", "7", "-",
    "-7-", "999999999", "1000000000", "3000000000", "9223372036854775808", "1e3", "0x1p2", "1d", "NaN", "Infinity",
    "5_0", "\u0665",
])  # fmt: skip
property_maps: Final = st.dictionaries(_NAMES, _PROPERTY_VALUES, max_size=4)
"""Properties that some parsers read as numbers and others do not."""


def compiled(text: str, release: str = "5.3") -> Sql92Expression | FilterError:
    try:
        return Sql92Expression(text, release)
    except FilterError as error:
        return error


def answer(text: str, release: str, maps: list[dict[str, str]]) -> Answer:
    found = compiled(text, release)
    verdicts = None if isinstance(found, FilterError) else [verdict(found, properties) for properties in maps]
    return Answer(text, verdicts)


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
    expression = compiled(text)
    assume(isinstance(expression, Sql92Expression))
    assert isinstance(expression, Sql92Expression)
    expected = ""
    try:
        expression.evaluate(properties)
    except FilterError as error:
        expected = error.problem

    reason = failure_of(expression, properties)
    assert bool(expected) == bool(reason)
    assert expected in reason


NAMES = ["false", "true", "null", "error"]
digits = st.text("0123456789", max_size=12)
texts = st.one_of(digits, digits.map("-{}".format), st.text("01-+. ée", max_size=5))


def maps_of(rows: list[dict[str, str] | None]) -> pa.MapArray:
    return pa.array([None if row is None else list(row.items()) for row in rows], MAP_TYPE)


def verdicts(found: Verdicts) -> list[str]:
    return [NAMES[code] for code in found.codes.tolist()]


@pytest.mark.golden
@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_columns_have_the_answers_of_rocketmq(release: str) -> None:
    maps, answers = read_answers(release)
    compiling = [answer for answer in answers if answer.verdicts is not None]
    found = [verdicts(evaluate_maps(Sql92Expression(answer.text, release), maps_of([*maps]))) for answer in compiling]

    assert [answer.verdicts for answer in compiling] == found


@given(st.lists(expressions, min_size=1, max_size=4), st.lists(property_maps | st.none(), max_size=12))
def test_columns_equal_each_message(texts: list[str], rows: list[dict[str, str] | None]) -> None:
    for text in texts:
        expression = compiled(text)
        if isinstance(expression, FilterError):
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
