# SPDX-License-Identifier: Apache-2.0
"""The end of a log that is read as a whole is found from its last part; a reader that does not arrive there scans."""

from __future__ import annotations

import re
import zlib
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from store_core import StoreError, read_messages, read_range
from store_core.snapshot import log_end
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_and_walk, plan_ranges
from tests.benchmarks.segments import make_log
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from store_core.store.read.ranges import ReadRange


_SEGMENT = 1 << 17
_RECORD = 600


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at little, so that most of a small segment is not looked at."""
    monkeypatch.setattr(log_end, "_WINDOWS", (1 << 9, 1 << 12))
    monkeypatch.setattr(log_end, "_LEAST", 1 << 14)
    monkeypatch.setattr(log_end, "_PROBE", 1 << 10)


def closed_log(folder: Path, size: int = 3 * _SEGMENT // 2) -> Path:
    """Make the log of a closed store whose last segment is half full, or as full as `size` says."""
    return closed(make_log(folder, size, _SEGMENT, 400))


def closed(root: Path) -> Path:
    """Leave a lock that nobody holds, so that a torn tail becomes a row, as one of a remote store does."""
    (root / "lock").touch()
    return root


def last_range(path: object, **options: object) -> ReadRange:
    """Plan a read, and return its last range."""
    return plan_ranges(path, ReadOptions.parse(**options), by_tail=True).ranges[-1]  # type: ignore[arg-type]


def by_chain(root: Path, mode: str) -> Iterator[pa.RecordBatch]:
    """Read all batches of a log whose end was found from its first byte on."""
    options = ReadOptions.parse(mode=mode, max_records_per_batch=50)
    plan, walked = plan_and_walk(root, options)
    for part in plan.ranges:
        yield from read_range(part, options, walked)


def outcome(batches: Callable[[], Iterable[pa.RecordBatch]]) -> list[pa.RecordBatch | str]:
    """Read all batches, and the text of the error after them."""
    found: list[pa.RecordBatch | str] = []
    try:
        for batch in batches():
            found.append(batch)  # noqa: PERF402 -- what precedes an error counts
    except StoreError as error:
        found.append(re.sub(r"\S*/commitlog/", "", f"{type(error).__name__}: {error}"))
    return found


def check_equal(root: Path, name: str) -> None:
    """Check that rows and errors of a log, and of its copy in memory, are those of the whole chain."""
    for mode in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE"):
        expected = outcome(partial(by_chain, root, mode))
        for path in (root, in_memory(root, name)):
            assert expected == outcome(partial(read_messages, path, mode=mode, max_records_per_batch=50))


@pytest.mark.parametrize("size", [3 * _SEGMENT // 2, 2 * _SEGMENT, _SEGMENT + (1 << 14), _SEGMENT + (1 << 13)])
def test_end_of_a_sound_log_is_that_of_its_chain(size: int, tmp_path: Path) -> None:
    root = closed_log(tmp_path, size)
    url = in_memory(root, f"sound-{size}")
    exact = plan_ranges(root, ReadOptions()).ranges[-1]
    assert exact.data_end == last_range(url).data_end
    assert exact.end == last_range(url).end
    assert (size - _SEGMENT >= 1 << 14) == last_range(url).is_by_tail
    check_equal(root, f"sound-rows-{size}")


@pytest.mark.parametrize(
    "options", [{"mode": "PERMISSIVE"}, {"min_partitions": 4}, {"max_partition_bytes": 10_000}], ids=str
)
def test_reads_that_need_the_whole_chain_follow_it(options: dict[str, object], tmp_path: Path) -> None:
    assert not last_range(in_memory(closed_log(tmp_path), "whole"), **options).is_by_tail


def test_other_callers_follow_the_chain(tmp_path: Path) -> None:
    root = closed_log(tmp_path)
    assert last_range(root).is_by_tail
    for path in (root, in_memory(root, "others")):
        assert not plan_ranges(path, ReadOptions()).ranges[-1].is_by_tail


@pytest.mark.parametrize("seed", range(16))
def test_damaged_log_has_the_rows_and_errors_of_its_files(seed: int, tmp_path: Path) -> None:
    root = closed_log(tmp_path)
    path = root / "commitlog" / f"{_SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    random = np.random.default_rng(seed)
    for at in random.integers(0, _SEGMENT // 2 + 100, 1 + seed % 3).tolist():
        data[at : at + 4] = random.bytes(4)
    path.write_bytes(data)
    check_equal(root, f"damaged-{seed}")


@pytest.mark.parametrize("shift", [0, 3])
def test_records_of_an_earlier_time_at_the_end_are_not_the_end(shift: int, tmp_path: Path) -> None:
    """The chain ends in the middle; what follows is older, as in a file that was used before."""
    root = closed_log(tmp_path, 2 * _SEGMENT)
    path = root / "commitlog" / f"{_SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    starts = [
        offset - _SEGMENT
        for offset in read_messages(root, columns=["physical_offset"]).read_all().column(0).to_pylist()
        if offset >= _SEGMENT
    ]
    middle = len(starts) // 2
    for start in starts[middle + 1 :]:
        data[start + 56 : start + 64] = (1_000).to_bytes(8, "big")
    data[starts[middle] : starts[middle] + 8] = bytes(8)
    path.write_bytes(data[: len(data) - shift * _RECORD] + bytes(shift * _RECORD))
    url = in_memory(root, f"stale-{shift}")
    assert last_range(url).is_by_tail == (not shift)
    check_equal(root, f"stale-rows-{shift}")


def test_zeros_in_bodies_do_not_hide_the_end(tmp_path: Path) -> None:
    root = closed(make_log(tmp_path, 3 * _SEGMENT // 2, _SEGMENT, 5_000))
    path = root / "commitlog" / f"{_SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    starts = read_messages(root, columns=["physical_offset"]).read_all().column(0).to_pylist()
    for start in (offset - _SEGMENT for offset in starts if offset >= _SEGMENT):
        data[start + 200 : start + 4_800] = bytes(4_600)
        crc = zlib.crc32(data[start + 88 : start + 5_088]) & 0x7FFFFFFF
        data[start + 8 : start + 12] = crc.to_bytes(4, "big")
    path.write_bytes(data)
    assert last_range(in_memory(root, "zeros")).is_by_tail
    check_equal(root, "zeros")
