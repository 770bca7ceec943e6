# SPDX-License-Identifier: Apache-2.0
"""Compares the core with a copy of the same bytes, and with a loop over ``struct``."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core import ReadOptions, plan_ranges, read_messages
from store_core.format.columnar.lockstep import chain, scan
from store_core.format.columns import DEFAULT_COLUMNS
from tests.benchmarks.measure import measure, report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt


NARROW: Final = ("topic", "queue_id", "queue_offset", "store_timestamp")
_PROPERTY_COLUMNS: Final = frozenset({"tags", "keys", "properties"})
_WITHOUT_PROPERTIES: Final = tuple(name for name in DEFAULT_COLUMNS if name not in _PROPERTY_COLUMNS)
_LOOP_RECORDS: Final = 200_000
_COPY: Final = "copy (into memory that is there)"
"""The stricter base: ``raw.copy()`` also has to allocate its memory."""


def bench_core(store: Path, runs: int, targets: dict[str, float]) -> list[dict[str, object]]:
    """Time scanning and decoding of a store's first segment; `targets` are ratios by the name of the row."""
    segment = next((store / "commitlog").iterdir())
    with segment.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    raw = np.frombuffer(mapped, np.uint8)
    there = np.empty_like(raw)
    copies: dict[str, Callable[[], object]] = {
        _COPY: lambda: np.copyto(there, raw),
        "copy (raw.copy(), new memory)": raw.copy,
    }
    timings = measure(copies | _ours(raw, store), runs)
    rows = [report(timing, timings[_COPY], targets.get(timing.name)) for timing in timings.values()]
    rows.append(_against_loop(raw, store, runs))
    return rows


def _ours(raw: npt.NDArray[np.uint8], store: Path) -> dict[str, Callable[[], object]]:
    def read(columns: tuple[str, ...], *, verify_crc: bool = False) -> None:
        for _ in read_messages(store, columns=columns, verify_crc=verify_crc):
            pass

    return {
        "starts only": lambda: chain(raw),
        "starts, lengths proven": lambda: scan(raw),
        "planning": lambda: plan_ranges(store, ReadOptions.parse(verify_crc=False)),
        "topic, queue, offset, store time": lambda: read(NARROW),
        "all without properties, no CRC": lambda: read(_WITHOUT_PROPERTIES),
        "all default columns, no CRC": lambda: read(DEFAULT_COLUMNS),
        "all default columns, CRC checked": lambda: read(DEFAULT_COLUMNS, verify_crc=True),
    }


def _against_loop(raw: npt.NDArray[np.uint8], store: Path, runs: int) -> dict[str, object]:
    """Time a plain Python loop over the first records, and our code for all of them, both per record."""
    total = chain(raw).starts.size
    count = min(_LOOP_RECORDS, total)
    data = raw.data

    def ours() -> None:
        for _ in read_messages(store, columns=[*NARROW, "properties", "body"], verify_crc=False):
            pass

    loop, mine = measure({"loop": lambda: struct_loop(data, count), "ours": ours}, runs).values()
    faster = (loop.least / count) / (mine.least / total)
    print(
        f"  a record: loop {loop.least / count * 1e9:.0f} ns, ours {mine.least / total * 1e9:.0f} ns:"
        f" {faster:.1f} times as fast"
    )
    return {"name": "times as fast as a loop with struct", "least": None, "ratio": faster, "at_least": 10}


_LOOP_HEAD: Final = struct.Struct(">iiiiiqqiq8sq8siqi")


def struct_loop(data: memoryview, count: int) -> list[tuple[object, ...]]:
    """Parse records as a script would: one by one, with struct and split."""
    rows: list[tuple[object, ...]] = []
    position = 0
    for _ in range(count):
        head = _LOOP_HEAD.unpack_from(data, position)
        at = position + _LOOP_HEAD.size
        body = bytes(data[at : at + head[-1]])
        at += head[-1]
        topic = bytes(data[at + 1 : at + 1 + data[at]]).decode()
        at += 1 + data[at]
        (length,) = struct.unpack_from(">h", data, at)
        text = bytes(data[at + 2 : at + 2 + length]).decode()
        properties = dict(item.split("\x01", 1) for item in text.split("\x02") if item)
        rows.append((topic, head[3], head[5], head[10], properties, body))
        position += head[0]
    return rows
