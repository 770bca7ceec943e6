# SPDX-License-Identifier: Apache-2.0
"""Measures how the cost of a scan depends on the log: its size, its bodies, its topics; and on cores and partitions."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any, Final

from tests.benchmarks.measure import Timing, drained, measure
from tests.benchmarks.memory import bench_memory
from tests.benchmarks.segments import make_log, make_store, make_store_of_topics
from tests.benchmarks.spark import bench_session, drain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


_MEBIBYTE: Final = 1 << 20
_GIBIBYTE: Final = 1 << 30
_BODY: Final = 200
_SIZES: Final = (64, 256, 1024, 4096, 8192)
"""Of logs, MiB."""

_BODIES: Final = (100, 200, 1024, 4096, 16_384, 65_536)
_TOPICS: Final = (1, 10, 100, 1000, 10_000)
_PARTITIONS: Final = (1, 2, 4, 16, 64, 256)
_CORES: Final = (1, 2)
_OF_ONE: Final = 256
"""MiB of a log that differs in its bodies or topics."""

_OF_SPARK: Final = 1024
"""MiB of the log that Spark reads, one of those of different sizes."""

_BLOCK: Final = 512
"""Bytes of the blocks in which the system counts what a file has on the disk."""


def bench_curves(folder: Path, runs: int) -> list[dict[str, Any]]:
    """Measure all curves; a row has its group, its place on the axis and its figure."""
    known = {path.name for path in folder.iterdir()}
    curves = {
        "log, MiB": {size: make_log(folder, size * _MEBIBYTE, _GIBIBYTE, _BODY) for size in _SIZES},
        "body, bytes": {size: make_store(folder, _OF_ONE * _MEBIBYTE, size) for size in _BODIES},
        "topics": {count: make_store_of_topics(folder, _OF_ONE * _MEBIBYTE, _BODY, count) for count in _TOPICS},
    }
    try:
        rows = [row for name, stores in curves.items() for row in _scans(name, stores, runs)]
        rows += [row for name, stores in curves.items() for row in _memory(name, stores)]
        return rows + [row for cores in _CORES for row in _spark(curves["log, MiB"][_OF_SPARK], cores, runs)]
    finally:
        for path in folder.iterdir():
            if path.name not in known:
                shutil.rmtree(path, ignore_errors=True)


def _scans(name: str, stores: Mapping[int, Path], runs: int) -> list[dict[str, Any]]:
    """Read all default columns by one thread; processor seconds per GiB of records."""
    gib = {place: _used(store) / _GIBIBYTE for place, store in stores.items()}
    timings = measure({str(place): drained(store) for place, store in stores.items()}, runs)
    return [
        _row(name, f"s a GiB, by {name}", place, timings[str(place)], per=gib[place], unit="s a GiB")
        for place in stores
    ]


def _used(store: Path) -> int:
    """Return the bytes that a log's files have on the disk."""
    return sum(min(path.stat().st_size, path.stat().st_blocks * _BLOCK) for path in (store / "commitlog").iterdir())


def _memory(name: str, stores: Mapping[int, Path]) -> list[dict[str, Any]]:
    rows = []
    for place, store in stores.items():
        row = bench_memory(store, f"{place:,}")
        rows.append({**row, "group": f"MiB of memory of a task, by {name}", "axis": name, "place": place})
    return rows


def _spark(log: Path, cores: int, runs: int) -> list[dict[str, Any]]:
    """Read all default columns by Spark with so many slots; elapsed seconds."""
    spark = bench_session(cores)
    try:
        functions = {str(count): _drain_of(spark, log, count) for count in _PARTITIONS}
        timings = measure(functions, runs, time.perf_counter)
    finally:
        spark.stop()
    slots = "1 core" if cores == 1 else f"{cores} cores"
    return [
        _row(f"partitions, {slots}", f"s elapsed in Spark, {slots}, by partitions", count, timings[str(count)])
        for count in _PARTITIONS
    ]


def _drain_of(spark: SparkSession, log: Path, partitions: int) -> Callable[[], None]:
    options = {"minPartitions": str(partitions)}
    return lambda: drain(spark.read.format("commitlog").options(**options).load(str(log)))


def _row(axis: str, group: str, place: int, timing: Timing, *, per: float = 1.0, unit: str = "s") -> dict[str, Any]:
    least, median, load = timing.least / per, timing.median / per, os.getloadavg()[0]
    print(f"  {group:<44} {place:>8,} {least:8.3f} {median:8.3f}   load {load:4.1f}", flush=True)
    return {
        "name": f"{place:,}",
        "group": group,
        "axis": axis,
        "place": place,
        "least": least,
        "median": median,
        "unit": unit,
        "load": load,
    }
