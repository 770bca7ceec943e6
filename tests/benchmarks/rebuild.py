# SPDX-License-Identifier: Apache-2.0
"""Measures making queues and index, by rebuilds in a session of two slots and by recovery, against RocketMQ.

* Rebuilds against RocketMQ: 1.5 GiB. In each round RocketMQ loads a store without queues and index, and makes both;
  then this project rebuilds queues alone, then both. RocketMQ is set not to check bodies (``checkCRCOnRecover``), as
  here.
* Growth: logs of 0.5, 1, 2 and 4 GiB, in turn; those that only this part needs are removed afterwards.
* Memory: what reading a segment of 1 GiB adds to a process.
* Recovery: the same log was not closed. Both follow the whole log, check it, and put every record into its queue and
  its keys into the index; in each round with and without the index, and with and without checking bodies. Timed are
  RocketMQ's ``load`` and the same steps of ours, in one thread each; ours include flushing the queues to disk.

Usage: rebuild.py LOG: prints the KiB of reading its only segment
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pyspark_commitlog.answers import SparkEngine
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.rebuild.job import rebuild_by
from store_core.store.rebuild.plan import RebuildRules
from store_core.store.store_life import StoreServices, StoreSetup
from tests.benchmarks.measure import Timing, report_speed
from tests.benchmarks.memory import anonymous, memory_row, peak_while, told_by
from tests.benchmarks.segments import link_log, make_log
from tests.benchmarks.spark import CONF, bench_session, settings_of
from tests.interop.judge import Judge
from tests.interop.rocketmq import RocketMq
from tests.interop.toolchain import RELEASES, harness_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GIBIBYTE: Final = 1 << 30
_LOG_BYTES: Final = 3 * _GIBIBYTE // 2
_GROWING: Final = (0.5, 1.0, 2.0, 4.0)
_WANTED: Final = {"queues": (False, 12.0), "queues and index": (True, 8.0)}
"""Whether the index is rebuilt, and the target: how many times as fast as RocketMQ's queues and index."""

_RECOVERED: Final = {
    "queues": (5.0, False, False),
    "queues and index": (3.0, True, False),
    "queues, bodies checked": (5.0, False, True),
    "queues and index, bodies checked": (3.0, True, True),
}
"""The target of recovery, as times RocketMQ's speed, and whether there is an index, and bodies are checked."""

_RELEASE: Final = "5.3"
"""That of the judge: 5.4 and later have entries for tags as well, half as many again."""

_BODY: Final = 200
_MOST_MEMORY: Final = 150
_MADE: Final = ("consumequeue", "index", "checkpoint", "lock", "config")


def _lose_queues(store: Path) -> None:
    """Remove everything but the log, and mark the store as not closed."""
    for name in _MADE:
        path = store / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    store.joinpath("abort").touch()


# ---- rebuilds


def bench_rebuild(folder: Path, runs: int) -> dict[str, list[dict[str, Any]]]:
    """Measure, with sync, after one round to warm up; return tables by their names."""
    spark = bench_session(settings=settings_of(CONF / "spark-defaults.conf"))
    try:
        tables = {"rebuild": _ratio(spark, folder, runs), "rebuild growth": _growth(spark, folder, runs)}
    finally:
        spark.stop()
    log = make_log(folder, _GIBIBYTE, _GIBIBYTE, _BODY)
    before, peak = told_by(__file__, log)
    return {**tables, "rebuild memory": [memory_row("queues and index, 1 GiB", peak - before, _MOST_MEMORY)]}


def _ratio(spark: SparkSession, folder: Path, runs: int) -> list[dict[str, Any]]:
    """Rebuild in turn with RocketMQ, whose single pass makes queues and index."""
    log = make_log(folder, _LOG_BYTES, _GIBIBYTE, _BODY)
    theirs: list[float] = []
    ours: dict[str, list[float]] = {name: [] for name in _WANTED}
    records = 0
    with tempfile.TemporaryDirectory(dir=folder) as linked, RocketMq(harness_command(RELEASES[_RELEASE])) as process:
        store, judge = link_log(Path(linked), log), Judge(_RELEASE, process)
        for _ in range(runs + 1):
            _lose_queues(store)
            answer = judge.bench_load(store, messageIndexEnable=True, checkCRCOnRecover=False)
            theirs.append(answer["seconds"])
            _lose_queues(store)
            for name, (has_index, _) in _WANTED.items():
                seconds, records = _rebuild(spark, store, has_index=has_index)
                ours[name].append(seconds)
    base = Timing("RocketMQ 5.3.3, queues and index", tuple(theirs[1:]))
    timings = {name: Timing(name, tuple(seconds[1:])) for name, seconds in ours.items()}
    rows = [report_speed(base), *(report_speed(timings[name], base, _WANTED[name][1]) for name in timings)]
    return [row | {"records": records} for row in rows]


def _growth(spark: SparkSession, folder: Path, runs: int) -> list[dict[str, Any]]:
    """Rebuild queues and index of logs of doubling size; seconds a GiB."""
    known = {path.name for path in folder.iterdir()}
    logs = {gib: make_log(folder, int(gib * _GIBIBYTE), _GIBIBYTE, _BODY) for gib in _GROWING}
    seconds: dict[float, list[float]] = {gib: [] for gib in logs}
    records: dict[float, int] = {}
    for _ in range(runs + 1):
        for gib, log in logs.items():
            took, records[gib] = _rebuild(spark, log, has_index=True)
            seconds[gib].append(took / gib)
    rows = []
    for gib, log in logs.items():
        row = report_speed(Timing(f"{gib:g} GiB, queues and index", tuple(seconds[gib][1:])))
        rows.append(row | {"records": records[gib], "unit": "s a GiB"})
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


def _measure_memory(log: Path) -> None:
    """Read a whole segment as one task does, and drop the result."""
    from store_core.snapshot.log import Log  # noqa: PLC0415 -- measured from here on
    from store_core.store.rebuild.job import RebuildJob  # noqa: PLC0415
    from store_core.store.rebuild.segment_scan import SegmentPart  # noqa: PLC0415

    before = anonymous()
    (segment,) = Log.of(str(log)).segments
    rules = RebuildRules(MessageStoreConfig().queue_rules(), has_index=True)
    job = RebuildJob((SegmentPart(segment, 0, segment.size),), rules, log, log / "none", 4)

    def run() -> None:
        for _ in job.run(0):
            pass

    print(before, peak_while(run, anonymous))


# ---- recovery


def bench_recovery(folder: Path, runs: int) -> list[dict[str, Any]]:
    """Measure, after one round to warm up; return rows of elapsed time."""
    store = make_log(folder, _LOG_BYTES, _GIBIBYTE, _BODY)
    ours: dict[str, list[float]] = {name: [] for name in _RECOVERED}
    theirs: dict[str, list[float]] = {name: [] for name in _RECOVERED}
    records = 0
    with RocketMq(harness_command(RELEASES[_RELEASE])) as process:
        judge = Judge(_RELEASE, process)
        for _ in range(runs + 1):
            for name, (_, index, bodies) in _RECOVERED.items():
                _lose_queues(store)
                answer = judge.bench_load(store, messageIndexEnable=index, checkCRCOnRecover=bodies)
                theirs[name].append(answer["seconds"])
                _lose_queues(store)
                begin = time.perf_counter()
                records = _recover(store, index=index, bodies=bodies)
                ours[name].append(time.perf_counter() - begin)
    _lose_queues(store)
    print(f"==> {records:,} records, {runs} rounds, RocketMQ {RELEASES[_RELEASE]}; load {os.getloadavg()[0]:.1f}")
    rows = []
    for name, (wanted, _, _) in _RECOVERED.items():
        base = Timing(f"{name}, RocketMQ", tuple(theirs[name][1:]))
        rows += [report_speed(base), report_speed(Timing(f"{name}, here", tuple(ours[name][1:])), base, wanted)]
    return rows


def _recover(store: Path, *, index: bool, bodies: bool) -> int:
    """Do the steps of opening a store before services start; return the number of records."""
    config = MessageStoreConfig(release=_RELEASE, message_index_enable=index, check_crc_on_recover=bodies)
    services = StoreServices(StoreSetup(store, config))
    records = services.recover(last_exit_ok=False).dispatched
    services.close()
    return records


if __name__ == "__main__":
    _measure_memory(Path(sys.argv[1]))
