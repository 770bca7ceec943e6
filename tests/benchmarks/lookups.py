# SPDX-License-Identifier: Apache-2.0
"""Compares look-ups with scans of the same store: one topic in a hundred, one of its queues, one message.

The store has 4.3 million messages in 1.5 GiB, and the queues that this project rebuilds from them.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Final

from store_core import read_messages, rebuild_consume_queue
from tests.benchmarks.measure import measure, report
from tests.benchmarks.segments import RARE_TOPIC, make_log
from tests.benchmarks.spark import bench_session, drain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame

__all__ = ["bench_lookups"]

_GIBIBYTE: Final = 1 << 30
_LOG_BYTES: Final = 3 * _GIBIBYTE // 2
_BODY: Final = 200
_TENTH: Final = 0.1
_HUNDREDTH: Final = 0.01


def bench_lookups(folder: Path, runs: int) -> list[dict[str, object]]:
    """Time reads in the core, then through Spark beside Parquet with the same filter."""
    store = _store(folder)
    print("==> look-ups in 4.3 million messages, beside a scan", flush=True)
    places = read_messages(store, topic=RARE_TOPIC, columns=["physical_offset"]).read_all()["physical_offset"]
    place, last = places[places.length() // 2].as_py(), places[-1].as_py()
    bounds = {"starting_offsets": {RARE_TOPIC: {0: 100}}, "ending_offsets": {RARE_TOPIC: {0: 132}}}
    topics = {
        "scan for a topic": _reading(store, topic=RARE_TOPIC, use_consume_queues="never"),
        "one topic of 1 %": _reading(store, topic=RARE_TOPIC),
        "one queue of it": _reading(store, topic=RARE_TOPIC, queue_id=0),
        "32 messages of that queue": _reading(store, topic=RARE_TOPIC, queue_id=0, **bounds),
    }
    ids = {
        "scan for a position": _reading(store, physical_offset=place, mode="PERMISSIVE"),
        "one position, in an earlier segment": _reading(store, physical_offset=place),
        "one position, in the last segment": _reading(store, physical_offset=last),
    }
    rows = [*_report(topics, runs, _TENTH), *_report(ids, runs, _HUNDREDTH)]
    return [*rows, *_through_spark(store, folder, runs)]


def _store(folder: Path) -> Path:
    """Make the store, with queues, unless it is there."""
    store = make_log(folder, _LOG_BYTES, _GIBIBYTE, _BODY, has_rare=True)
    if not (store / "consumequeue").exists():
        rebuild_consume_queue(store)
        (store / "rebuilt" / "consumequeue").rename(store / "consumequeue")
        shutil.rmtree(store / "rebuilt")
    return store


def _reading(store: Path, **options: object) -> Callable[[], object]:
    return lambda: read_messages(store, **options).read_all()  # type: ignore[arg-type]  # options by name


def _report(
    functions: Mapping[str, Callable[[], object]],
    runs: int,
    target: float,
    clock: Callable[[], float] = time.process_time,
) -> list[dict[str, object]]:
    """Compare with the first; the target is for the second."""
    base, ours, *others = measure(functions, runs, clock).values()
    return [report(base, base), report(ours, base, target), *(report(other, base) for other in others)]


def _through_spark(store: Path, folder: Path, runs: int) -> list[dict[str, object]]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = bench_session()

    def log(use: str) -> DataFrame:
        reader = spark.read.format("commitlog").option("topic", RARE_TOPIC).option("useConsumeQueues", use)
        return reader.load(str(store))

    try:
        parquet = folder / f"{store.name}.parquet"
        if not (parquet / "_SUCCESS").exists():
            shutil.rmtree(parquet, ignore_errors=True)
            spark.read.format("commitlog").load(str(store)).write.parquet(str(parquet))
        rows = spark.read.parquet(str(parquet))
        reads = {
            "Spark: scan for a topic": lambda: drain(log("never")),
            "Spark: one topic of 1 %": lambda: drain(log("auto")),
            "Spark: Parquet, the same filter": lambda: drain(rows.where(rows["topic"] == RARE_TOPIC)),
        }
        return _report(reads, runs, _TENTH, time.perf_counter)
    finally:
        spark.stop()
