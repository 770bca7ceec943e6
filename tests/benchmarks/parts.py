# SPDX-License-Identifier: Apache-2.0
"""``make bench``: measures every ratio in the documentation, in one run on one machine.

Ratios compare the shortest times; the medians of the rounds' ratios are shown next to them. Candidates take turns, and
the core is measured in CPU time, so that other work on the machine matters little; a row's load average shows how much
of it there was. ``--json`` writes the figures to a file, and ``--publish`` into the document of benchmarks.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.benchmarks.answers import bench_answers, bench_checking
from tests.benchmarks.append import bench_append, bench_sink
from tests.benchmarks.core import bench_checksums, bench_core
from tests.benchmarks.curves import bench_curves
from tests.benchmarks.guard import bench_guard, exceeded
from tests.benchmarks.lookups import bench_lookups
from tests.benchmarks.memory import bench_memory
from tests.benchmarks.published import describe_run, publish
from tests.benchmarks.reading import bench_reading
from tests.benchmarks.rebuild import bench_rebuild, bench_recovery
from tests.benchmarks.remote import bench_remote
from tests.benchmarks.segments import make_mixed_store, make_store
from tests.benchmarks.spark import bench_settings, bench_spark, bench_stream
from tests.benchmarks.starting import bench_starting

if TYPE_CHECKING:
    from collections.abc import Callable

_MEBIBYTE: Final = 1 << 20
_MEANT_MEGABYTES: Final = 1024
"""The targets are for segments of this size: small ones fit into a cache, and the copy is then too fast."""

_SMALL_BODY: Final = 200
_LARGE_BODY: Final = 1024
_BODIES: Final = (_SMALL_BODY, _LARGE_BODY)
_TARGETS: Final = {
    _SMALL_BODY: {
        "starts only": 1.2,
        "topic, queue, offset, store time": 3.0,
        "all without properties, no CRC": 5.0,
        "all default columns, no CRC": 8.0,
    },
    _LARGE_BODY: {
        "starts only": 0.6,
        "topic, queue, offset, store time": 2.0,
        "all without properties, no CRC": 2.5,
        "all default columns, no CRC": 3.5,
    },
}
_OWN_MEGABYTES: Final = 1024
_OWN_RUNS: Final = 5

Tables = dict[str, list[dict[str, Any]]]


def main() -> int:
    """Run the requested parts; return 1 if one that guards found something."""
    options = _arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    begun = describe_run() | {"megabytes": options.megabytes}
    tables: dict[str, dict[str, object]] = {}
    for part in options.parts:
        print(f"==> {part}", flush=True)
        circumstances = {**describe_run(), "command": _command(part, options)}
        found = PARTS[part](options)
        circumstances["load"] = [circumstances["load"], os.getloadavg()[0]]
        tables |= {name: {**circumstances, "rows": rows} for name, rows in found.items()}
    results = begun | {"load at the end": os.getloadavg(), "tables": tables}
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.publish:
        publish(tables)
        print("published; `make docs` makes the document of them")
    return 1 if not options.publish and exceeded(tables) else 0


def _command(part: str, options: argparse.Namespace) -> str:
    """Return the command that measures a part as this run does."""
    words = [part]
    words += [f"--runs {options.runs}"] if options.runs != _OWN_RUNS else []
    words += [f"--megabytes {options.megabytes}"] if options.megabytes != _OWN_MEGABYTES else []
    return f'make bench BENCH_ARGS="{" ".join(words)}"'


def _store(options: argparse.Namespace, body_size: int = _SMALL_BODY) -> Path:
    print(f"==> {options.megabytes} MiB of records with {body_size}-byte bodies", flush=True)
    return make_store(options.folder, options.megabytes * _MEBIBYTE, body_size)


def _core(options: argparse.Namespace) -> Tables:
    tables: Tables = {}
    for size in _BODIES:
        targets = _TARGETS[size] if options.megabytes >= _MEANT_MEGABYTES else {}
        tables[f"core {size}"] = bench_core(_store(options, size), options.runs, targets)
    print("==> the same of 50 topics with 1 to 12 properties of varying lengths", flush=True)
    mixed = make_mixed_store(options.folder, options.megabytes * _MEBIBYTE, _SMALL_BODY)
    return tables | {"core mixed": bench_core(mixed, options.runs, {})}


def _memory(options: argparse.Namespace) -> Tables:
    return {"memory": [bench_memory(_store(options, size), f"bodies of {size} bytes") for size in _BODIES]}


def _checksums(options: argparse.Namespace) -> Tables:
    return {f"checksums {size}": bench_checksums(_store(options, size), size, options.runs) for size in _BODIES}


def _spark(options: argparse.Namespace) -> Tables:
    return bench_spark(_store(options), options.folder, options.runs)


def _settings(options: argparse.Namespace) -> Tables:
    return {"settings": bench_settings(_store(options), options.folder, options.runs)}


PARTS: Final[dict[str, Callable[[argparse.Namespace], Tables]]] = {
    "core": _core,
    "spark": _spark,
    "settings": _settings,
    "starting": lambda options: {"starting": bench_starting(options.folder, options.runs)},
    "stream": lambda options: {"stream": bench_stream(options.folder, options.runs)},
    "memory": _memory,
    "rebuild": lambda options: bench_rebuild(options.folder, options.runs),
    "recovery": lambda options: {"recovery": bench_recovery(options.folder, options.runs)},
    "reading": lambda options: {"reading": bench_reading(options.folder, options.runs)},
    "append": lambda options: {"append": bench_append(options.folder, options.runs)},
    "sink": lambda options: {"sink": bench_sink(options.runs)},
    "checksums": _checksums,
    "lookups": lambda options: {"lookups": bench_lookups(options.folder, options.runs)},
    "checking": lambda options: {"checking": bench_checking(options.folder, options.runs)},
    "answers": lambda options: {"answers": bench_answers(options.folder, options.runs)},
    "remote": lambda options: {"remote": bench_remote(options.folder, options.runs, options.megabytes)},
    "curves": lambda options: {"curves": bench_curves(options.folder, options.runs)},
    "guard": lambda options: {"guard": bench_guard(options.folder)},
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", default=[*PARTS], metavar="PART", help=f"some of {', '.join(PARTS)}; all by default"
    )
    parser.add_argument(
        "--megabytes", type=int, default=_OWN_MEGABYTES, help="size of the segments (default %(default)s)"
    )
    parser.add_argument(
        "--runs", type=int, default=_OWN_RUNS, help="runs of each row, after one to warm up (default %(default)s)"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(".cache/bench"), help="where segments are kept (default .cache/bench)"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument(
        "--publish", action="store_true", help="replace the tables of these parts in docs/benchmarks.json"
    )
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(PARTS)):
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return options
