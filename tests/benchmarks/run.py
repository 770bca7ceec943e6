# SPDX-License-Identifier: Apache-2.0
"""``make bench``: measures every ratio in the documentation, in one run on one machine.

Ratios compare the shortest times; the medians of the rounds' ratios are shown next to them. Candidates take turns, and
the core is measured in CPU time, so that other work on the machine matters little; a row's load average shows how much
of it there was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.answers import bench_answers
from tests.benchmarks.checking import bench_checking
from tests.benchmarks.checksums import bench_checksums
from tests.benchmarks.circumstances import describe_run
from tests.benchmarks.core import bench_core
from tests.benchmarks.lookups import bench_lookups
from tests.benchmarks.memory import bench_memory
from tests.benchmarks.reading import bench_reading
from tests.benchmarks.rebuild import bench_rebuild
from tests.benchmarks.remote import bench_remote
from tests.benchmarks.segments import make_mixed_store, make_store
from tests.benchmarks.sink import bench_sink
from tests.benchmarks.spark import bench_spark
from tests.benchmarks.stream import bench_stream

_PARTS: Final = (
    "core",
    "spark",
    "stream",
    "memory",
    "rebuild",
    "reading",
    "sink",
    "checksums",
    "lookups",
    "checking",
    "answers",
    "remote",
)
_OF_SEGMENTS: Final = frozenset({"core", "spark", "memory", "checksums"})
_MEBIBYTE: Final = 1 << 20
_MEANT_MEGABYTES: Final = 1024
"""The targets are for segments of this size: small ones fit into a cache, and the copy is then too fast."""

_SMALL_BODY: Final = 200
_LARGE_BODY: Final = 1024
_TARGETS: Final = {
    _SMALL_BODY: {
        "starts only": 1.2,
        "topic, queue, offset, store time": 3.0,
        "all without properties, no CRC": 5.0,
        "all default columns, no CRC": 10.0,
    },
    _LARGE_BODY: {
        "starts only": 1.2,
        "topic, queue, offset, store time": 3.0,
        "all without properties, no CRC": 2.5,
        "all default columns, no CRC": 4.0,
    },
}


def main() -> int:
    """Run the requested parts."""
    options = _arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, object] = {**describe_run(), "megabytes": options.megabytes}
    for body_size in (_SMALL_BODY, _LARGE_BODY) if _OF_SEGMENTS & set(options.parts) else ():
        print(f"==> {options.megabytes} MiB of records with {body_size}-byte bodies", flush=True)
        results |= _bench_segments(options, body_size)
    results |= _bench_own_logs(options)
    results["load at the end"] = os.getloadavg()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def _bench_own_logs(options: argparse.Namespace) -> dict[str, object]:
    """Run the requested parts that make their own logs."""
    results: dict[str, object] = {}
    if "stream" in options.parts:
        print("==> a stream of 4.3 million messages, local[2], beside a batch", flush=True)
        results["stream"] = bench_stream(options.folder, options.runs)
    if "rebuild" in options.parts:
        print("==> rebuilding queues and index, local[2], files synced", flush=True)
        results["rebuild"] = bench_rebuild(options.folder, options.runs, ("ratio", "memory"))
    if "reading" in options.parts:
        results["reading"] = bench_reading(options.folder, options.runs)
    if "sink" in options.parts:
        print("==> df.write of 5 million messages, local[2], beside RocketMQ's puts and their dispatch", flush=True)
        results["sink"] = bench_sink(runs=options.runs)
    if "lookups" in options.parts:
        results["lookups"] = bench_lookups(options.folder, options.runs)
    if "checking" in options.parts:
        results["checking"] = bench_checking(options.folder, options.runs)
    if "answers" in options.parts:
        results["answers"] = bench_answers(options.folder, options.runs)
    if "remote" in options.parts:
        results["remote"] = bench_remote(options.folder, options.runs)
    return results


def _bench_segments(options: argparse.Namespace, body_size: int) -> dict[str, object]:
    """Run the requested parts that need a store of one segment; those with Spark only for small bodies."""
    store, results = make_store(options.folder, options.megabytes * _MEBIBYTE, body_size), dict[str, object]()
    if "core" in options.parts:
        targets = _TARGETS[body_size] if options.megabytes >= _MEANT_MEGABYTES else {}
        results[f"core {body_size}"] = bench_core(store, options.runs, targets)
        if body_size == _SMALL_BODY:
            print("==> the same of 50 topics with 1 to 12 properties of varying lengths", flush=True)
            mixed = make_mixed_store(options.folder, options.megabytes * _MEBIBYTE, body_size)
            results["core mixed"] = bench_core(mixed, options.runs, {})
    if "spark" in options.parts and body_size == _SMALL_BODY:
        results[f"spark {body_size}"] = bench_spark(store, options.folder, options.runs)
    if "memory" in options.parts:
        results[f"memory {body_size}"] = bench_memory(store)
    if "checksums" in options.parts:
        results[f"checksums {body_size}"] = bench_checksums(store, body_size, options.runs)
    return results


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", default=_PARTS, metavar="PART", help=f"some of {', '.join(_PARTS)}; all by default"
    )
    parser.add_argument("--megabytes", type=int, default=1024, help="size of the segments (default 1024)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each row, after one to warm up (default 5)")
    parser.add_argument(
        "--folder", type=Path, default=Path(".cache/bench"), help="where segments are kept (default .cache/bench)"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(_PARTS)):
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(_PARTS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
