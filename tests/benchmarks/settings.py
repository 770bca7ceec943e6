# SPDX-License-Identifier: Apache-2.0
"""Compares reads with Spark's own settings of the JVM and with those of ``spark-conf/fast-reads.conf``.

A JVM keeps the settings that it started with, so that each session has a process of its own; they take turns.

Usage: python -m tests.benchmarks.settings STORE FOLDER [CONF]: prints the processor time of one process's reads as JSON
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.benchmarks.measure import Timing, family_seconds, measure, report
from tests.benchmarks.ready_batches import register_ready_batches
from tests.benchmarks.spark import bench_session, drain

if TYPE_CHECKING:
    from collections.abc import Mapping


_FAST: Final = Path(__file__).resolve().parents[2] / "spark-conf" / "fast-reads.conf"
_READS_OF_A_PROCESS: Final = 8
"""The first ones compile the query's code."""

_NAMES: Final = ("floor, all columns", "commitlog, all columns, no CRC")


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
    call = [
        sys.executable,
        "-m",
        "tests.benchmarks.settings",
        str(store),
        str(folder),
        *[str(conf)] * (conf is not None),
    ]
    done = subprocess.run(call, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603 -- ours
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _settings_of(conf: Path) -> dict[str, str]:
    """Return the settings in a file of properties."""
    lines = (line.split(maxsplit=1) for line in conf.read_text().splitlines() if line and not line.startswith("#"))
    return {name: value.strip() for name, value in lines}


def _main(store: Path, folder: Path, settings: Mapping[str, str]) -> None:
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


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), _settings_of(Path(sys.argv[3])) if sys.argv[3:] else {})
