# SPDX-License-Identifier: Apache-2.0
"""Compares a store's answers with RocketMQ's in the same run: gets of 32 messages, offsets by time.

Both get the same questions about the same store of 10 million messages in one queue, in the same order, one after the
other, in one thread, and both are warm. Both use the release's default sizes and limits. What is measured is the CPU
time of that thread, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from store_core import DefaultMessageStore, MessageStoreConfig
from tests.benchmarks.measure import verdict
from tests.interop.judge import Judge
from tests.interop.rocketmq import Answer, RocketMq
from tests.interop.toolchain import RELEASES, harness_command, missing_tools
from tests.store_core.fakes import SteadyClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_RELEASE: Final = "5.3"
_UNITS: Final = 10_000_000
_BATCH: Final = 50_000
_STEP_MS: Final = 1000
_QUESTIONS: Final = 1000
_TARGETS: Final = {"get_message of 32": 300.0, "offset by time": 1000.0}
"""Microseconds per question."""


def bench_reading(folder: Path, runs: int) -> list[dict[str, object]]:
    """Time questions; each row has our and RocketMQ's microseconds per question."""
    path = folder / "queue-10m"
    if not path.exists():
        _write(path)
    print(f"==> questions to a queue of {_UNITS:,} messages, microseconds of a processor each", flush=True)
    rng = random.Random(1)  # noqa: S311 -- reproducible, not secret
    first_time = SteadyClock.wall_ms
    gets = [_question("get", offset=rng.randrange(_UNITS - 32), most=32) for _ in range(_QUESTIONS)]
    span = _UNITS // _BATCH * _STEP_MS
    times = [_question("time", time=first_time + rng.randrange(span), boundary="LOWER") for _ in range(_QUESTIONS)]
    asked = {"get_message of 32": gets, "offset by time": times}
    ours = _ours(path, asked, runs)
    theirs = _theirs(path, asked, runs)
    return [row for name in asked for row in _report(name, ours[name], theirs.get(name))]


def _question(kind: str, **fields: object) -> Answer:
    return {"kind": kind, "topic": "orders", "queueId": 0, "filterType": None, "filter": None, **fields}


def _write(path: Path) -> None:
    """Write the store, with 50,000 messages per second; it appears complete or not at all."""
    made = path.with_name(f"{path.name}.part")
    shutil.rmtree(made, ignore_errors=True)
    clock = SteadyClock()
    bodies = pa.array([b"%020d" % number for number in range(_BATCH)], pa.binary())
    batch = pa.table({"topic": pa.array(["orders"] * _BATCH), "body": bodies, "tags": pa.array(["TagA"] * _BATCH)})
    with DefaultMessageStore.open(made, MessageStoreConfig(release=_RELEASE), clock=clock) as store:
        for _ in range(_UNITS // _BATCH):
            if not store.append_batch(batch).is_ok:
                raise RuntimeError("an append was refused")
            clock.wall_ms += _STEP_MS
    made.rename(path)


def _ours(path: Path, asked: dict[str, list[Answer]], runs: int) -> dict[str, list[float]]:
    with DefaultMessageStore.open(path, MessageStoreConfig(release=_RELEASE), read_only=True) as store:

        def get(question: Answer) -> object:
            return store.get_message("bench", "orders", 0, question["offset"], question["most"])

        def by_time(question: Answer) -> object:
            return store.get_offset_in_queue_by_time("orders", 0, question["time"])

        work: dict[str, Callable[[Answer], Any]] = {"get": get, "time": by_time}
        return {
            name: [_microseconds(work[questions[0]["kind"]], questions) for _ in range(runs + 1)][1:]
            for name, questions in asked.items()
        }


def _microseconds(work: Callable[[Answer], Any], questions: list[Answer]) -> float:
    begin = time.thread_time()
    for question in questions:
        work(question)
    return (time.thread_time() - begin) / len(questions) * 1e6


def _theirs(path: Path, asked: dict[str, list[Answer]], runs: int) -> dict[str, list[float]]:
    """Ask RocketMQ; return nothing if it is not available."""
    if missing := missing_tools():
        print(f"  RocketMQ is not asked: {', '.join(missing)} not on the PATH")
        return {}
    with RocketMq(harness_command(RELEASES[_RELEASE])) as process:
        judge = Judge(_RELEASE, process)
        rounds = {name: judge.bench_ask(path, questions, rounds=runs + 10) for name, questions in asked.items()}
    return {name: [nanos / 1000 for nanos in nanos_each[10:]] for name, nanos_each in rounds.items()}


def _report(name: str, ours: list[float], theirs: list[float] | None) -> list[dict[str, object]]:
    target = _TARGETS[name]
    least = min(ours)
    beside = "" if theirs is None else f"   RocketMQ {min(theirs):7.1f} (median {statistics.median(theirs):7.1f})"
    median = statistics.median(ours)
    print(f"  {name:<24} {least:7.1f} (median {median:7.1f}){beside}   {verdict(least, most=target)}", flush=True)
    row = {"name": name, "least": least, "median": median, "unit": "us", "most": target, "load": os.getloadavg()[0]}
    beside_it = {"name": f"{name}, RocketMQ", "unit": "us"}
    return [row] if theirs is None else [beside_it | {"least": min(theirs), "median": statistics.median(theirs)}, row]
