# SPDX-License-Identifier: Apache-2.0
"""Rebuilding queues and index in an open session of two slots: records a second, and the memory of a task.

Usage: rebuild.py [--gib N ...] [--runs N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pyspark.sql import SparkSession

from pyspark_commitlog.rebuild import rebuild
from store_core.store.config import MessageStoreConfig
from store_core.store.rebuild_rules import RebuildRules
from tests.benchmarks.measure import Timing
from tests.benchmarks.segments import make_log

__all__ = ["bench_rebuild"]

_GIBIBYTE: Final = 1 << 30
_BODY: Final = 200
_MOST_MEMORY: Final = 600
_KIBIBYTES: Final = 1024
_SETTINGS: Final = Path(__file__).parents[2] / "spark-conf"


def bench_rebuild(folder: Path, runs: int, sizes: tuple[float, ...] = (1.5,)) -> list[dict[str, object]]:
    """Time rebuilds of logs of so many GiB in segments of 1 GiB, with sync, after one run to warm up."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_CONF_DIR"] = str(_SETTINGS)
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    results = []
    try:
        for size in sizes:
            log = make_log(folder, int(size * _GIBIBYTE), _GIBIBYTE, _BODY)
            for name, has_queues, has_index in (("queues", True, False), ("queues and index", True, True)):
                results.append(_timed(spark, log, f"{size:g} GiB, {name}", runs, (has_queues, has_index)))
    finally:
        spark.stop()
    results.append(_memory(make_log(folder, _GIBIBYTE, _GIBIBYTE, _BODY)))
    return results


def _timed(spark: SparkSession, log: Path, name: str, runs: int, wanted: tuple[bool, bool]) -> dict[str, object]:
    rules = RebuildRules(MessageStoreConfig().queue_rules(), has_queues=wanted[0], has_index=wanted[1])
    seconds, records = [], 0
    for _ in range(runs + 1):
        with tempfile.TemporaryDirectory(dir=log.parent) as target:
            begin = time.perf_counter()
            records = rebuild(spark, log, Path(target), rules).records
            seconds.append(time.perf_counter() - begin)
    timing = Timing(name, tuple(seconds[1:]))
    rate = records / timing.least
    print(
        f"  {name:<28} {timing.least:7.2f} s {timing.median:7.2f} s  {records:,} records, {rate / 1e6:.2f} M/s, load "
        f"{os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return {"name": name, "least": timing.least, "median": timing.median, "records": records, "rate": rate}


def _memory(log: Path) -> dict[str, object]:
    command = [sys.executable, __file__, "--memory-of", str(log)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()  # noqa: S603
    grown = (int(told[1]) - int(told[0])) / _KIBIBYTES
    verdict = "reached" if grown <= _MOST_MEMORY else "MISSED"
    print(f"  peak memory of tasks over 1 GiB: {grown:.0f} MiB  {verdict} (<= {_MOST_MEMORY})")
    return {"name": "memory", "grown_mib": grown, "target": _MOST_MEMORY}


def _anonymous() -> int:
    """Give the process's anonymous resident memory in KiB: without the mapped segment."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def _measure_memory(log: Path) -> None:
    """Read a whole segment as one task does, dropping what it gives."""
    from pyspark_commitlog.rebuild_tasks import RebuildTasks  # noqa: PLC0415 -- measured from here on
    from store_core.files.store_path import list_segments  # noqa: PLC0415
    from store_core.store.segment_part import SegmentPart  # noqa: PLC0415

    before = peak = _anonymous()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, _anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    (segment,) = list_segments(str(log)).segments
    rules = RebuildRules(MessageStoreConfig().queue_rules(), has_index=True)
    for _ in RebuildTasks((SegmentPart(segment, 0, segment.size),), rules, log, log / "none", 4).scan([0]):
        pass
    done.set()
    watcher.join()
    print(before, peak)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, nargs="*", default=[1.5], help="sizes of logs (default 1.5)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each, after one to warm up (default 5)")
    parser.add_argument("--folder", type=Path, default=Path(".cache/bench"), help="where logs are kept")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of is not None:
        _measure_memory(options.memory_of)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    bench_rebuild(options.folder, options.runs, tuple(options.gib))


if __name__ == "__main__":
    main()
