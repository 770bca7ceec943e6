# SPDX-License-Identifier: Apache-2.0
"""Measures decoding, and checksums by ``isal`` and by zlib, in turn in one process."""

from __future__ import annotations

import mmap
import struct
import zlib
from functools import partial
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import numpy as np

from store_core import ReadOptions, plan_ranges, read_messages
from store_core.format.columnar import spans
from store_core.format.columnar.chain import chain, scan
from store_core.format.columnar.encode_batch import encode_batch
from store_core.format.columns import DEFAULT_COLUMNS
from store_core.format.crc32 import crc32
from store_core.format.layout import head_dtype
from tests.benchmarks.measure import compare, drained, measure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa


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
    return [*compare(copies | _ours(raw, store), runs, targets), _against_loop(raw, store, runs)]


def _ours(raw: npt.NDArray[np.uint8], store: Path) -> dict[str, Callable[[], object]]:
    def read(columns: tuple[str, ...], *, verify_crc: bool = False) -> Callable[[], object]:
        return drained(store, columns=columns, verify_crc=verify_crc)

    return {
        "starts only": lambda: chain(raw),
        "starts, lengths proven": lambda: scan(raw),
        "planning": lambda: plan_ranges(store, ReadOptions.parse(verify_crc=False)),
        "topic, queue, offset, store time": read(NARROW),
        "all without properties, no CRC": read(_WITHOUT_PROPERTIES),
        "all default columns, no CRC": read(DEFAULT_COLUMNS),
        "all default columns, CRC checked": read(DEFAULT_COLUMNS, verify_crc=True),
    }


def _against_loop(raw: npt.NDArray[np.uint8], store: Path, runs: int) -> dict[str, object]:
    """Time a plain Python loop over the first records, and our code for all of them, both per record."""
    total = chain(raw).starts.size
    count = min(_LOOP_RECORDS, total)
    data = raw.data

    ours = drained(store, columns=[*NARROW, "properties", "body"], verify_crc=False)
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


_OURS: Final = "zlib again (no isal here)" if crc32 is zlib.crc32 else crc32.__module__
_BATCH_ROWS: Final = 32_768
_BATCHES: Final = 8
_ENCODED: Final = ("topic", "body", "queue_id", "born_timestamp", "properties")


def bench_checksums(store: Path, body_size: int, runs: int) -> list[dict[str, object]]:
    """Time reads with zlib's checksums, with those that the project uses, and without; ratios are to zlib's time."""
    batch = next(iter(read_messages(store, columns=_ENCODED, verify_crc=False))).slice(0, _BATCH_ROWS)
    alone = _checksums(store, body_size)
    reads = [drained(store, columns=DEFAULT_COLUMNS, verify_crc=verify) for verify in (True, False)]
    print(f"  {_BATCHES} times {len(batch):,} records encoded; the whole segment read")
    return [
        *_beside_zlib("checksums", runs, alone),
        *_beside_zlib("encode_batch", runs, partial(_encode, batch), partial(_encode, batch, compute_crc=False)),
        *_beside_zlib("all columns", runs, *reads),
    ]


def _beside_zlib(
    name: str, runs: int, checked: Callable[[], object], unchecked: Callable[[], object] | None = None
) -> list[dict[str, object]]:
    def by_zlib() -> None:
        with patch.object(spans, "crc32", zlib.crc32):
            checked()

    ways = {f"{name}, zlib": by_zlib, f"{name}, {_OURS}": checked}
    if unchecked is not None:
        ways[f"{name}, no checksums"] = unchecked
    return compare(ways, runs)


def _checksums(store: Path, body_size: int) -> Callable[[], object]:
    segment = next((store / "commitlog").iterdir())
    with segment.open("rb") as file:
        raw = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    starts = chain(raw).starts[: _BATCH_ROWS * _BATCHES] + head_dtype().itemsize
    pieces = np.split(starts, range(_BATCH_ROWS, starts.size, _BATCH_ROWS))
    print(f"  checksums of {starts.size:,} bodies, in {len(pieces)} pieces")
    return lambda: [spans.body_crcs(raw, piece, piece + body_size) for piece in pieces]


def _encode(batch: pa.RecordBatch, *, compute_crc: bool = True) -> None:
    for _ in range(_BATCHES):
        encode_batch(batch, compute_crc=compute_crc)
