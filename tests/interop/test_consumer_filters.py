# SPDX-License-Identifier: Apache-2.0
"""Registered expressions: which are registered after each step, what the file contains, which bits a message gets."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any, Final

from store_core.broker.consumer_filter_manager import ConsumerFilterManager
from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from store_core.store.broker_config import BrokerConfig
from tests.interop.ours import ScriptedClock

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.judge import Judge
    from tests.interop.rocketmq import Answer

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
    clock = ScriptedClock()
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
    clock.now = SystemClock().now_ms()
    loading = {"load": file, "topic": TOPICS[0]}
    (theirs,) = judge.register(directory, broker, [loading], PROPERTIES).result()["answers"]
    assert seen(theirs, release) == seen(ours(filters, loading), release)
    return file


def test_registrations_are_kept_as_rocketmq_keeps_them(judge: Judge, tmp_path: Path) -> None:
    assert len(re.findall('"dead":true', compare(judge, tmp_path, 1, span=24 * 3600 * 1000))) > 1


def test_groups_that_left_are_forgotten_as_by_rocketmq(judge: Judge, tmp_path: Path) -> None:
    assert '"dead":true' not in compare(judge, tmp_path, 2, span=0)
