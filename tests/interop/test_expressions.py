# SPDX-License-Identifier: Apache-2.0
"""RocketMQ and we compile, evaluate and register the same filter expressions alike, and give messages the same bits."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from store_core import FilterError
from store_core.broker.consumer_filter_manager import ConsumerFilterManager
from store_core.files.file_system import OsFileSystem
from store_core.files.machine import SystemClock
from store_core.format.columns import MAP_TYPE
from store_core.format.filter.sql92_columns import evaluate_maps
from store_core.format.filter.sql92_parser import Sql92Expression
from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from store_core.store.message_store_config import BrokerConfig
from tests.store_core.fakes import SteadyClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.interop.judge import Judge
    from tests.interop.rocketmq import Answer


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


_NAMES: Final = ("a", "b", "c", "A", "_x", "$d", "TAGS")
_LITERALS: Final = (
    "5", "'5'", "'x'", "''", "'abc'", "TRUE", "FALSE", "NULL", "true", "Null", "5L", "0", "5.", "5.0", ".5", "5e0",
    "1e3", "3000000000", "9007199254740993", "9007199254740992.0", "2147483648", "2147483647", "9223372036854775807",
    "9223372036854775808", "0.0", "1e400", "007", "'it''s'", "'a''", "1d", "5l", "'NaN'", "'true'",
)  # fmt: skip
_VALUES: Final = (
    "5", "5.0", "abc", "", "TRUE", "true", " 5", "+5", "-5", "3000000000", "x", "1e3", "NaN", "Infinity", "-Infinity",
    "0", "-0", "0.0", "-0.0", "0x10", "0x1p3", "0x1.8p1d", "0x1p99999999999", "1d", "1f", "1e400", "-1e400", "+", "-",
    "5 ", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "2147483648",
    "\u0665", "\u06655", "0000000000000000000000000000000000000005", "\x005", " \t5.5\n", "5_0", "inf", "nan", "1e5f",
    "1e", "e5", ".5", "5.", ".", "it's", "é", "x'", "5L", "0x.8p0", "0x.p0", "- 5", "1e-400", "4.9E-324",
    "9007199254740993", "9007199254740992",
)  # fmt: skip
_JUNK: Final = (
    "#", "--", "/*", "*/", "'", "\n", " -- c\n", "/* x */", "(", ")", ",", "NOT", "IS", "5", "a", "b = 1", "!=", "=",
    "\t", "\f", "\x0b", "é", "\xa0", "0.0", "99999999999999999999", "1e999", "IN", "BETWEEN", "LIKE", '"', "\r",
)  # fmt: skip
_COMPARISONS: Final = (" > ", " >= ", "<", "<=")
_PREDICATES: Final = (" CONTAINS ", " STARTSWITH ", " ENDSWITH ", " contains ")
_SIGNS: Final = ("-", "+", "NOT ", "- -", "+ +", "NOT NOT ", "-+")
_MAPS: Final = 60


class RandomExpressions:
    """A stream of expressions, three in ten of which compile, and maps to evaluate them on."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 -- reproducible, not secret

    def maps(self) -> list[dict[str, str]]:
        """Return maps of properties."""
        draw = self._random
        return [{}, *({name: draw.choice(_VALUES) for name in _NAMES if draw.random() < 0.7} for _ in range(_MAPS))]

    def take(self, count: int) -> list[str]:
        """Return this number of expressions; about one in four is broken somewhere."""
        return [self._spoilt(self._whole(self._random.randint(0, 4))) for _ in range(count)]

    def _spoilt(self, text: str) -> str:
        draw = self._random
        place = draw.randint(0, len(text))
        if draw.random() < 0.2:
            return (
                text[:place] + " " * draw.randint(0, 1) + draw.choice(_JUNK) + " " * draw.randint(0, 1) + text[place:]
            )
        return text[:place] + text[place + draw.randint(1, 3) :] if draw.random() < 0.05 else text

    def _whole(self, depth: int) -> str:
        draw = self._random
        text = self._equality()
        for _ in range(depth if draw.random() < 0.7 else 0):
            text += draw.choice((" AND ", " OR ", " and ")) + self._equality()
        return text

    def _equality(self) -> str:
        draw = self._random
        text, kind = self._comparison(), draw.random()
        if kind < 0.4:
            text += draw.choice(("=", "<>")) + self._comparison()
        if 0.35 < kind < 0.5:
            text += draw.choice((" IS NULL", " IS NOT NULL", " is null", " = " + self._comparison()))
        return text

    def _comparison(self) -> str:
        draw = self._random
        left, kind, negation = self._operand(), draw.random(), draw.choice(("", " NOT"))
        if kind < 0.3:
            return left + draw.choice(_COMPARISONS) + self._operand()
        if kind < 0.45:
            return f"{left}{negation} BETWEEN {self._operand()} AND {self._operand()}"
        if kind < 0.58:
            elements = (draw.choice(("'5'", "'x'", "'abc'", "''", "'true'")) for _ in range(draw.randint(1, 6)))
            return f"{draw.choice((left, draw.choice(_NAMES)))}{negation} IN ({','.join(elements)})"
        if kind < 0.7:
            return (
                left + negation + draw.choice(_PREDICATES) + draw.choice(("'5'", "'x'", "''", "'b'", "'tr'", "5", "a"))
            )
        return left

    def _operand(self) -> str:
        draw, kind = self._random, self._random.random()
        if kind > 0.8:
            return draw.choice(_SIGNS) + self._operand()
        if kind < 0.45:
            return draw.choice(_NAMES)
        return draw.choice(_LITERALS) if kind < 0.72 else f"({self._whole(draw.randint(0, 2))})"


PROPERTIES: Final = {"a": "6", "b": "x", "TAGS": "TagA"}
TOPICS: Final = ("orders", "Payments-v1", "заказы")
EXPRESSIONS: Final = (
    "a > 5",
    "b = 'x' AND TAGS IS NOT NULL",
    "c = 1",
    "NOT a",
    'a > 5 AND "x"',
    "a >",
    "TRUE",
    "b > 1",
)
TIME: Final = re.compile(r'("(?:bornTime|deadTime)"):[1-9][0-9]*')


def steps(seed: int, count: int) -> list[Answer]:
    """Draw registrations, and groups that leave."""
    rng = random.Random(seed)  # noqa: S311 -- reproducible, not secret
    drawn: list[Answer] = []
    for _ in range(count):
        step: Answer = {"topic": rng.choice(TOPICS), "group": f"group-{rng.randrange(12)}"}
        if rng.random() < 0.8:
            kind = rng.choice(("SQL92", "SQL92", "SQL92", "SQL92", "TAG", "SQL99"))
            step |= {"expression": rng.choice(EXPRESSIONS), "type": kind, "version": rng.randrange(4)}
        drawn.append(step)
    return drawn


def ours(filters: ConsumerFilterManager, step: Answer) -> Answer:
    """Run a step as the harness does."""
    answer: Answer = {}
    if "load" in step:
        filters.decode(json.loads(step["load"]), "file")
    elif "expression" in step:
        fields: tuple[Any, ...] = (step["topic"], step["group"], step["expression"], step["version"])
        answer["registered"] = filters.register_expression(*fields, expression_type=step["type"])
    else:
        filters.unregister(step["group"])
    request = DispatchRequest(step["topic"], 0, 0, 100, 0, 0, 0, properties=PROPERTIES)
    return answer | {"file": filters.text(), "bitMap": filters.bit_map(request).hex()}


def without_times(text: str) -> str:
    """Remove the times at which groups registered and left, but not whether they did."""
    return TIME.sub(r"\1:1", text)


def seen(answer: Answer, release: str) -> Answer:
    """Return an answer of RocketMQ or ours; of 5.3.4 what the file says, as parts of 5.4.0 write it in the harness."""
    text = without_times(answer["file"])
    return {**answer, "file": json.loads(text) if release == "5.3.4" else text}


def compare(judge: Judge, directory: Path, seed: int, **settings: Any) -> str:  # noqa: ANN401 -- of a BrokerConfig
    """Run steps on both sides, the last of which reloads the file; return RocketMQ's file."""
    clock = SteadyClock()
    release: Any = judge.release
    filters = ConsumerFilterManager(
        directory, OsFileSystem(), clock, release, BrokerConfig(filter_data_clean_time_span=settings["span"])
    )
    drawn = steps(seed, 150)
    broker = {"enableCalcFilterBitMap": True, "filterDataCleanTimeSpan": settings["span"]}
    asked = judge.register(directory, broker, drawn, PROPERTIES).result()["answers"]
    for step, theirs in zip(drawn, asked, strict=True):
        assert seen(theirs, release) == seen(ours(filters, step), release), step

    file: str = asked[-1]["file"]
    clock.wall_ms = SystemClock().now_ms()
    loading = {"load": file, "topic": TOPICS[0]}
    (theirs,) = judge.register(directory, broker, [loading], PROPERTIES).result()["answers"]
    assert seen(theirs, release) == seen(ours(filters, loading), release)
    return file


def test_registrations_are_kept_as_rocketmq_keeps_them(judge: Judge, tmp_path: Path) -> None:
    assert len(re.findall('"dead":true', compare(judge, tmp_path, 1, span=24 * 3600 * 1000))) > 1


def test_groups_that_left_are_forgotten_as_by_rocketmq(judge: Judge, tmp_path: Path) -> None:
    assert '"dead":true' not in compare(judge, tmp_path, 2, span=0)
