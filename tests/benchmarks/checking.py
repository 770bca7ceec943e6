# SPDX-License-Identifier: Apache-2.0
"""Compares a check of a store of 4.3 million messages with decoding all of them; and times ``commitlog count``."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core import RebuildOptions, read_messages, rebuild_consume_queue
from store_core.answers import check
from store_core.answers.report import Verdict
from tests.benchmarks.measure import measure, report
from tests.benchmarks.segments import make_log, make_store

if TYPE_CHECKING:
    from collections.abc import Callable


_GIBIBYTE: Final = 1 << 30
_LOG_BYTES: Final = 3 * _GIBIBYTE // 2
_BODY: Final = 200
_PROCESSES: Final = 2
_TWICE: Final = 2.0
_SECOND: Final = 1.0


def bench_checking(folder: Path, runs: int) -> list[dict[str, object]]:
    """Time decoding in one process, then checks, as elapsed time; then the count of a warm segment."""
    store = indexed_store(folder)
    print("==> checking 4.3 million messages, beside decoding them; elapsed time, then processor time", flush=True)

    def decode() -> None:
        for _ in read_messages(store, verify_crc=True):
            pass

    candidates: dict[str, Callable[[], object]] = {
        "all default columns, CRC checked, one process": decode,
        "check, two processes": lambda: _check(store, _PROCESSES),
        "check, one process": lambda: _check(store, 1),
    }
    rows = []
    for group, clock in (("elapsed", time.perf_counter), ("processor time", _processor_time)):
        base, two, one = measure(candidates, runs, clock).values()
        target = _TWICE if group == "elapsed" else None
        found = [report(base, base), report(two, base, target), report(one, base)]
        rows += [{**row, "group": group} for row in found]
    return [*rows, *_count(folder, runs)]


def _processor_time() -> float:
    """Return user and system time of this process and of those that it started and that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def indexed_store(folder: Path) -> Path:
    """Make the store, with queues and index, unless it is there."""
    store = make_log(folder, _LOG_BYTES, _GIBIBYTE, _BODY)
    if not (store / "index").exists():
        rebuild_consume_queue(store, RebuildOptions(with_index=True))
        for name in ("consumequeue", "index"):
            (store / "rebuilt" / name).rename(store / name)
        shutil.rmtree(store / "rebuilt")
    return store


def _check(store: Path, processes: int) -> None:
    report = check(store, processes=processes)
    if report.verdict is not Verdict.CLEAN:
        raise SystemExit(f"a sound store has findings: {report.counts}")


def _count(folder: Path, runs: int) -> list[dict[str, object]]:
    """Time the command, from its start to its exit, on one warm segment of 1 GiB."""
    store = make_store(folder, _GIBIBYTE, _BODY)
    command = [str(Path(sys.executable).with_name("commitlog")), "count", str(store)]

    def count() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 -- our own command

    (timing,) = measure({"commitlog count of a warm segment of 1 GiB": count}, runs, time.perf_counter).values()
    row = report(timing, timing)
    print(f"  {'reached' if timing.least <= _SECOND else 'MISSED'} (<= {_SECOND:.0f} s)", flush=True)
    return [{**row, "group": "the command, elapsed", "most": _SECOND}]
