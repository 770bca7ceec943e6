# SPDX-License-Identifier: Apache-2.0
"""Where a log ends, found from its whole and from its last part; a reader that does not arrive there scans."""

from __future__ import annotations

import re
import struct
import zlib
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from store_core import StoreError, read_messages, read_range
from store_core.format.columnar.chain import Place
from store_core.format.log_end import LogEnd, find_log_end, find_tail_end
from store_core.format.record.scan import StopReason
from store_core.format.segment_view import SegmentView
from store_core.snapshot import log_end as tail_module
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_and_walk, plan_ranges
from tests.benchmarks.segments import make_log
from tests.builders import BODY_AT, FIRST_STORE_TIMESTAMP, MAGIC_AT, LogBuilder
from tests.segment import windowed
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from store_core.store.read.ranges import ReadRange


START = 4096


@pytest.fixture
def log() -> LogBuilder:
    log = LogBuilder(4096, START)
    log.append_all(*(b"body %d" % number for number in range(8)))
    return log


def log_end(log: LogBuilder, *, verify_crc: bool = True, after: Place = Place()) -> LogEnd:  # noqa: B008 -- frozen
    (data,) = log.segments().values()
    raw = np.frombuffer(data, np.uint8)
    found = find_log_end(SegmentView.of(raw, START), verify_crc=verify_crc, after=after)
    view = windowed(bytes(data), START)
    assert found == find_log_end(view, verify_crc=verify_crc, after=after)
    assert find_tail_end(SegmentView.of(raw, START), found) == find_tail_end(view, found)
    return found


def place(log: LogBuilder, number: int) -> int:
    return log.records[number].physical_offset - START


def break_body(log: LogBuilder, *numbers: int) -> None:
    for number in numbers:
        log.flip(log.records[number].physical_offset + BODY_AT)


def break_magic(log: LogBuilder, *numbers: int) -> None:
    for number in numbers:
        log.flip(log.records[number].physical_offset + MAGIC_AT)


def test_a_log_ends_where_zeros_begin(log: LogBuilder) -> None:
    assert log_end(log) == LogEnd(log.end - START, StopReason.UNWRITTEN)


def test_a_log_ends_before_a_batch_whose_first_record_has_no_size_yet(log: LogBuilder) -> None:
    batch = log.append_all(
        *(b"put at once %d" % number for number in range(5)), store_timestamp=log.records[-1].store_timestamp + 9
    )
    log.patch(batch[0].physical_offset, bytes(4))
    end = batch[0].physical_offset - START

    assert log_end(log) == LogEnd(end, StopReason.BAD_SIZE, is_unfinished=True)
    log.truncate(batch[3].physical_offset + 30)  # a kill between two pages
    assert log_end(log) == LogEnd(end, StopReason.BAD_SIZE, is_unfinished=True)


@pytest.mark.parametrize("later", [1, 60_000])
def test_a_record_without_size_before_later_ones_is_damage(log: LogBuilder, later: int) -> None:
    batch = log.append_all(b"one", b"two", store_timestamp=log.records[-1].store_timestamp + 9)
    log.append(b"later", store_timestamp=batch[0].store_timestamp + later)
    log.patch(batch[0].physical_offset, bytes(4))

    assert log_end(log) == LogEnd(log.end - START, StopReason.UNWRITTEN)


@pytest.mark.parametrize("known", range(7))
@pytest.mark.parametrize("damage", [lambda _: None, lambda log: log.roll(), lambda log: break_body(log, 6, 7)])
def test_a_search_from_an_earlier_end_finds_the_same(
    log: LogBuilder, known: int, damage: Callable[[LogBuilder], None]
) -> None:
    damage(log)
    after = Place(place(log, known), place(log, known - 1)) if known else Place()

    assert log_end(log, after=after) == log_end(log)


def test_a_search_from_an_earlier_end_does_not_walk_what_precedes_it(log: LogBuilder) -> None:
    end = log_end(log)
    break_magic(log, 0, 1, 2)

    assert log_end(log, after=Place(place(log, 4), place(log, 3))) == end


def test_a_log_ends_at_the_blank_record(log: LogBuilder) -> None:
    end = log.end - START
    log.roll()

    assert log_end(log) == LogEnd(end, StopReason.END_OF_FILE)


def test_a_segment_of_zeros_has_no_record() -> None:
    assert log_end(LogBuilder(4096, START)) == LogEnd(0, StopReason.UNWRITTEN)


@pytest.mark.parametrize("missing", [9, 20, 60, 90])
def test_a_record_that_was_not_finished_is_no_data(log: LogBuilder, missing: int) -> None:
    log.patch(log.end - missing, bytes(missing))

    assert log_end(log).position == place(log, 7)


@pytest.mark.parametrize(
    ("magic", "bodies", "end", "reason"),
    [
        ([], [5, 6, 7], 5, StopReason.BAD_CRC),
        ([], [5, 6], None, StopReason.UNWRITTEN),
        ([], range(8), 0, StopReason.BAD_CRC),
        ([3, 4], [], None, StopReason.UNWRITTEN),
        ([3, 5], [4, 6, 7], 3, StopReason.BAD_MAGIC),
    ],
    ids=["torn", "bodies before a sound one", "all torn", "damage before a sound one", "damage before torn ones"],
)
def test_a_log_ends_behind_its_last_sound_record(
    log: LogBuilder, magic: list[int], bodies: list[int], end: int | None, reason: StopReason
) -> None:
    break_magic(log, *magic)
    break_body(log, *bodies)

    assert log_end(log) == LogEnd(log.end - START if end is None else place(log, end), reason)


def test_bodies_are_not_looked_at_unless_they_are_to_be_verified(log: LogBuilder) -> None:
    break_body(log, 5, 6, 7)

    assert log_end(log, verify_crc=False) == LogEnd(log.end - START, StopReason.UNWRITTEN)


def test_older_records_behind_the_end_are_told_and_no_data(log: LogBuilder) -> None:
    stale = log.truncate(log.records[2].physical_offset)
    log.append(b"new", store_timestamp=FIRST_STORE_TIMESTAMP + 60_000)
    end = log.end - START
    log.append_raw(bytes(10))
    log.append_raw(stale[log.end - START - end + log.records[-1].size :])
    found = log_end(log)

    assert (found.position, found.reason) == (end, StopReason.UNWRITTEN)
    assert found.stale > end


def test_newer_records_behind_zeros_move_the_end(log: LogBuilder) -> None:
    log.append_raw(bytes(100))
    record = log.append(b"behind a hole")

    assert log_end(log).position == record.end - START


def test_a_record_that_runs_past_the_file_is_torn(log: LogBuilder) -> None:
    log.patch(log.records[7].physical_offset, struct.pack(">i", 1 << 20))

    assert log_end(log) == LogEnd(place(log, 7), StopReason.TORN)


_SEGMENT = 1 << 17
_RECORD = 600


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at little, so that most of a small segment is not looked at."""
    monkeypatch.setattr(tail_module, "_WINDOWS", (1 << 9, 1 << 12))
    monkeypatch.setattr(tail_module, "_LEAST", 1 << 14)
    monkeypatch.setattr(tail_module, "_PROBE", 1 << 10)


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
