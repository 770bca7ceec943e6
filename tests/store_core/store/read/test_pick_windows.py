# SPDX-License-Identifier: Apache-2.0
"""Picked records are checked on the bytes that are decoded, whether these were kept or are read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from store_core import CorruptRecordError, ReadOptions, plan_ranges, read_range
from store_core.store.read import picks as picked_records
from store_core.store.read.picks import NO_QUEUE, Picks, PickWindows
from tests.builders import LogBuilder

if TYPE_CHECKING:
    from store_core.store.read.ranges import ReadRange

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


def test_rows_are_those_of_the_records(part: ReadRange) -> None:
    options = ReadOptions(columns=("physical_offset", "store_size", "body", "topic"))
    found = [row for batch in read_range(part, options) for row in batch.to_pylist()]

    scanned = [row for batch in read_range(replace(part, picks=None), options) for row in batch.to_pylist()]
    assert part.picks is not None
    assert found == [row for row in scanned if row["physical_offset"] in part.picks.starts]
    assert len(found) > 2


def test_batches_have_as_many_rows_as_requested(part: ReadRange) -> None:
    batches = list(read_range(part, ReadOptions(columns=("topic",), max_records_per_batch=2)))

    assert {batch.num_rows for batch in batches[:-1]} == {2}


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
