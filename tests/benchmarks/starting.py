# SPDX-License-Identifier: Apache-2.0
"""Measures what passes before the first row: imports in a new process, and planning a log of 64 GiB.

The log has 64 segments, all but the last with few records at their beginnings, and holes after them: planning reads no
more of them.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from tests.benchmarks.measure import ended_seconds, measure, report_limit
from tests.benchmarks.segments import make_sparse_log, make_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_MEBIBYTE: Final = 1 << 20
_SEGMENTS: Final = 64
_LAST_BYTES: Final = 600 * _MEBIBYTE
_SMALL: Final = 16 * _MEBIBYTE
_BODY: Final = 200
_MOST: Final = 0.5
"""Seconds until the first action on 64 GiB begins to read."""


def bench_starting(folder: Path, runs: int) -> list[dict[str, Any]]:
    """Time new processes in turn, as user and system time."""
    log, store = make_sparse_log(folder, _SEGMENTS, _LAST_BYTES, _BODY), make_store(folder, _SMALL, _BODY)
    plan = f"from store_core import ReadOptions, plan_ranges; plan_ranges({str(log)!r}, ReadOptions.parse())"
    codes = {
        "Python alone": "pass",
        "import numpy and pyarrow": "import numpy, pyarrow, pyarrow.compute",
        "import store_core.read_messages": "from store_core import read_messages",
        "import what Spark's workers import": "import pyspark_commitlog.reader",
        "plan a log of 64 GiB": plan,
        "plan it twice": f"{plan}; plan_ranges({str(log)!r}, ReadOptions.parse())",
        "read all columns of 16 MiB": f"from store_core import read_messages; list(read_messages({str(store)!r}))",
    }
    print("==> new processes, user and system time", flush=True)
    timings = measure({name: _process(code) for name, code in codes.items()}, runs, ended_seconds)
    planning = timings["plan it twice"].least - timings["plan a log of 64 GiB"].least
    alone = {"name": "planning 64 GiB alone, warm", "least": planning, "median": None, "most": _MOST}
    return [*map(report_limit, timings.values()), alone]


def _process(code: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 -- our own code
