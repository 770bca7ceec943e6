# SPDX-License-Identifier: Apache-2.0
"""RocketMQ and we compile the same filter expressions, and evaluate them alike on the same properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from store_core import FilterError
from store_core.format.columns import MAP_TYPE
from store_core.format.filter.sql92_columns import evaluate_maps
from store_core.format.filter.sql92_expression import Sql92Expression
from tests.interop.random_expressions import RandomExpressions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.judge import Judge

LETTERS: Final = {True: "T", False: "F", None: "N"}
REFUSED: Final = "C"
FAILED: Final = "E"


def verdicts(text: str, release: str, maps: Sequence[dict[str, str]]) -> str:
    """Evaluate an expression map by map."""
    try:
        expression = Sql92Expression(text, release)
    except FilterError:
        return REFUSED
    return "".join(verdict(expression, properties) for properties in maps)


def verdict(expression: Sql92Expression, properties: dict[str, str]) -> str:
    try:
        return LETTERS[expression.evaluate(properties)]
    except FilterError:
        return FAILED


def vectorized(text: str, release: str, maps: pa.MapArray) -> str:
    """Evaluate an expression on all maps at once."""
    return "".join("FTNE"[code] for code in evaluate_maps(Sql92Expression(text, release), maps).codes.tolist())


def assert_same_verdicts(judge: Judge, seed: int, count: int) -> int:
    """Compare expressions of a seed; return how many of them compile."""
    drawn = RandomExpressions(seed)
    maps, texts = drawn.maps(), drawn.take(count)
    asked = judge.evaluate(texts, maps)
    arrays = pa.array([list(properties.items()) for properties in maps], MAP_TYPE)
    ours = [verdicts(text, judge.release, maps) for text in texts]
    compiled = [(text, mine) for text, mine in zip(texts, ours, strict=True) if mine != REFUSED]
    for text, mine in compiled:
        assert mine == vectorized(text, judge.release, arrays), text
    for text, theirs, mine in zip(texts, asked.result()["answers"], ours, strict=True):
        assert theirs == mine, text
    return len(compiled)


def test_expressions_match_what_they_match_in_rocketmq(judge: Judge) -> None:
    assert assert_same_verdicts(judge, seed=1, count=1000) > 200


@pytest.mark.interop
@pytest.mark.parametrize("seed", range(400, 403))
def test_more_expressions_match_what_they_match_in_rocketmq(judge: Judge, seed: int) -> None:
    assert_same_verdicts(judge, seed, count=10_000)
