# SPDX-License-Identifier: Apache-2.0
"""Compares a stream of what is available, in one batch and in fifty, with a batch that reads the same store.

The store has 4.3 million messages in 1.5 GiB, so that a batch of fifty has 87,000. What Spark itself needs for as many
batches is measured beside: a source in Python with the same partitions, but without rows, and without planning.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Final

from tests.benchmarks.measure import compare
from tests.benchmarks.segments import make_log
from tests.benchmarks.sources import source_without_rows
from tests.benchmarks.spark import bench_session, drain

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


_GIBIBYTE: Final = 1 << 30
_LOG_BYTES: Final = 3 * _GIBIBYTE // 2
_BODY: Final = 200
_LONGEST: Final = 1024
"""No record is longer: a batch ends up to one record before its limit."""

_TARGET: Final = 1 / 0.7
"""Of the batch's time: the stream is to reach 0.7 of its rate."""

_BATCHES: Final = 50
_PARTITIONS: Final = 2
_OPTIONS: Final = {"minPartitions": str(_PARTITIONS)}
_CHECKPOINT_FILES: Final = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""By Spark's default, each file of a checkpoint in a local directory starts two processes, which set its mode."""

_LIMITED: Final = _OPTIONS | {"maxBytesPerTrigger": str(-(-_LOG_BYTES // _BATCHES) + _LONGEST)}


def bench_stream(folder: Path, runs: int) -> list[dict[str, object]]:
    """Time full reads of all default columns into a ``noop`` sink, with two task slots and checksums."""
    store = str(make_log(folder, _LOG_BYTES, _GIBIBYTE, _BODY))
    spark = bench_session()
    try:
        spark.dataSource.register(source_without_rows(_PARTITIONS))
        return _bench(spark, store, folder / "stream-checkpoint", runs)
    finally:
        spark.stop()


def _bench(spark: SparkSession, store: str, checkpoint: Path, runs: int) -> list[dict[str, object]]:
    def stream(name: str, options: dict[str, str]) -> None:
        _stream(spark, name, options | {"path": store}, checkpoint)

    def stream_by_file_system(name: str, options: dict[str, str]) -> None:
        spark.conf.set(_CHECKPOINT_FILES, _BY_FILE_SYSTEM)
        try:
            stream(name, options)
        finally:
            spark.conf.unset(_CHECKPOINT_FILES)

    functions = {
        "batch, all columns, noop": lambda: drain(spark.read.format("commitlog").options(**_OPTIONS).load(store)),
        "stream, one batch": lambda: stream("commitlog", _OPTIONS),
        f"stream, {_BATCHES} batches": lambda: stream("commitlog", _LIMITED),
        f"stream, {_BATCHES} batches, checkpoint by FileSystem": lambda: stream_by_file_system("commitlog", _LIMITED),
        "Spark alone, one batch without rows": lambda: stream("norows", {"batches": "1"}),
        f"Spark alone, {_BATCHES} batches without rows": lambda: stream("norows", {"batches": str(_BATCHES)}),
        f"Spark alone, {_BATCHES} batches, checkpoint by FileSystem": lambda: stream_by_file_system(
            "norows", {"batches": str(_BATCHES)}
        ),
    }
    targets = {name: _TARGET for name in functions if name.startswith("stream")}
    return compare(functions, runs, targets, time.perf_counter)


def _stream(spark: SparkSession, name: str, options: dict[str, str], checkpoint: Path) -> None:
    """Read what is available with a new checkpoint."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    stream = spark.readStream.format(name).options(**options).load().writeStream.format("noop")
    stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
