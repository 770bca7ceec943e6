# SPDX-License-Identifier: Apache-2.0
"""Measures checksums with the optional library ``isal`` and with zlib, in turn in one process."""

from __future__ import annotations

import mmap
import zlib
from functools import partial
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import numpy as np

from store_core import read_messages
from store_core.format.columnar import checksums
from store_core.format.columnar.encode_batch import encode_batch
from store_core.format.columnar.lockstep import chain
from store_core.format.columns import DEFAULT_COLUMNS
from store_core.format.crc32 import crc32
from store_core.format.layout import head_dtype
from tests.benchmarks.measure import measure, report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa


_OURS: Final = "zlib again (no isal here)" if crc32 is zlib.crc32 else crc32.__module__
_BATCH_ROWS: Final = 32_768
_BATCHES: Final = 8
_ENCODED: Final = ("topic", "body", "queue_id", "born_timestamp", "properties")


def bench_checksums(store: Path, body_size: int, runs: int) -> list[dict[str, object]]:
    """Time reads with zlib's checksums, with those that the project uses, and without; ratios are to zlib's time."""
    batch = next(iter(read_messages(store, columns=_ENCODED, verify_crc=False))).slice(0, _BATCH_ROWS)
    alone = _checksums(store, body_size)
    print(f"  {_BATCHES} times {len(batch):,} records encoded; the whole segment read")
    return [
        *_compare("checksums", runs, alone),
        *_compare("encode_batch", runs, partial(_encode, batch), partial(_encode, batch, compute_crc=False)),
        *_compare("all columns", runs, partial(_read, store), partial(_read, store, verify_crc=False)),
    ]


def _compare(
    name: str, runs: int, checked: Callable[[], object], unchecked: Callable[[], object] | None = None
) -> list[dict[str, object]]:
    def by_zlib() -> None:
        with patch.object(checksums, "crc32", zlib.crc32):
            checked()

    ways = {f"{name}, zlib": by_zlib, f"{name}, {_OURS}": checked}
    if unchecked is not None:
        ways[f"{name}, no checksums"] = unchecked
    timings = measure(ways, runs)
    return [report(timing, timings[f"{name}, zlib"]) for timing in timings.values()]


def _checksums(store: Path, body_size: int) -> Callable[[], object]:
    segment = next((store / "commitlog").iterdir())
    with segment.open("rb") as file:
        raw = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    starts = chain(raw).starts[: _BATCH_ROWS * _BATCHES] + head_dtype().itemsize
    pieces = np.split(starts, range(_BATCH_ROWS, starts.size, _BATCH_ROWS))
    print(f"  checksums of {starts.size:,} bodies, in {len(pieces)} pieces")
    return lambda: [checksums.body_crcs(raw, piece, piece + body_size) for piece in pieces]


def _encode(batch: pa.RecordBatch, *, compute_crc: bool = True) -> None:
    for _ in range(_BATCHES):
        encode_batch(batch, compute_crc=compute_crc)


def _read(store: Path, *, verify_crc: bool = True) -> None:
    for _ in read_messages(store, columns=DEFAULT_COLUMNS, verify_crc=verify_crc):
        pass
