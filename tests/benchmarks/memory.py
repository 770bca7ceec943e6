# SPDX-License-Identifier: Apache-2.0
"""Measures the memory of reading a segment: a process like a Spark task's, and the Python of a Spark task.

Usage: memory.py task|spark STORE [SETTING=VALUE ...]: prints KiB
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TARGET: Final = 150
_REMOTE_TARGET: Final = 400
_KIBIBYTES: Final = 1024
_ROOT: Final = Path(__file__).resolve().parents[2]
_OF_SPARK: Final = b"-m\0pyspark"
"""What the command lines of Spark's Python processes contain."""


def bench_memory(
    store: Path | str, name: str, most: int = _TARGET, settings: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Read all default columns of a store in a separate process; return by how much its anonymous memory grew."""
    before, peak = told_by(__file__, "task", store, *_words(settings))
    return memory_row(name, peak - before, most)


def bench_remote_memory(url: str, settings: Mapping[str, str], size: str) -> list[dict[str, object]]:
    """Read all default columns of a store of one segment; return the peaks of anonymous memory as rows."""
    row = bench_memory(url, f"a process, beyond what it has imported, {size}", _REMOTE_TARGET, settings)
    (peak,) = told_by(__file__, "spark", url, *_words(settings))
    name = f"the Python of a Spark task, with all that it has imported, {size}"
    return [{**each, "group": "memory"} for each in (row, memory_row(name, peak, _REMOTE_TARGET))]


def told_by(program: str, *words: Path | str) -> list[int]:
    """Run a program in a process of its own, and return the KiB that it prints."""
    command = [sys.executable, program, *map(str, words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=_ROOT)  # noqa: S603 -- ours
    return [int(word) for word in done.stdout.split()]


def memory_row(name: str, kibibytes: int, most: int) -> dict[str, object]:
    """Print and return a row."""
    mebibytes = kibibytes / _KIBIBYTES
    print(f"  memory: {name}: {mebibytes:.0f} MiB  {'reached' if mebibytes <= most else 'MISSED'} (<= {most})")
    return {"name": name, "least": mebibytes, "median": None, "unit": "MiB", "most": most}


def _words(settings: Mapping[str, str] | None) -> list[str]:
    return [f"{key}={value}" for key, value in (settings or {}).items()]


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


def _read_as_a_task(store: str, settings: Mapping[str, str]) -> None:
    import pyspark.sql  # noqa: F401, PLC0415 -- what a task's interpreter has imported

    from store_core import read_messages  # noqa: PLC0415 -- measured from here on

    def read() -> None:
        for _ in read_messages(store, storage=settings or None):
            pass

    before = anonymous()
    print(before, peak_while(read, anonymous))


def _read_by_spark(url: str, settings: Mapping[str, str]) -> None:
    from pyspark_commitlog import spark_session  # noqa: PLC0415 -- only here, in a process of its own

    spark = spark_session(master="local[1]")
    try:
        frame = spark.read.format("commitlog").options(**{f"storage.{key}": settings[key] for key in settings})
        print(peak_while(lambda: frame.load(url).write.format("noop").mode("overwrite").save(), _largest_worker, 0.02))
    finally:
        spark.stop()


def _largest_worker() -> int:
    """Return the anonymous memory in KiB of the largest of Spark's Python processes; 0 without any."""
    from tests.benchmarks.measure import family  # noqa: PLC0415 -- imports what a task has to import in its time

    found = [0]
    for process in family():
        with contextlib.suppress(OSError):  # it has ended
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            if _OF_SPARK in command:
                found.append(anonymous(process))
    return max(found)


if __name__ == "__main__":
    sys.path.insert(0, str(_ROOT))
    asked, place, *pairs = sys.argv[1:]
    (_read_as_a_task if asked == "task" else _read_by_spark)(place, dict(pair.split("=", 1) for pair in pairs))
