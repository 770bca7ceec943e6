# SPDX-License-Identifier: Apache-2.0
"""Compares Spark writing a DataFrame to a store with RocketMQ putting and dispatching the same number of messages.

Both write 200-byte bodies to eight topics of eight queues, and bring queues and index up to date. Three kinds of
messages take turns: only bodies; with tags and a key, as most DataFrames of messages have them; and also with a
UNIQ_KEY, which RocketMQ's clients add. RocketMQ puts in one thread and dispatches in another; Spark has two task slots.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tests.interop.judge import Judge
from tests.interop.puts import Put
from tests.interop.rocketmq import RocketMq
from tests.interop.toolchain import RELEASES, harness_command

_TOPICS: Final = ("orders-eu", "orders-us", "payments", "clicks", "billing", "stock", "mail", "audit-log")
_QUEUES: Final = 8
_BODY: Final = bytes(range(65, 91)) * 8
_CHUNK: Final = 1 << 17
_COUNT: Final = 5_000_000
_FEWER: Final = 1_000_000
"""The messages that RocketMQ puts: its rate does not depend on their number, and its heap is small."""

_WARM_UP: Final = 500_000
_DIFFERENT: Final = 1 << 16
"""How many different messages RocketMQ gets; then they repeat."""

_RELEASE: Final = "5.3"
_WANTED: Final = 4.0
_CONF: Final = Path(__file__).parents[2] / "spark-conf"
_KINDS: Final = ("bodies alone", "tags and key", "and unique key")


@dataclass
class _Round:
    """The result of one round, in messages per second."""

    kind: str
    theirs: float
    ours: float
    load: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def bench_sink(runs: int) -> list[dict[str, object]]:
    """Measure both in turn, round by round; print and return rates, ratios and load."""
    folder = Path(tempfile.mkdtemp())
    spark = _session()
    rounds: list[_Round] = []
    try:
        with RocketMq(harness_command(RELEASES[_RELEASE])) as process:
            judge = Judge(_RELEASE, process)
            for kind in _KINDS:
                _ours(_frame(spark, kind, _WARM_UP), folder / "warm")
            for kind in _KINDS * runs:
                theirs = _FEWER / _theirs(judge, kind, folder / "theirs")
                ours = _COUNT / _ours(_frame(spark, kind, _COUNT), folder / "ours")
                rounds.append(_Round(kind, theirs, ours, os.getloadavg()[0]))
                _show(rounds[-1])
    finally:
        spark.stop()
        shutil.rmtree(folder)
    return [row for kind in _KINDS for row in _judge([each for each in rounds if each.kind == kind])]


def _show(found: _Round) -> None:
    rates = f"RocketMQ {found.theirs:>9,.0f} /s   df.write {found.ours:>9,.0f} /s   x {found.ratio:.2f}"
    print(f"  {found.kind:<14} {rates}   load {found.load:.1f}", flush=True)


def _judge(rounds: list[_Round]) -> list[dict[str, object]]:
    """Return rates in thousands per second, the best first, then the median."""
    best = max(each.ours for each in rounds) / max(each.theirs for each in rounds)
    median = statistics.median(each.ratio for each in rounds)
    verdict = "reached" if best >= _WANTED else "MISSED"
    rates = f"best rates x {best:.2f}, median of the rounds x {median:.2f}"
    print(f"  {rounds[0].kind:<14} {rates}  {verdict} (>= {_WANTED})", flush=True)
    theirs, ours = ([getattr(each, side) / 1000 for each in rounds] for side in ("theirs", "ours"))
    shared = {"group": f"{rounds[0].kind}: best (median)", "unit": "thousand/s"}
    return [
        shared | {"name": "RocketMQ", "least": max(theirs), "median": statistics.median(theirs)},
        shared
        | {"name": "df.write", "least": max(ours), "median": statistics.median(ours), "load": rounds[-1].load}
        | {"ratio": best, "median_ratio": median, "at_least": _WANTED},
    ]


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_CONF_DIR"] = str(_CONF)
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    for line in (_CONF / "small-messages.conf").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(" ")
        if name.startswith("spark."):
            builder = builder.config(name, value.strip())
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _frame(spark: SparkSession, kind: str, count: int) -> DataFrame:
    topics = ", ".join(f"'{topic}'" for topic in _TOPICS)
    columns = [
        f"element_at(array({topics}), int(id % {len(_TOPICS)}) + 1) AS topic",
        f"int(id div {len(_TOPICS)} % {_QUEUES}) AS queue_id",
        f"'{_BODY[:200].decode()}' AS body",
    ]
    if kind != "bodies alone":
        columns += ["'TagA' AS tags", "concat('order', id + 1000000) AS keys"]
    if kind == "and unique key":
        columns.append("map('UNIQ_KEY', concat('7F0000010A1B18B4AAC2', id + 100000000000)) AS properties")
    return spark.range(0, count, 1, 2).selectExpr(*columns)


def _ours(frame: DataFrame, store: Path) -> float:
    begin = time.perf_counter()
    frame.write.format("commitlog").mode("append").option("release", _RELEASE).save(str(store))
    seconds = time.perf_counter() - begin
    shutil.rmtree(store)
    return seconds


def _theirs(judge: Judge, kind: str, store: Path) -> float:
    puts = [_put(kind, number) for number in range(_DIFFERENT)]
    answer = judge.bench_put(store, puts, warm_up=_WARM_UP, count=_FEWER, chunk=_CHUNK)
    shutil.rmtree(store)
    return float(answer["dispatchedSeconds"])


def _put(kind: str, number: int) -> Put:
    names: tuple[tuple[str, str], ...] = ()
    if kind != "bodies alone":
        names = (("KEYS", f"order{number + 1000000}"), ("TAGS", "TagA"))
    if kind == "and unique key":
        names += (("UNIQ_KEY", f"7F0000010A1B18B4AAC2{number + 100000000000}"),)
    return Put(_TOPICS[number % len(_TOPICS)], _BODY[:200], number // len(_TOPICS) % _QUEUES, names)
