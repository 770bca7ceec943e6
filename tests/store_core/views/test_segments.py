# SPDX-License-Identifier: Apache-2.0
"""The view `segments`: what is walked and what is not, and where records end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import read_messages
from store_core.format.record.scan import follow_frames
from store_core.views import segments
from tests.builders import SIZE_AT, LogBuilder, patch
from tests.viewed_store import column, rows_of

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 1024


def write_log(root: Path, spare: int = 0) -> LogBuilder:
    """Write a log of small segments, and preallocated ones after it."""
    log = LogBuilder(SIZE)
    log.append_all(*(b"body %d" % number for number in range(30)), topic="orders")
    log.write(root, preallocated=spare)
    return log


def overwrite(root: Path, offset: int, data: bytes) -> None:
    patch(root / "commitlog" / f"{offset // SIZE * SIZE:020d}", offset % SIZE, data)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what is walked from now on."""
    found: list[object] = []
    for name in ("_walk", "segment_end"):
        monkeypatch.setattr(segments, name, lambda *arguments, **_: found.append(arguments))
    return found


def test_a_time_that_no_table_holds_is_null_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = LogBuilder(SIZE)
    log.append(store_timestamp=1_700_000_000_000)
    log.fill(2, topic="orders", store_timestamp=1_700_000_000_000_000)
    log.write(tmp_path)
    found = rows_of(tmp_path, "segments", "first_store_timestamp,last_store_timestamp")

    assert [row["first_store_timestamp"] is None for row in found] == [False, *[True] * (len(found) - 1)]
    assert {row["last_store_timestamp"] for row in found} == {None}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert f"the record at offset {SIZE}: its first_store_timestamp is 1700000000000000 ms" in told[1]


def test_without_messages_and_its_neighbours_nothing_is_walked(tmp_path: Path, walks: list[object]) -> None:
    write_log(tmp_path)
    columns = "segment,path,start_offset,file_size,first_store_timestamp,is_last"
    found = rows_of(tmp_path, "segments", columns)

    assert [] == walks
    assert [False] * (len(found) - 1) + [True] == [row["is_last"] for row in found]


def test_names_and_sizes_open_no_file(tmp_path: Path, opened: list[str]) -> None:
    write_log(tmp_path)
    rows_of(tmp_path, "segments", "segment,path,start_offset,file_size")

    assert [] == opened


def test_damage_ends_a_segments_chain_with_its_reason(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    broken = log.records[2]
    overwrite(tmp_path, broken.physical_offset + SIZE_AT, b"\x7f\xff\xff\xff")
    first = rows_of(tmp_path, "segments")[0]

    assert (broken.physical_offset, "TORN", 2) == (first["data_end"], first["stop_reason"], first["messages"])
    assert log.records[1].store_timestamp == round(first["last_store_timestamp"].timestamp() * 1000)


def test_a_torn_last_segment_is_no_end_of_the_log(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    start = log.end // SIZE * SIZE
    first = next(record for record in log.records if record.physical_offset == start)
    overwrite(tmp_path, start, first.encode()[:50] + bytes(SIZE - 50))
    found = rows_of(tmp_path, "segments")

    assert [f"{start - SIZE:020d}"] == [row["segment"] for row in found if row["is_last"]]


@given(st.integers(0, 4 * SIZE - 1), st.binary(min_size=1, max_size=40))
def test_counts_and_ends_are_those_of_the_chain(
    tmp_path_factory: pytest.TempPathFactory, offset: int, data: bytes
) -> None:
    root = tmp_path_factory.mktemp("segments")
    log = write_log(root, spare=1)
    overwrite(root, min(offset, log.end - 1), data[: SIZE - offset % SIZE])
    plan_end = read_messages(root, columns="physical_offset,store_size", mode="DROPMALFORMED").read_all().to_pylist()
    for row in rows_of(root, "segments"):
        assert row["messages"] or row["last_store_timestamp"] is None
        content = (root / "commitlog" / row["segment"]).read_bytes()
        expected = follow_frames(memoryview(content), 0, None, row["start_offset"])
        if not row["is_last"]:
            end = row["start_offset"] + expected.stop
            assert (len(expected.starts), end, expected.reason.name) == (
                row["messages"],
                row["data_end"],
                row["stop_reason"],
            )
        else:
            assert row["data_end"] <= row["start_offset"] + expected.stop
            assert row["data_end"] <= max(
                (each["physical_offset"] + each["store_size"] for each in plan_end), default=0
            )


def test_offsets_select_segments_that_overlap(tmp_path: Path) -> None:
    write_log(tmp_path)
    starts = column(tmp_path, "segments", "start_offset")

    assert starts[1:3] == column(
        tmp_path, "segments", "start_offset", starting_offsets=SIZE + 1, ending_offsets=2 * SIZE + 1
    )
    assert [] == column(tmp_path, "segments", "start_offset", starting_offsets=SIZE + 1, ending_offsets=SIZE + 1)
