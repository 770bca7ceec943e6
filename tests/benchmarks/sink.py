# SPDX-License-Identifier: Apache-2.0
"""Spark writing a DataFrame into a store, beside RocketMQ putting as many messages and dispatching them.

Usage: python -m tests.benchmarks.sink [--count N] [--runs N] [--release R]
Both write 200-byte bodies with tags, a key and a UNIQ_KEY, to eight topics of eight queues, with queues and index.
RocketMQ puts with one thread; Spark has two task slots.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from tests.interop.judge import Judge
from tests.interop.puts import Put
from tests.interop.rocketmq import RocketMq
from tests.interop.toolchain import RELEASES, harness_command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOPICS: Final = ("orders-eu", "orders-us", "payments", "clicks", "billing", "stock", "mail", "audit-log")
_QUEUES: Final = 8
_BODY: Final = bytes(range(65, 91)) * 8
_CHUNK: Final = 1 << 17
_FEWER: Final = 1_000_000
"""Messages that RocketMQ puts at most: its rate does not depend on how many there are, and its heap is small."""

_WANTED: Final = 3.0


def main() -> None:
    """Measure both, round by round, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5_000_000, help="messages of a round (default 5,000,000)")
    parser.add_argument("--runs", type=int, default=2, help="rounds (default 2)")
    parser.add_argument("--release", default="5.3", choices=sorted(RELEASES))
    options = parser.parse_args()
    bench_sink(options.count, options.runs, options.release)


def bench_sink(count: int = 5_000_000, runs: int = 2, release: str = "5.3") -> list[dict[str, object]]:
    """Measure both in turns, round by round; print and give rates, ratios and load."""
    folder = Path(tempfile.mkdtemp())
    spark = _session()
    rounds: list[dict[str, object]] = []
    fewer = min(count, _FEWER)
    try:
        with RocketMq(harness_command(RELEASES[release])) as process:
            judge = Judge(release, process)
            _warm_up(spark, folder, count)
            for _ in range(runs):
                theirs = fewer / _theirs(judge, folder / "theirs", fewer)
                ours = count / _ours(_frame(spark, count), folder / "ours", release)
                rounds.append({"theirs": theirs, "ours": ours, "ratio": ours / theirs, "load": os.getloadavg()[0]})
                _show(rounds[-1])
    finally:
        spark.stop()
        shutil.rmtree(folder)
    best = max(float(str(each["ours"])) for each in rounds) / max(float(str(each["theirs"])) for each in rounds)
    median = statistics.median(float(str(each["ratio"])) for each in rounds)
    verdict = "reached" if best >= _WANTED else "MISSED"
    print(f"  best rates x {best:.2f}, median of the rounds x {median:.2f}  {verdict} (>= {_WANTED})", flush=True)
    return rounds


def _show(found: dict[str, object]) -> None:
    rates = f"RocketMQ {found['theirs']:>9,.0f} /s   df.write {found['ours']:>9,.0f} /s   x {found['ratio']:.2f}"
    print(f"  {rates}   load {found['load']:.1f}", flush=True)


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parents[2] / "spark-conf")
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _frame(spark: SparkSession, count: int) -> DataFrame:
    topics = ", ".join(f"'{topic}'" for topic in _TOPICS)
    return spark.range(0, count, 1, 2).selectExpr(
        f"element_at(array({topics}), int(id % {len(_TOPICS)}) + 1) AS topic",
        f"int(id div {len(_TOPICS)} % {_QUEUES}) AS queue_id",
        f"'{_BODY[:200].decode()}' AS body",
        "'TagA' AS tags",
        "array(concat('order', lpad(id, 7, '0'))) AS keys",
        "map('UNIQ_KEY', concat('7F0000010A1B18B4AAC2', lpad(hex(id), 12, '0'))) AS properties",
    )


def _warm_up(spark: SparkSession, folder: Path, count: int) -> None:
    """Write a tenth, as RocketMQ does before each of its rounds: Spark's virtual machine has to compile, too."""
    _ours(_frame(spark, max(count // 10, 10_000)), folder / "warm", "5.3")


def _ours(frame: DataFrame, store: Path, release: str) -> float:
    begin = time.perf_counter()
    frame.write.format("commitlog").mode("append").option("release", release).save(str(store))
    seconds = time.perf_counter() - begin
    shutil.rmtree(store)
    return seconds


def _theirs(judge: Judge, store: Path, count: int) -> float:
    answer = judge.bench_put(
        store, [_put(number) for number in range(64)], warm_up=count // 10, count=count, chunk=count
    )
    shutil.rmtree(store)
    return float(answer["dispatchedSeconds"])


def _put(number: int) -> Put:
    names = (("KEYS", f"order{number:07d}"), ("UNIQ_KEY", f"7F0000010A1B18B4AAC2{number:012X}"), ("TAGS", "TagA"))
    return Put(_TOPICS[number % len(_TOPICS)], _BODY[:200], number // len(_TOPICS) % _QUEUES, names)


if __name__ == "__main__":
    main()
