# SPDX-License-Identifier: Apache-2.0
"""Runs a campaign that is guided by coverage, and prints what came of each decoder.

Usage: python -m tests.fuzz.guided.campaign [--seconds S] [--processes N] [--seed SEED] [--idle] [--directory DIR]
       python -m tests.fuzz.guided.campaign --again FILE

It needs atheris, which `make fuzz-coverage` installs. The corpus stays in the directory, and the next campaign goes on
with it. With --idle the processes get only time that nobody else wants. --again gives one input to its decoder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.decoders import DECODERS
from tests.fuzz.seeds import MOST_BYTES
from tests.fuzz.target import Decoder, Judge

if TYPE_CHECKING:
    from types import FrameType


_MEBIBYTE: Final = 1 << 20
_MOST_MEMORY: Final = 2048
_SLOWEST: Final = 3600
"""Seconds of an input after which libFuzzer ends the process: idle ones may wait long for the processor."""
_MOST_DIED: Final = 20
"""Processes after whose deaths no more are started."""

_COVERAGE: Final = re.compile(rb"cov: (\d+) ft: (\d+) corp: (\d+)")
_DIRECTORY: Final = Path(".cache/fuzz-coverage")
_FRACTION: Final = 16


class GivenRandom(Random):
    """Random numbers that are the bytes of an input; when it is used up, those of a seed, since zeros may never end."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data = data
        self._next = 0

    def getrandbits(self, count: int, /) -> int:
        """Take as many bits, from whole bytes."""
        size = (count + 7) // 8
        if self._next >= len(self._data):
            return super().getrandbits(count)
        taken = self._data[self._next : self._next + size]
        self._next += size
        return int.from_bytes(taken, "little") & ((1 << count) - 1)

    def random(self) -> float:
        """Take two bytes as a fraction of 1."""
        return self.getrandbits(_FRACTION) / (1 << _FRACTION)


def _drawn(decoder: Decoder) -> Decoder:
    target = decoder.target()

    def prepare(directory: Path) -> Judge:
        run = target.prepare(directory)
        return lambda data: run(GivenRandom(data))

    def seeds(_: Path) -> list[bytes]:
        return [Random(f"{target.name}-{number}").randbytes(64) for number in range(4)]

    return Decoder(f"drawn-{target.name}", prepare, seeds)


ALL_DECODERS: Final = (*DECODERS, *(_drawn(decoder) for decoder in DECODERS if decoder.pieces))
"""In the order that the first byte of an input means.

Those of texts are there a second time, with mutations by lots that the fuzzer chooses: it finds which lead to new code.
"""


@dataclass(slots=True)
class Totals:
    """What all processes did.

    * `coverage`: Edges, features and inputs of the corpus, as the last process with the most edges said.
    * `died`: Processes that ended before their time.
    """

    executions: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)
    cpu: float = 0.0
    memory: int = 0
    coverage: tuple[int, ...] = (0, 0, 0)
    died: list[str] = field(default_factory=list)

    def add(self, report: dict[str, Any], log: bytes) -> None:
        """Add what a process reported, and what libFuzzer said of its coverage."""
        self.executions.update(report["executions"])
        self.seconds.update(report["seconds"])
        self.findings.update(report["findings"])
        self.cpu += report["cpu"]
        self.memory = max(self.memory, report["memory"])
        self.coverage = max([self.coverage, *(tuple(map(int, each)) for each in _COVERAGE.findall(log)[-1:])])

    def __str__(self) -> str:
        lines = [f"{'decoder':26} {'executions':>12} {'CPU s':>9} {'us each':>8}"]
        for name in self.executions:
            count, seconds = self.executions[name], self.seconds[name]
            lines.append(f"{name:26} {count:12,} {seconds:9.1f} {seconds / count * 1e6:8.0f}")
        edges, features, inputs = self.coverage
        return "\n".join([
            *lines,
            f"{'all':26} {self.executions.total():12,} {self.cpu:9.1f} (with libFuzzer's own work)",
            (f"{edges:,} edges and {features:,} features reached, {inputs:,} inputs kept, at most "
            f"{self.memory / _MEBIBYTE:.0f} MiB per process"),
            f"{len(self.findings)} findings, {len(self.died)} processes died",
            *self.findings.values(),
            *self.died,
        ])  # fmt: skip


class _Campaign:
    def __init__(self, asked: argparse.Namespace) -> None:
        names = "\n".join(decoder.name for decoder in ALL_DECODERS)
        self.directory = asked.directory / hashlib.sha256(names.encode()).hexdigest()[:8]
        self.until = time.monotonic() + asked.seconds
        self.seed = asked.seed
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.logs: dict[int, Path] = {}
        self.totals = Totals()

    def prepare(self) -> None:
        """Write the inputs to begin with."""
        for name in ("corpus", "findings", "logs"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        for old in self.directory.glob("report-*"):
            old.unlink()
        with tempfile.TemporaryDirectory(prefix="seeds-") as made:
            for number, decoder in enumerate(ALL_DECODERS):
                for seed in decoder.seeds(Path(made)):
                    data = bytes([number]) + seed[: MOST_BYTES - 1]
                    (self.directory / "corpus" / hashlib.sha256(data).hexdigest()[:20]).write_bytes(data)

    def start(self) -> None:
        """Start one more process for the time that is left."""
        number = self.seed + len(self.logs)
        command = [
            sys.executable, "-m", "tests.fuzz.guided.harness", str(self.directory),
            str(max(self.until - time.monotonic(), 1.0)), str(number), f"-max_len={MOST_BYTES}", "-len_control=20",
            f"-use_value_profile={number % 2}", f"-rss_limit_mb={_MOST_MEMORY}", f"-timeout={_SLOWEST}",
            f"-artifact_prefix={self.directory}/findings/process-{number}-",
        ]  # fmt: skip
        log = self.directory / "logs" / f"{number}.log"
        with log.open("wb") as stream:
            child = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)  # noqa: S603 -- our own
        self.children[child.pid], self.logs[child.pid] = child, log

    def wait(self) -> None:
        """Wait for the end; a process that ends before is replaced, and noted if it died."""
        while self.children:
            for pid, child in list(self.children.items()):
                if child.poll() is None:
                    continue
                del self.children[pid]
                log = self.logs[pid].read_bytes()
                report = self.directory / f"report-{pid}.json"
                if report.exists():
                    self.totals.add(json.loads(report.read_text(encoding="utf-8")), log)
                if child.returncode and self.until:
                    said = log[-1500:].decode("utf-8", "replace")
                    self.totals.died.append(f"process {pid} ended with {child.returncode}:\n{said}")
                if time.monotonic() < self.until and len(self.totals.died) < _MOST_DIED:
                    self.start()
            time.sleep(0.5)

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        """End all processes; what they reported last counts."""
        self.until = 0.0
        for child in self.children.values():
            child.terminate()


def main() -> int:
    """Run the program; return 1 if there was a finding."""
    parser = argparse.ArgumentParser(description="Fuzz the scalar decoders, guided by coverage.")
    parser.add_argument("--seconds", type=float, default=600.0, help="wall-clock time")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--idle", action="store_true", help="take only time that nobody else wants")
    parser.add_argument("--directory", type=Path, default=_DIRECTORY, help="of corpus and findings")
    parser.add_argument("--again", type=Path, metavar="FILE", help="give an input to its decoder, and do nothing else")
    asked = parser.parse_args()
    if asked.again is not None:
        data = asked.again.read_bytes()
        decoder = ALL_DECODERS[data[0] % len(ALL_DECODERS)]
        with tempfile.TemporaryDirectory(prefix="guided-") as made:
            decoder.prepare(Path(made))(data[1:])
        return 0
    if asked.idle:
        os.nice(19)
        if hasattr(os, "sched_setscheduler"):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    campaign = _Campaign(asked)
    campaign.prepare()
    signal.signal(signal.SIGTERM, campaign.stop)
    signal.signal(signal.SIGINT, campaign.stop)
    for _ in range(asked.processes):
        campaign.start()
    campaign.wait()
    print(campaign.totals)
    return 1 if campaign.totals.findings or campaign.totals.died else 0


if __name__ == "__main__":
    raise SystemExit(main())
