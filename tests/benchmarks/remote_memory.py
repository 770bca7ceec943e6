# SPDX-License-Identifier: Apache-2.0
"""Measures the memory of reading a remote segment: in a process of its own, and in the Python of a Spark task."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.measure import family
from tests.benchmarks.memory import anonymous, bench_memory, peak_while

if TYPE_CHECKING:
    from collections.abc import Mapping


_MOST: Final = 400
_OF_SPARK: Final = b"-m\0pyspark"
"""What the command lines of Spark's Python processes contain."""


def bench_remote_memory(url: str, settings: Mapping[str, str], size: str) -> list[dict[str, object]]:
    """Read all default columns of a store of one segment; return the peaks of anonymous memory as rows."""
    row = bench_memory(url, f"a process, beyond what it has imported, {size}", _MOST, settings)
    command = [sys.executable, __file__, url, *(f"{key}={value}" for key, value in settings.items())]
    peak = int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout) / 1024  # noqa: S603
    name = f"the Python of a Spark task, with all that it has imported, {size}"
    print(f"  {name}: {peak:.0f} MiB  {'reached' if peak <= _MOST else 'MISSED'} (<= {_MOST})")
    spark = {"name": name, "least": peak, "median": None, "unit": "MiB", "most": _MOST}
    return [{**each, "group": "memory"} for each in (row, spark)]


def _largest_worker() -> int:
    """Return the anonymous memory in KiB of the largest of Spark's Python processes; 0 without any."""
    found = [0]
    for process in family():
        with contextlib.suppress(OSError):  # it has ended
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            if _OF_SPARK in command:
                found.append(anonymous(process))
    return max(found)


def _main(url: str, settings: Mapping[str, str]) -> None:
    from pyspark_commitlog import spark_session  # noqa: PLC0415 -- only here, in a process of its own

    spark = spark_session(master="local[1]")
    try:
        frame = spark.read.format("commitlog").options(**{f"storage.{key}": settings[key] for key in settings})
        print(peak_while(lambda: frame.load(url).write.format("noop").mode("overwrite").save(), _largest_worker, 0.02))
    finally:
        spark.stop()


if __name__ == "__main__":
    _main(sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:]))
