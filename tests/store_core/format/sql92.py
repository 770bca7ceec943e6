# SPDX-License-Identifier: Apache-2.0
"""SQL92 filter expressions, and properties to evaluate them on: with RocketMQ's answers, and generated ones."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from store_core.errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.format.filter.sql92_expression import Sql92Expression

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
