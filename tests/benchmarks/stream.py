# SPDX-License-Identifier: Apache-2.0
"""Compares a stream of what is available, in one batch and in fifty, with a batch that reads the same store."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Final

from tests.benchmarks.measure import measure, report
from tests.benchmarks.spark import bench_session, drain

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["bench_stream"]

_TARGET: Final = 1 / 0.7
"""Of the batch's time: the stream is to reach 0.7 of its rate."""

_BATCHES: Final = 50


def bench_stream(store: Path, folder: Path, runs: int) -> list[dict[str, object]]:
    """Time full reads of all default columns into a ``noop`` sink, with two task slots and checksums."""
    spark = bench_session()
    try:
        return _bench(spark, store, folder / "stream-checkpoint", runs)
    finally:
        spark.stop()


def _bench(spark: SparkSession, store: Path, checkpoint: Path, runs: int) -> list[dict[str, object]]:
    size = sum(path.stat().st_size for path in (store / "commitlog").iterdir())
    options = {"minPartitions": "2"}
    limited = options | {"maxBytesPerTrigger": str(-(-size // _BATCHES))}
    functions = {
        "batch, all columns, noop": lambda: drain(spark.read.format("commitlog").options(**options).load(str(store))),
        "stream, one batch": lambda: _stream(spark, store, checkpoint, options),
        f"stream, {_BATCHES} batches": lambda: _stream(spark, store, checkpoint, limited),
    }
    base, *streams = measure(functions, runs, time.perf_counter).values()
    return [report(base, base), *(report(stream, base, _TARGET) for stream in streams)]


def _stream(spark: SparkSession, store: Path, checkpoint: Path, options: dict[str, str]) -> None:
    """Read the whole store with a new checkpoint."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    log = spark.readStream.format("commitlog").options(**options).load(str(store))
    stream = log.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    stream.trigger(availableNow=True).start().awaitTermination()
