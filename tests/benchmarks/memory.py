# SPDX-License-Identifier: Apache-2.0
"""Measures the peak memory of a Spark task that reads a segment, beyond an interpreter that has imported Spark."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

__all__ = ["bench_memory"]

_TARGET: Final = 400
_KIBIBYTES: Final = 1024


def bench_memory(store: Path) -> dict[str, object]:
    """Read all default columns of a store in a separate process, and return its peak of anonymous memory."""
    command = [sys.executable, __file__, str(store)]
    root = Path(__file__).resolve().parents[2]
    before, peak = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout.split()  # noqa: S603
    grown = (int(peak) - int(before)) / _KIBIBYTES
    verdict = "reached" if grown <= _TARGET else "MISSED"
    print(
        f"  peak memory of a task, beyond the {int(before) / _KIBIBYTES:.0f} MiB before it:"
        f" {grown:.0f} MiB  {verdict} (<= {_TARGET})"
    )
    return {"name": "memory", "before_mib": int(before) / _KIBIBYTES, "grown_mib": grown, "target": _TARGET}


def _anonymous() -> int:
    """Return the process's anonymous resident memory in KiB: without the mapped segment."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def _main(store: str) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import pyspark.sql  # noqa: F401, PLC0415 -- what a task's interpreter has imported

    from store_core import read_messages  # noqa: PLC0415 -- measured from here on

    before = peak = _anonymous()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, _anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in read_messages(store):
        pass
    done.set()
    watcher.join()
    print(before, peak)


if __name__ == "__main__":
    _main(sys.argv[1])
