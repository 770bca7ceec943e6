# SPDX-License-Identifier: Apache-2.0
"""Guards against slow code: ratios are measured again on small segments, and compared with the published ones.

They are ratios of user and system time to that of fixed work which uses nothing of this project: a loop in Python,
gathers and copies. Both wait for the same processor and memory, so other work on the machine changes the ratio of the
shortest times by a few percent only. A row beyond its limit is measured again, with more rounds, before it counts.
What system calls and gathers cost beside the fixed work differs between processors, up to 1.6 times: on another one
than that of the published ratios, the commit before is what to compare with. So no test depends on it.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from unittest.mock import patch

import numpy as np

from store_core import ReadOptions, plan_ranges, read_messages
from store_core.format.columnar import spans
from store_core.format.columnar.chain import chain
from store_core.format.columnar.encode_batch import encode_batch
from store_core.format.columns import DEFAULT_COLUMNS
from tests.benchmarks.core import NARROW, struct_loop
from tests.benchmarks.measure import compare, drained
from tests.benchmarks.published import PUBLISHED, published_rows
from tests.benchmarks.segments import make_mixed_store, make_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy.typing as npt


LIMIT: Final = 1.5
"""How many times the published ratio is too much."""

_TABLE: Final = "guard"
_BASE: Final = "fixed work"
_BYTES: Final = 16 << 20
_BODY: Final = 200
_ROUNDS: Final = 15
_MORE_ROUNDS: Final = 30
_LOOP_RECORDS: Final = 10_000
_STEP: Final = 400
_HEAD: Final = 88
_ENCODED: Final = ("topic", "body", "queue_id", "born_timestamp", "properties")

Work: TypeAlias = "Mapping[str, Callable[[], object]]"


def bench_guard(folder: Path, published: Path = PUBLISHED) -> list[dict[str, Any]]:
    """Return the rows; those that seem too slow are measured twice."""
    return measure_twice(_work(folder), _limits(published))


def exceeded(tables: Mapping[str, Mapping[str, Any]], published: Path = PUBLISHED) -> list[str]:
    """Print and return the names of rows that are beyond their limits; none if the guard did not run."""
    rows = tables.get(_TABLE, {}).get("rows", [])
    slow = _beyond(rows, _limits(published))
    for name in slow:
        limit = _limits(published)[name]
        print(
            f"SLOWER: {name}: {ratio_of(rows, name):.2f} times fixed work, where {limit:.2f} are allowed ({LIMIT} times"
        )
        print("        what docs/benchmarks.json has). Find out why; if it has to be, publish it: --publish")
    return slow


def ratio_of(rows: list[dict[str, Any]], name: str) -> float:
    """Return the ratio of the row of that name."""
    return next(float(row["ratio"]) for row in rows if row["name"] == name)


def measure_twice(work: Work, limits: Mapping[str, float]) -> list[dict[str, Any]]:
    """Measure all, and all once more if a row is beyond its limit; each row is then the better one of its two."""
    rows: list[dict[str, Any]] = compare(work, _ROUNDS)
    if slow := _beyond(rows, limits):
        print(f"  measured again: {', '.join(slow)}", flush=True)
        again = compare(work, _MORE_ROUNDS)
        rows = [min(pair, key=lambda row: float(row["ratio"])) for pair in zip(rows, again, strict=True)]
    return rows


def _beyond(rows: list[dict[str, Any]], limits: Mapping[str, float]) -> list[str]:
    return [row["name"] for row in rows if row["ratio"] > limits.get(row["name"], np.inf)]


def _limits(published: Path) -> dict[str, float]:
    """Return the largest ratio that each row may have; none before anything was published."""
    try:
        return {row["name"]: row["ratio"] * LIMIT for row in published_rows(_TABLE, published)}
    except (KeyError, FileNotFoundError):
        return {}


def _work(folder: Path) -> dict[str, Callable[[], object]]:
    """Return what is measured, fixed work first."""
    store, mixed = make_store(folder, _BYTES, _BODY), make_mixed_store(folder, _BYTES, _BODY)
    raw = np.fromfile(next((store / "commitlog").iterdir()), np.uint8)
    batch = next(iter(read_messages(store, columns=_ENCODED, verify_crc=False)))
    read = partial(drained, verify_crc=False)
    without = tuple(name for name in DEFAULT_COLUMNS if name not in {"tags", "keys", "properties"})
    return {
        _BASE: _fixed_work(raw),
        "starts of records": lambda: chain(raw),
        "planning": lambda: plan_ranges(store, ReadOptions.parse(verify_crc=False)),
        "topic, queue, offset, store time": read(store, columns=NARROW),
        "all without properties": read(store, columns=without),
        "all default columns": read(store, columns=DEFAULT_COLUMNS),
        "all default columns, checked by zlib": lambda: _read_by_zlib(store),
        "all default columns, properties of many layouts": read(mixed, columns=DEFAULT_COLUMNS),
        "one topic by a filter": read(store, columns=DEFAULT_COLUMNS, topic="payments"),
        "encode_batch, no checksums": lambda: encode_batch(batch, compute_crc=False),
    }


def _fixed_work(raw: npt.NDArray[np.uint8]) -> Callable[[], None]:
    """Return work that takes about as long as all default columns take."""
    places = np.arange(0, raw.size - _STEP, _STEP)[:, None] + np.arange(_HEAD)
    there = np.empty_like(raw)

    def work() -> None:
        struct_loop(raw.data, _LOOP_RECORDS)
        for _ in range(2):
            raw[places]
            np.copyto(there, raw)

    return work


def _read_by_zlib(store: Path) -> None:
    """Check by zlib, whether isal is installed or not."""
    with patch.object(spans, "crc32", zlib.crc32):
        drained(store, columns=DEFAULT_COLUMNS, verify_crc=True)()
