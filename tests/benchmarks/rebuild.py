# SPDX-License-Identifier: Apache-2.0
"""Measures rebuilding queues and index in a session of two slots: against RocketMQ, for larger logs, and its memory.

* Against RocketMQ: 1.5 GiB. In each round RocketMQ loads a store without queues and index, and makes both; then
  this project rebuilds queues alone, then both. RocketMQ is set not to check bodies (``checkCRCOnRecover``), as here.
* Growth: logs of 0.5, 1, 2 and 4 GiB, in turn; those that only this part needs are removed afterwards.
* Memory: what reading a segment of 1 GiB adds to a process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pyspark.sql import SparkSession

from pyspark_commitlog.engine import SparkEngine
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.rebuild.job import rebuild_by
from store_core.store.rebuild.plan import RebuildRules
from tests.benchmarks.measure import Timing
from tests.benchmarks.memory import anonymous, peak_while
from tests.benchmarks.recovery import lose_queues
from tests.benchmarks.segments import make_log
from tests.interop.judge import Judge
from tests.interop.rocketmq import RocketMq
from tests.interop.toolchain import RELEASES, harness_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_GIBIBYTE: Final = 1 << 30
_LOG_GIB: Final = 1.5
_GROWING: Final = (0.5, 1.0, 2.0, 4.0)
_WANTED: Final = {"queues": (False, 12.0), "queues and index": (True, 8.0)}
"""Whether the index is rebuilt, and the target: how many times as fast as RocketMQ's queues and index."""

_RELEASE: Final = "5.3"
"""That of the judge: 5.4 and later have entries for tags as well, half as many again."""

_BODY: Final = 200
_MOST_MEMORY: Final = 150
_KIBIBYTES: Final = 1024
_SETTINGS: Final = Path(__file__).parents[2] / "spark-conf"


def bench_rebuild(folder: Path, runs: int) -> dict[str, list[dict[str, Any]]]:
    """Measure, with sync, after one round to warm up; return tables by their names."""
    with _session() as spark:
        tables = {"rebuild": _ratio(spark, folder, runs), "rebuild growth": _growth(spark, folder, runs)}
    return {**tables, "rebuild memory": [_memory(make_log(folder, _GIBIBYTE, _GIBIBYTE, _BODY))]}


@contextmanager
def _session() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_CONF_DIR"] = str(_SETTINGS)
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _ratio(spark: SparkSession, folder: Path, runs: int) -> list[dict[str, Any]]:
    """Rebuild in turn with RocketMQ, whose single pass makes queues and index."""
    log = make_log(folder, int(_LOG_GIB * _GIBIBYTE), _GIBIBYTE, _BODY)
    theirs: list[float] = []
    ours: dict[str, list[float]] = {name: [] for name in _WANTED}
    records = 0
    with tempfile.TemporaryDirectory(dir=folder) as linked, RocketMq(harness_command(RELEASES[_RELEASE])) as process:
        store, judge = _linked(log, Path(linked)), Judge(_RELEASE, process)
        for _ in range(runs + 1):
            lose_queues(store)
            answer = judge.bench_load(store, messageIndexEnable=True, checkCRCOnRecover=False)
            theirs.append(answer["seconds"])
            lose_queues(store)
            for name, (has_index, _) in _WANTED.items():
                seconds, records = _rebuild(spark, store, has_index=has_index)
                ours[name].append(seconds)
    base = _report("RocketMQ 5.3.3, queues and index", theirs[1:], records)
    rows = [base]
    for name, (_, wanted) in _WANTED.items():
        row = _report(name, ours[name][1:], records)
        least, median = (base[key] / row[key] for key in ("least", "median"))
        print(f"    x {least:.1f} (medians {median:.1f})  {'reached' if least >= wanted else 'MISSED'} (>= {wanted:g})")
        rows.append(row | {"ratio": least, "median_ratio": median, "at_least": wanted})
    return rows


def _linked(log: Path, root: Path) -> Path:
    """Make a store with the same log files, which shares nothing else with other measurements."""
    directory = root / "commitlog"
    directory.mkdir()
    for segment in (log / "commitlog").iterdir():
        directory.joinpath(segment.name).hardlink_to(segment)
    return root


def _growth(spark: SparkSession, folder: Path, runs: int) -> list[dict[str, Any]]:
    """Rebuild queues and index of logs of doubling size."""
    known = {path.name for path in folder.iterdir()}
    logs = {gib: make_log(folder, int(gib * _GIBIBYTE), _GIBIBYTE, _BODY) for gib in _GROWING}
    seconds: dict[float, list[float]] = {gib: [] for gib in logs}
    records: dict[float, int] = {}
    for _ in range(runs + 1):
        for gib, log in logs.items():
            took, records[gib] = _rebuild(spark, log, has_index=True)
            seconds[gib].append(took)
    rows = []
    for gib, log in logs.items():
        row = _report(f"{gib:g} GiB, queues and index", seconds[gib][1:], records[gib])
        print(f"    {row['least'] / gib:.2f} s a GiB")
        rows.append({**row, "least": row["least"] / gib, "median": row["median"] / gib, "unit": "s a GiB"})
        if log.name not in known:
            shutil.rmtree(log)
    return rows


def _rebuild(spark: SparkSession, store: Path, *, has_index: bool) -> tuple[float, int]:
    """Rebuild once, into a separate directory; return seconds and records."""
    rules = RebuildRules(MessageStoreConfig(release=_RELEASE).queue_rules(), has_index=has_index)
    with tempfile.TemporaryDirectory(dir=store.parent) as target:
        begin = time.perf_counter()
        records = rebuild_by(SparkEngine(spark), store, Path(target), rules).records
        return time.perf_counter() - begin, records


def _report(name: str, seconds: Sequence[float], records: int) -> dict[str, Any]:
    timing = Timing(name, tuple(seconds))
    load = os.getloadavg()[0]
    print(
        f"  {name:<34} {timing.least:7.2f} s {timing.median:7.2f} s  {records:,} records, "
        f"{records / timing.least / 1e6:.2f} M/s, load {load:.1f}",
        flush=True,
    )
    return {"name": name, "least": timing.least, "median": timing.median, "records": records, "load": load}


def _memory(log: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, str(log)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()  # noqa: S603
    grown = (int(told[1]) - int(told[0])) / _KIBIBYTES
    verdict = "reached" if grown <= _MOST_MEMORY else "MISSED"
    print(f"  peak memory of tasks over 1 GiB: {grown:.0f} MiB  {verdict} (<= {_MOST_MEMORY})")
    return {"name": "queues and index, 1 GiB", "least": grown, "unit": "MiB", "most": _MOST_MEMORY}


def _measure_memory(log: Path) -> None:
    """Read a whole segment as one task does, and drop the result."""
    from store_core.snapshot.log import Log  # noqa: PLC0415 -- measured from here on
    from store_core.store.rebuild.job import RebuildJob  # noqa: PLC0415
    from store_core.store.rebuild.segment_part import SegmentPart  # noqa: PLC0415

    before = anonymous()
    (segment,) = Log.of(str(log)).segments
    rules = RebuildRules(MessageStoreConfig().queue_rules(), has_index=True)
    job = RebuildJob((SegmentPart(segment, 0, segment.size),), rules, log, log / "none", 4)

    def run() -> None:
        for _ in job.run(0):
            pass

    print(before, peak_while(run, anonymous))


if __name__ == "__main__":
    _measure_memory(Path(sys.argv[1]))
