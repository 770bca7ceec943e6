# SPDX-License-Identifier: Apache-2.0
"""Measures the peak memory of a Spark task that reads a segment, beyond an interpreter that has imported Spark."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_TARGET: Final = 150
_KIBIBYTES: Final = 1024


def bench_memory(
    store: Path | str, name: str, most: int = _TARGET, settings: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Read all default columns of a store in a separate process, and return its peak of anonymous memory as a row."""
    command = [sys.executable, __file__, str(store), *(f"{key}={value}" for key, value in (settings or {}).items())]
    root = Path(__file__).resolve().parents[2]
    before, peak = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout.split()  # noqa: S603
    grown = (int(peak) - int(before)) / _KIBIBYTES
    verdict = "reached" if grown <= most else "MISSED"
    print(
        f"  peak memory of a task, beyond the {int(before) / _KIBIBYTES:.0f} MiB before it:"
        f" {grown:.0f} MiB  {verdict} (<= {most})"
    )
    return {"name": name, "least": grown, "median": None, "unit": "MiB", "most": most}


def anonymous(process: int | str = "self") -> int:
    """Return a process's anonymous resident memory in KiB: without the mapped segment."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def peak_while(work: Callable[[], object], look: Callable[[], int], seconds: float = 0.002) -> int:
    """Return the most that something is, looked at again and again, while something is done."""
    peak = look()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(seconds):
            peak = max(peak, look())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return peak


def _main(store: str, settings: Mapping[str, str]) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import pyspark.sql  # noqa: F401, PLC0415 -- what a task's interpreter has imported

    from store_core import read_messages  # noqa: PLC0415 -- measured from here on

    def read() -> None:
        for _ in read_messages(store, storage=settings or None):
            pass

    before = anonymous()
    print(before, peak_while(read, anonymous))


if __name__ == "__main__":
    _main(sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:]))
