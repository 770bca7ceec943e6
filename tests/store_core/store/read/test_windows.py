# SPDX-License-Identifier: Apache-2.0
"""Rows do not depend on the windows in which a segment is read, and what happens to its file is an error."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from store_core import CorruptRecordError, ReadOptions, plan_ranges, read_messages, read_range
from store_core.files.segment_source import LocalBytes, Segment, open_segment
from store_core.format import salvage
from store_core.format.columnar import chain
from store_core.store.read import message_reader
from store_core.store.read import picks as picked_records
from store_core.store.read.picks import NO_QUEUE, Picks, PickWindows
from tests.builders import SIZE_AT, LogBuilder, patch
from tests.dledger_logs import DLedgerLog
from tests.store_core.store.read.test_remote_stores import MODES, damaged, outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from store_core.store.read.ranges import ReadRange
    from tests.golden_stores import UnpackedStore


SEGMENT = 1 << 16
STORES = ("4.3.0/tx", "4.9.7/basic", "5.3.3/compressed", "5.3.3/v2topic", "5.5.0/bcq")


def small_log(root: Path) -> Path:
    """Write a log of two segments; return the path of the first."""
    log = LogBuilder(SEGMENT)
    log.fill(2)
    log.append(b"last")
    log.write(root)
    return root / "commitlog" / f"{0:020d}"


def check_equal(root: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:  # noqa: ANN401 -- any option
    """Check that rows and errors are the same in one window and in many, of which few begin at a batch."""
    for more in ({}, {"columns": ["topic", "tags"]}, {"max_records_per_batch": 17}, {"max_partition_bytes": 50_000}):
        given = {**options, **more}
        expected = outcome(root, **given)
        with monkeypatch.context() as patch:
            patch.setattr(chain, "_LEAST", 1 << 11)
            patch.setattr(chain, "_LARGEST", 1 << 13)
            assert whole(expected) == whole(outcome(root, **given))


def noted_chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Take small windows, and return how many bytes were asked for at once from now on."""
    sizes: list[int] = []
    chunk = LocalBytes.chunk

    def noted(self: LocalBytes, begin: int, end: int) -> npt.NDArray[np.uint8]:
        sizes.append(end - begin)
        return chunk(self, begin, end)

    monkeypatch.setattr(chain, "_LEAST", 1 << 11)
    monkeypatch.setattr(chain, "_LARGEST", 1 << 12)
    for name in ("_LONGEST_WINDOW", "_FIRST_CHUNK", "_SEARCH_CHUNK", "_BLOCK"):
        monkeypatch.setattr(salvage, name, 1 << 12)
    monkeypatch.setattr(LocalBytes, "chunk", noted)
    return sizes


def whole(found: list[pa.RecordBatch | str]) -> tuple[pa.Table | None, list[str]]:
    """Return all rows, and the error."""
    batches = [each for each in found if not isinstance(each, str)]
    return pa.Table.from_batches(batches) if batches else None, [each for each in found if isinstance(each, str)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", STORES)
def test_golden_store_has_the_same_rows_in_small_windows(
    name: str, mode: str, golden: Callable[[str], UnpackedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden(name)
    check_equal(store.root, monkeypatch, release=store.golden.release, mode=mode)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_store_has_the_same_rows_and_errors_in_small_windows(
    seed: int, golden: Callable[[str], UnpackedStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_equal(damaged(golden("5.3.3/tx").root, tmp_path, seed), monkeypatch, mode=MODES[seed % 3])


def test_entries_behind_damage_are_read_without_what_precedes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DLedgerLog(1 << 15)
    for number in range(80):
        log.append(b"x" * 200, queue_offset=number)
    for number in range(5, 50):
        log.put(number, 0, ">i", 7)
    for number in range(80, 200):
        log.append(b"x" * 200, queue_offset=number)
    log.write(tmp_path)
    monkeypatch.setattr(message_reader, "_SOUND_AGAIN", 1 << 10)
    chunks = noted_chunks(monkeypatch)
    rows = read_messages(tmp_path, columns=["physical_offset"], mode="DROPMALFORMED").read_all().num_rows

    assert rows == 200 - 45
    assert max(chunks) <= (2 << 12) + 400  # a window with the head behind it, and the entry before


def test_a_size_that_its_lengths_do_not_prove_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = noted_chunks(monkeypatch)
    path = small_log(tmp_path)
    patch(path, SIZE_AT, (60_000).to_bytes(4, "big"))
    read_messages(tmp_path, columns=["topic"], mode="DROPMALFORMED").read_all()

    assert max(chunks) <= 2 << 12  # a window with the head behind it


def test_what_was_read_stays_as_it_was(tmp_path: Path) -> None:
    path = small_log(tmp_path)
    with open_segment(Segment(str(path), 0, SEGMENT)) as opened:
        found = opened.chunk(0, SEGMENT)
        expected = path.read_bytes()
        path.write_bytes(b"x" * SEGMENT)
        os.truncate(path, 0)
        assert expected == found.tobytes()


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_log(tmp_path)
    expected = read_messages(tmp_path).read_all()
    whole = os.preadv

    def short(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        return whole(descriptor, [buffers[0][:1000]], offset)

    monkeypatch.setattr(os, "preadv", short)
    assert expected == read_messages(tmp_path).read_all()


BODIES = ReadOptions(columns=("physical_offset", "body"))


@pytest.fixture(params=[0, 1 << 20], ids=["read again", "kept"])
def part(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReadRange:
    """Pick each third record of a range, in windows of a few; what was checked is kept, or read again."""
    monkeypatch.setattr(picked_records, "_AT_ONCE", 800)
    monkeypatch.setattr(picked_records, "_MOST_KEPT", request.param)
    log = LogBuilder(1 << 13)
    log.fill(2)
    log.write(tmp_path)
    whole = plan_ranges(tmp_path, ReadOptions()).ranges[0]
    records = [record for record in log.records if record.physical_offset < whole.segment.end_offset][::3]
    starts = np.array([record.physical_offset for record in records], np.int64)
    sizes = np.array([record.size for record in records], np.int64)
    unnamed = np.full(starts.size, NO_QUEUE, np.int32), np.zeros(starts.size, np.int64)
    return replace(whole, picks=Picks(starts, sizes, *unnamed))


def windows_of(part: ReadRange) -> PickWindows:
    """Open the picked records of a range."""
    assert part.picks is not None
    return PickWindows(part.picks, part.segment, part.data_end)


@pytest.mark.parametrize("row", [0, -1])
@pytest.mark.parametrize("shift", [1, -1, 1 << 40, -(1 << 40)])
def test_a_record_that_is_elsewhere_is_found_out(part: ReadRange, row: int, shift: int) -> None:
    assert part.picks is not None
    starts = part.picks.starts.copy()
    starts[row] += shift
    with windows_of(replace(part, picks=replace(part.picks, starts=starts))) as windows:
        assert windows.check() == starts[row]


def test_what_changes_after_the_check_is_not_decoded(part: ReadRange) -> None:
    path = Path(part.segment.path)
    whole = path.read_bytes()
    with windows_of(part) as windows:
        assert windows.check() is None
        path.write_bytes(bytes(len(whole)))
        if picked_records._MOST_KEPT:
            assert sum(len(window.picks) for window in windows.checked()) == len(part.picks or ())
        else:
            with pytest.raises(CorruptRecordError, match="record changed while it was read") as raised:
                list(windows.checked())
            assert raised.value.offset == (part.picks.starts[0] if part.picks else None)


def test_a_damaged_body_is_an_error_at_its_place_in_the_log(part: ReadRange) -> None:
    assert part.picks is not None
    path, at = Path(part.segment.path), int(part.picks.starts[2])
    data = bytearray(path.read_bytes())
    data[at - part.segment.start_offset + 8] ^= 1  # of the checksum
    path.write_bytes(data)

    rows: list[dict[str, object]] = []
    with pytest.raises(CorruptRecordError) as raised:
        rows.extend(row for batch in read_range(part, BODIES) for row in batch.to_pylist())
    assert raised.value.offset == at
    assert str(path) in str(raised.value)
    assert [row["physical_offset"] for row in rows] == part.picks.starts[:2].tolist()
