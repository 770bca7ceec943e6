# SPDX-License-Identifier: Apache-2.0
"""Measures recovery, which makes queues and index when a store is opened, against RocketMQ, which does so on load.

A log of 1.5 GiB has lost its queues and its index, and was not closed. Both recover it: follow the whole log, check
it, and put every record into its queue and its keys into the index. In each round both do so with and without the
index, and with and without checking bodies (``checkCRCOnRecover``). Timed are RocketMQ's ``load`` and the same steps
of ours, in one thread each; ours include flushing the queues to disk.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from store_core import MessageStoreConfig
from store_core.store.store_life import StoreServices, StoreSetup
from tests.benchmarks.measure import Timing
from tests.benchmarks.segments import make_log
from tests.interop.judge import Judge
from tests.interop.rocketmq import RocketMq
from tests.interop.toolchain import RELEASES, harness_command

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.store.recovery.recovery_report import RecoveryReport


_GIBIBYTE: Final = 1 << 30
_BODY: Final = 200
_RELEASE: Final = "5.3"
_MADE: Final = ("consumequeue", "index", "checkpoint", "lock", "config")
_WANTED: Final = {
    "queues": (5.0, False, False),
    "queues and index": (3.0, True, False),
    "queues, bodies checked": (5.0, False, True),
    "queues and index, bodies checked": (3.0, True, True),
}
"""The target, as times RocketMQ's speed, and whether there is an index, and bodies are checked."""


@dataclass
class Rounds:
    """Wall-clock and CPU seconds of each round."""

    name: str
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def add(self, seconds: float, cpu_seconds: float) -> None:
        self.seconds.append(seconds)
        self.cpu_seconds.append(cpu_seconds)

    def report(self, base: Rounds | None = None, wanted: float | None = None) -> dict[str, object]:
        """Print and return least and median, and the speed as a multiple of `base`'s."""
        line = f"  {self.name:<44}"
        for label, mine, its in (
            ("s", self.seconds, base and base.seconds),
            ("s CPU", self.cpu_seconds, base and base.cpu_seconds),
        ):
            timing = Timing(self.name, tuple(mine))
            line += f"  {timing.least:6.2f} ({timing.median:5.2f}) {label}"
            if its:
                theirs = Timing(self.name, tuple(its))
                line += f" x {theirs.least / timing.least:5.2f} ({theirs.median / timing.median:5.2f})"
        print(line + (f"  wanted {wanted:g}" if wanted else ""), flush=True)
        elapsed = Timing(self.name, tuple(self.seconds))
        row = {"name": self.name, "least": elapsed.least, "median": elapsed.median, "load": os.getloadavg()[0]}
        if base is None:
            return row
        theirs = Timing(base.name, tuple(base.seconds))
        ratios = {"ratio": theirs.least / elapsed.least, "median_ratio": theirs.median / elapsed.median}
        return {**row, **ratios, "at_least": wanted}


def lose_queues(store: Path) -> None:
    """Remove everything but the log, and mark the store as not closed."""
    for name in _MADE:
        path = store / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    store.joinpath("abort").touch()


def recover_here(store: Path, *, index: bool, bodies: bool) -> RecoveryReport:
    """Do the steps of opening a store before services start."""
    config = MessageStoreConfig(release=_RELEASE, message_index_enable=index, check_crc_on_recover=bodies)
    services = StoreServices(StoreSetup(store, config))
    report = services.recover(last_exit_ok=False)
    services.close()
    return report


def bench_recovery(folder: Path, runs: int) -> list[dict[str, object]]:
    """Measure, after one round to warm up; return rows of elapsed time."""
    store = make_log(folder, 3 * _GIBIBYTE // 2, _GIBIBYTE, _BODY)
    ours = {name: Rounds(f"{name}, here") for name in _WANTED}
    theirs = {name: Rounds(f"{name}, RocketMQ") for name in _WANTED}
    records = 0
    with RocketMq(harness_command(RELEASES[_RELEASE])) as process:
        judge = Judge(_RELEASE, process)
        for number in range(runs + 1):
            for name, (_, index, bodies) in _WANTED.items():
                lose_queues(store)
                answer = judge.bench_load(store, messageIndexEnable=index, checkCRCOnRecover=bodies)
                lose_queues(store)
                begin, begin_cpu = time.perf_counter(), time.process_time()
                records = recover_here(store, index=index, bodies=bodies).dispatched
                seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
                if number:
                    theirs[name].add(answer["seconds"], answer["cpuSeconds"])
                    ours[name].add(seconds, cpu_seconds)
    lose_queues(store)
    print(f"==> {records:,} records, {runs} rounds, RocketMQ {RELEASES[_RELEASE]}; load {os.getloadavg()[0]:.1f}")
    rows = []
    for name, (wanted, _, _) in _WANTED.items():
        rows += [theirs[name].report(), ours[name].report(theirs[name], wanted)]
    return rows
