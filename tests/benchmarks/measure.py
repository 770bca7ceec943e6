# SPDX-License-Identifier: Apache-2.0
"""Times several things in turn in one process, so that other load on the machine affects all alike."""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from store_core import read_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_PARENT: Final = 1
_TIMES: Final = slice(11, 15)
"""Fields of ``/proc/PID/stat`` after the program's name: user and system time, then those of children that ended."""


@dataclass(frozen=True)
class Timing:
    """Seconds of several runs of one thing."""

    name: str
    seconds: tuple[float, ...]

    @property
    def least(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def measure(
    functions: Mapping[str, Callable[[], object]], runs: int, clock: Callable[[], float] = time.process_time
) -> dict[str, Timing]:
    """Run all functions once to warm them up, then `runs` times, in rounds.

    The default clock is user and system time of this process, which does not count waiting for a CPU.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(runs + 1):
        for name, function in functions.items():
            begin = clock()
            function()
            if number:
                seconds[name].append(clock() - begin)
    return {name: Timing(name, tuple(times)) for name, times in seconds.items()}


def family() -> dict[int, float]:
    """Return user and system time of this process and all that descend from it, by their ids.

    A process's time contains that of its children that ended.
    """
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[_PARENT])
            ticks[int(path.parent.name)] = sum(map(int, fields[_TIMES]))
    members = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in members} - members:
        members |= more
    return {process: ticks[process] / os.sysconf("SC_CLK_TCK") for process in members if process in ticks}


def seconds_of(process: int) -> float:
    """Return user and system time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[_TIMES])) / os.sysconf("SC_CLK_TCK")


def ended_seconds() -> float:
    """Return user and system time of all processes that this one started and that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def family_seconds() -> float:
    """Return user and system time of this process and all that descend from it, those that ended included."""
    return sum(family().values())


def drained(store: Path | str, **options: Any) -> Callable[[], None]:  # noqa: ANN401 -- those of `read_messages`
    """Return what reads all batches of a store, and keeps none."""

    def drain() -> None:
        for _ in read_messages(store, **options):
            pass

    return drain


def verdict(found: float, *, most: float | None = None, least: float | None = None) -> str:
    """Return in words whether a figure is what it is to be."""
    if most is not None:
        return f"{'reached' if found <= most else 'MISSED'} (<= {most:g})"
    return "" if least is None else f"{'reached' if found >= least else 'MISSED'} (>= {least:g})"


def report(timing: Timing, base: Timing, target: float | None = None) -> dict[str, object]:
    """Print a line: least and median seconds, ratio of the least, and median of the rounds' ratios."""
    ratio = timing.least / base.least
    median = statistics.median(mine / its for mine, its in zip(timing.seconds, base.seconds, strict=True))
    load = os.getloadavg()[0]
    print(
        f"  {timing.name:<46} {timing.least:8.4f} s {timing.median:8.4f} s"
        f"   x {ratio:6.2f} {median:6.2f}   load {load:4.1f}  {verdict(ratio, most=target)}",
        flush=True,
    )
    return {
        "name": timing.name,
        "least": timing.least,
        "median": timing.median,
        "ratio": ratio,
        "median_ratio": median,
        "target": target,
        "load": load,
    }


def compare(
    functions: Mapping[str, Callable[[], object]],
    runs: int,
    targets: Mapping[str, float] | None = None,
    clock: Callable[[], float] = time.process_time,
) -> list[dict[str, object]]:
    """Measure, and return a row of each, beside the first; targets are ratios by the name of the row."""
    timings = measure(functions, runs, clock)
    base = next(iter(timings.values()))
    return [report(timing, base, (targets or {}).get(name)) for name, timing in timings.items()]


def report_limit(timing: Timing, most: float | None = None) -> dict[str, object]:
    """Print a line without a ratio; the shortest time is to be at most so many seconds."""
    load = os.getloadavg()[0]
    print(
        f"  {timing.name:<46} {timing.least:8.4f} s {timing.median:8.4f} s   load {load:4.1f}"
        f"  {verdict(timing.least, most=most)}",
        flush=True,
    )
    return {"name": timing.name, "least": timing.least, "median": timing.median, "most": most, "load": load}


def report_speed(
    timing: Timing, base: Timing | None = None, wanted: float | None = None, *, is_rate: bool = False
) -> dict[str, object]:
    """Print a line that says how many times as fast as its base something is; of rates, seconds are those of one."""
    unit = "thousand/s" if is_rate else "s"
    least, median = (1e-3 / each if is_rate else each for each in (timing.least, timing.median))
    row: dict[str, object] = {"name": timing.name, "least": least, "median": median, "unit": unit}
    told = f"  {timing.name:<48} {least:10,.2f} (median {median:10,.2f}) {unit}"
    if base is not None:
        ratio = base.least / timing.least
        of_rounds = [its / mine for its, mine in zip(base.seconds, timing.seconds, strict=True)]
        row |= {"ratio": ratio, "median_ratio": statistics.median(of_rounds), "at_least": wanted}
        told += f"  x {ratio:.2f} (rounds {min(of_rounds):.2f} to {max(of_rounds):.2f})  {verdict(ratio, least=wanted)}"
    print(f"{told}  load {os.getloadavg()[0]:.1f}", flush=True)
    return row | {"load": os.getloadavg()[0]}
