# SPDX-License-Identifier: Apache-2.0
"""Measures recovery, which makes queues and index when a store is opened, against RocketMQ, which does so on load.

Usage: recovery.py [--runs N] [--gib SIZE] [--release 4.3 4.9 5.3] [--folder DIR]

A log of 1.5 GiB has lost its queues and its index, and was not closed. Both recover it: follow the whole log, check
it, and put every record into its queue and its keys into the index. In each round both do so with and without the
index, and with and without checking bodies (``checkCRCOnRecover``). Timed are RocketMQ's ``load`` and the same steps
of ours, in one thread each; ours include flushing the queues to disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from store_core import MessageStoreConfig
from store_core.store.store_life import StoreServices, StoreSetup
from tests.benchmarks.measure import Timing
from tests.benchmarks.segments import make_log
from tests.interop.judge import Judge
from tests.interop.rocketmq import RocketMq
from tests.interop.toolchain import RELEASES, harness_command

if TYPE_CHECKING:
    from store_core.store.message_store_config import Release
    from store_core.store.recovery.recovery_report import RecoveryReport


_GIBIBYTE: Final = 1 << 30
_BODY: Final = 200
_GIB: Final = 1.5
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


def recover_here(store: Path, release: Release, *, index: bool, bodies: bool = True) -> RecoveryReport:
    """Do the steps of opening a store before services start."""
    config = MessageStoreConfig(release=release, message_index_enable=index, check_crc_on_recover=bodies)
    services = StoreServices(StoreSetup(store, config))
    report = services.recover(last_exit_ok=False)
    services.close()
    return report


def bench_recovery(folder: Path, release: Release, runs: int, gib: float = _GIB) -> list[dict[str, object]]:
    """Measure, after one round to warm up; return rows of elapsed time."""
    store = make_log(folder, int(gib * _GIBIBYTE), _GIBIBYTE, _BODY)
    ours = {name: Rounds(f"{name}, here") for name in _WANTED}
    theirs = {name: Rounds(f"{name}, RocketMQ") for name in _WANTED}
    records = 0
    with RocketMq(harness_command(RELEASES[release])) as process:
        judge = Judge(release, process)
        for number in range(runs + 1):
            for name, (_, index, bodies) in _WANTED.items():
                lose_queues(store)
                answer = judge.bench_load(store, messageIndexEnable=index, checkCRCOnRecover=bodies)
                lose_queues(store)
                begin, begin_cpu = time.perf_counter(), time.process_time()
                records = recover_here(store, release, index=index, bodies=bodies).dispatched
                seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
                if number:
                    theirs[name].add(answer["seconds"], answer["cpuSeconds"])
                    ours[name].add(seconds, cpu_seconds)
    lose_queues(store)
    print(f"==> {records:,} records, {runs} rounds, RocketMQ {RELEASES[release]}; load {os.getloadavg()[0]:.1f}")
    rows = []
    for name, (wanted, _, _) in _WANTED.items():
        rows += [theirs[name].report(), ours[name].report(theirs[name], wanted)]
    return rows


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="rounds, after one to warm up (default 5)")
    parser.add_argument("--gib", type=float, default=_GIB, help="size of the log (default 1.5)")
    parser.add_argument("--release", nargs="*", default=["5.3"], help="releases of RocketMQ (default 5.3)")
    parser.add_argument("--folder", type=Path, default=Path(".cache/bench"), help="where logs are kept")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for release in options.release:
        bench_recovery(options.folder, cast("Release", release), options.runs, options.gib)


if __name__ == "__main__":
    main()
