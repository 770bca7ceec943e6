# SPDX-License-Identifier: Apache-2.0
"""Compares Spark reading a commit log with Spark reading the same rows from uncompressed Parquet.

Also its own settings of the JVM with those of ``spark-conf/fast-reads.conf``: a JVM keeps the settings that it started
with, so that each session has a process of its own; they take turns. And a stream of what is available, in one batch
and in fifty, with a batch that reads the same store. That store has 4.3 million messages in 1.5 GiB, so that a batch of
fifty has 87,000; what Spark itself needs for as many batches is measured beside: a source in Python with the same
partitions, but without rows, and without planning.

Usage: python -m tests.benchmarks.spark STORE FOLDER [CONF]: prints the processor time of one process's reads as JSON
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession

from store_core.format.columns import DEFAULT_COLUMNS
from tests.benchmarks.measure import Timing, compare, family_seconds, measure, report
from tests.benchmarks.segments import make_log
from tests.benchmarks.sources import register_ready_batches, source_without_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


CONF: Final = Path(__file__).resolve().parents[2] / "spark-conf"
_FAST: Final = CONF / "fast-reads.conf"
_READS_OF_A_PROCESS: Final = 8
"""The first ones compile the query's code."""

_NAMES: Final = ("floor, all columns", "commitlog, all columns, no CRC")
_ALL_TARGET: Final = 1.3
_SINGLE: Final = "property.KEYS,property.UNIQ_KEY,property.TAGS"
"""All properties of the benchmark's messages."""

_COUNT_TARGET: Final = 1.5
_FLOOR_TARGETS: Final = {
    "commitlog, all columns, no CRC": 1.1,
    "commitlog, all columns, CRC checked": 1.2,
    "commitlog, count by topic": 1.3,
}
"""Of the processor time of PySpark's transport, by the name of the row."""


def bench_spark(store: Path, folder: Path, runs: int) -> dict[str, list[dict[str, object]]]:
    """Time full reads into a ``noop`` sink, and a count by topic, with two task slots."""
    spark = bench_session()
    try:
        return _bench(spark, store, folder, runs)
    finally:
        spark.stop()


def bench_session(slots: int = 2, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session with so many task slots, and other settings than those of the benchmarks."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{slots}]").appName("bench")
    usual = {
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.compression.codec": "uncompressed",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
    }
    for key, value in (usual | dict(settings or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _bench(spark: SparkSession, store: Path, folder: Path, runs: int) -> dict[str, list[dict[str, object]]]:
    def log(columns: str | None = None, *, crc: bool = False) -> DataFrame:
        reader = spark.read.format("commitlog").option("verifyCrc", str(crc).lower()).option("minPartitions", "2")
        if columns:
            reader = reader.option("columns", columns)
        return reader.load(str(store))

    rows = parquet_of(log(), folder / f"{store.name}.parquet")
    drains = {
        "Parquet, all columns, noop": lambda: drain(rows),
        "commitlog, all columns, no CRC": lambda: drain(log()),
        "commitlog, all columns, CRC checked": lambda: drain(log(crc=True)),
    }
    counts = {
        "Parquet, count by topic": lambda: _count(rows),
        "commitlog, count by topic": lambda: _count(log("topic")),
    }
    elapsed = [*_report(drains, runs, _ALL_TARGET), *_report(counts, runs, _COUNT_TARGET)]
    return {"spark": elapsed, "spark floor": _beside_floor(spark, store, folder, runs, drains | counts)}


def _beside_floor(
    spark: SparkSession, store: Path, folder: Path, runs: int, functions: Mapping[str, Callable[[], object]]
) -> list[dict[str, object]]:
    """Compare the processor time of all processes with that of a source of ready batches with the same rows."""
    options = {"path": str(store), "verifyCrc": "false", "minPartitions": "2"}
    others = ",".join(name for name in DEFAULT_COLUMNS if name != "properties")
    beside = {
        "no properties": others,
        "properties_string": f"{others},properties_string",
        "three columns property.NAME": f"{others},{_SINGLE}",
    }
    choices = {"ready_all": {}, "ready_topic": {"columns": "topic"}}
    for name, choice in choices.items():
        register_ready_batches(spark, name, options | choice, folder / "ready")
    read = spark.read.format
    floors: dict[str, Callable[[], object]] = {
        "floor, all columns": lambda: drain(read("ready_all").load()),
        "floor, count by topic": lambda: _count(read("ready_topic").load()),
    }
    for name, columns in beside.items():
        floors[f"commitlog, {name} for the map"] = _drain_of(spark, options | {"columns": columns})
    print("  processor time of all processes:", flush=True)
    timings = measure({**floors, **functions}, runs, family_seconds)
    rows = []
    for name, timing in timings.items():
        base = timings["floor, count by topic" if "count" in name else "floor, all columns"]
        rows.append(report(timing, base, _FLOOR_TARGETS.get(name)))
    return rows


def _report(functions: Mapping[str, Callable[[], object]], runs: int, target: float) -> list[dict[str, object]]:
    """Compare all with the first; the target is for the second. Wall-clock time, because Spark is many processes."""
    return compare(functions, runs, {[*functions][1]: target}, time.perf_counter)


def _drain_of(spark: SparkSession, options: Mapping[str, str]) -> Callable[[], None]:
    return lambda: drain(spark.read.format("commitlog").options(**options).load())


def _count(rows: DataFrame) -> None:
    rows.groupBy("topic").count().collect()


def parquet_of(rows: DataFrame, path: Path) -> DataFrame:
    """Write rows as Parquet, unless they are there, and return what reads that."""
    if not (path / "_SUCCESS").exists():
        shutil.rmtree(path, ignore_errors=True)
        rows.write.parquet(str(path))
    return rows.sparkSession.read.parquet(str(path))


def drain(rows: DataFrame) -> None:
    """Read all rows, and write them nowhere."""
    rows.write.format("noop").mode("overwrite").save()


def bench_settings(store: Path, folder: Path, runs: int) -> list[dict[str, object]]:
    """Time full reads into a ``noop`` sink in so many sessions of each kind; processor time of all their processes."""
    seconds: dict[str, list[float]] = {}
    for _ in range(runs):
        for conf in (None, _FAST):
            for name, least in _in_another_process(store, folder, conf).items():
                seconds.setdefault(name if conf is None else f"{name}, {conf.name}", []).append(least)
    timings = [Timing(name, tuple(each)) for name, each in seconds.items()]
    return [report(timing, timings[0]) for timing in timings]


def _in_another_process(store: Path, folder: Path, conf: Path | None) -> dict[str, float]:
    words = [str(each) for each in (store, folder, conf) if each is not None]
    call = [sys.executable, "-m", "tests.benchmarks.spark", *words]
    done = subprocess.run(call, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603 -- ours
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def settings_of(conf: Path) -> dict[str, str]:
    """Return the settings in a file of properties."""
    lines = (line.split(maxsplit=1) for line in conf.read_text().splitlines() if line and not line.startswith("#"))
    return {name: value.strip() for name, value in lines}


def _read_beside_floor(store: Path, folder: Path, settings: Mapping[str, str]) -> None:
    spark = bench_session(settings=settings)
    options = {"path": str(store), "verifyCrc": "false", "minPartitions": "2"}
    register_ready_batches(spark, "ready_all", options, folder / "ready")
    read = spark.read.format
    sources = (read("ready_all"), read("commitlog").options(**options))
    found = {}
    for name, source in zip(_NAMES, sources, strict=True):
        reads = {name: lambda source=source: drain(source.load())}
        found[name] = measure(reads, _READS_OF_A_PROCESS, family_seconds)[name].least
    print(json.dumps(found))
    spark.stop()


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
        return _streams(spark, store, folder / "stream-checkpoint", runs)
    finally:
        spark.stop()


def _streams(spark: SparkSession, store: str, checkpoint: Path, runs: int) -> list[dict[str, object]]:
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


if __name__ == "__main__":
    _read_beside_floor(Path(sys.argv[1]), Path(sys.argv[2]), settings_of(Path(sys.argv[3])) if sys.argv[3:] else {})
