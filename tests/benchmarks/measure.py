# SPDX-License-Identifier: Apache-2.0
"""Timing of one thing beside another, in one process."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Timing", "measure", "report"]


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


def measure(name: str, runs: int, function: Callable[[], object]) -> Timing:
    """Run a function once to warm it up, then `runs` times."""
    function()
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return Timing(name, tuple(seconds))


def report(timing: Timing, base: Timing, target: float | None = None) -> dict[str, object]:
    """Print one line of the table: least and median seconds, and their ratios to the base's."""
    ratio, median = timing.least / base.least, timing.median / base.median
    wanted = "" if target is None else f"{'reached' if ratio <= target else 'MISSED'} (<= {target})"
    load = os.getloadavg()[0]
    print(
        f"  {timing.name:<46} {timing.least:8.4f} s {timing.median:8.4f} s"
        f"   x {ratio:6.2f} {median:6.2f}   load {load:4.1f}  {wanted}",
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
