# SPDX-License-Identifier: Apache-2.0
"""DLedger logs are read as other logs are: whole, in parts, mixed with an older log, and past damage."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import ReadOptions, explain, plan_ranges, read_messages, read_view
from store_core.errors import CorruptRecordError, StoreError, UnsupportedStoreError
from store_core.store.read.follow.log_follower import LogFollower
from tests import builders
from tests.budgets import budget
from tests.builders import LogBuilder
from tests.dledger_logs import HEAD_SIZE, INDEX_AT, MAGIC_AT, POSITION_AT, SIZE_AT, TERM_AT, DLedgerLog

if TYPE_CHECKING:
    from pathlib import Path

FILE_SIZE = 2048
COLUMNS = ["physical_offset", "store_size", "body", "dledger_index", "dledger_term", "dledger_committed"]
DAMAGED = [*COLUMNS, "_corrupt_record"]


def filled(count: int = 40, start_offset: int = 0) -> DLedgerLog:
    """Make a log of several files, whose term rises."""
    log = DLedgerLog(FILE_SIZE, start_offset)
    for number in range(count):
        log.append(b"%d" % number, term=number // 10)
    return log


def rows(root: Path, columns: list[str] = COLUMNS, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    listed: list[dict[str, Any]] = read_messages(root, columns=columns, **options).read_all().to_pylist()
    return listed


def expected(log: DLedgerLog, committed: int | None = None) -> list[dict[str, Any]]:
    return [
        {
            "physical_offset": record.physical_offset,
            "store_size": record.size,
            "body": record.body,
            "dledger_index": index,
            "dledger_term": term,
            "dledger_committed": None if committed is None else index <= committed,
        }
        for record, (index, term) in zip(log.records, log.indexes, strict=True)
    ]


# ---- sound logs


@pytest.mark.parametrize("below", ["", "dledger-n0", "dledger-n0/data"])
def test_every_record_is_a_row_with_its_entry(tmp_path: Path, below: str) -> None:
    log = filled()
    log.write(tmp_path)

    assert expected(log, 39) == rows(tmp_path / below)


def test_a_sound_log_is_read_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = LogBuilder(segment_size=FILE_SIZE)
    old.append_all(b"old")
    old.roll()
    old.write(tmp_path)
    filled(start_offset=FILE_SIZE).write(tmp_path)

    assert len(rows(tmp_path)) == 41
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_one_file_is_read_by_its_name(tmp_path: Path) -> None:
    log = filled()
    log.write(tmp_path)
    second = tmp_path / "dledger-n0" / "data" / f"{FILE_SIZE:020d}"

    mine = [row for row in expected(log, 39) if FILE_SIZE <= row["physical_offset"] < 2 * FILE_SIZE]
    assert mine == rows(second)


def test_an_older_log_before_it_is_read_first_and_has_no_entries(tmp_path: Path) -> None:
    old = LogBuilder(segment_size=FILE_SIZE)
    for _ in range(2):
        old.append_all(b"old", b"older")
        old.roll()
    old.write(tmp_path)
    log = filled(start_offset=2 * FILE_SIZE)
    log.write(tmp_path)
    found = rows(tmp_path)

    assert [record.physical_offset for record in old.records] == [
        row["physical_offset"] for row in found if row["dledger_index"] is None
    ]
    assert {None} == {row["dledger_committed"] for row in found[: len(old.records)]}
    assert expected(log, 39) == found[len(old.records) :]


@pytest.mark.parametrize("size", [92, 150, 500, 1 << 20])
def test_any_split_has_every_row_once(tmp_path: Path, size: int) -> None:
    filled().write(tmp_path)

    assert rows(tmp_path) == rows(tmp_path, max_partition_bytes=size)


@pytest.mark.parametrize("shift", [-HEAD_SIZE, -1, 0, 1])
def test_a_range_has_the_records_that_start_in_it(tmp_path: Path, shift: int) -> None:
    log = filled()
    log.write(tmp_path)
    begin, end = log.records[3].physical_offset + shift, log.records[7].physical_offset + shift
    offsets = [record.physical_offset for record in log.records]

    assert [offset for offset in offsets if begin <= offset < end] == [
        row["physical_offset"] for row in rows(tmp_path, starting_offsets=begin, ending_offsets=end)
    ]


def test_a_record_is_found_by_its_position_and_by_queue(tmp_path: Path) -> None:
    log = filled()
    log.write(tmp_path)
    one = expected(log, 39)[17]

    assert [one] == rows(tmp_path, physical_offset=one["physical_offset"])
    assert [] == rows(tmp_path, physical_offset=one["physical_offset"] - HEAD_SIZE)
    assert 40 == len(rows(tmp_path, topic="orders", queue_id=0))
    assert explain(tmp_path, topic="orders").why == "a scan reads less than 64 MiB"


@pytest.mark.parametrize("committed", [-1, 0, 25, 39, 1 << 40])
def test_what_another_leader_may_replace_is_marked_and_noted(tmp_path: Path, committed: int) -> None:
    log = filled()
    log.write(tmp_path, committed=committed)
    notes = plan_ranges(tmp_path, ReadOptions.parse()).notes

    assert expected(log, committed) == rows(tmp_path)
    assert (committed < 39) is any("goes on to entry 39" in note for note in notes)


@pytest.mark.parametrize(
    "text", [None, b"", b"committedIndex=x", b"committedIndex=99999999999999999999", b"\xff" * 9999]
)
def test_without_a_readable_checkpoint_it_is_unknown_what_is_committed(tmp_path: Path, text: bytes | None) -> None:
    log = filled()
    log.write(tmp_path, committed=None)
    checkpoint = tmp_path / "dledger-n0" / "checkpoint"
    if text is not None:
        checkpoint.write_bytes(text)

    assert expected(log) == rows(tmp_path)
    assert any(str(checkpoint) in note for note in plan_ranges(tmp_path, ReadOptions.parse()).notes)


def test_an_empty_log_has_no_rows(tmp_path: Path) -> None:
    DLedgerLog(FILE_SIZE).write(tmp_path)

    assert [] == rows(tmp_path)


def test_the_files_are_listed_with_their_ends(tmp_path: Path) -> None:
    log = filled()
    log.write(tmp_path)
    columns = ["start_offset", "data_end", "messages", "stop_reason", "is_last"]
    found = read_view(tmp_path, "segments", columns=columns).read_all().to_pylist()

    assert 40 == sum(row["messages"] for row in found)
    assert {"END_OF_FILE"} == {row["stop_reason"] for row in found[:-1]}
    assert (log.end, "UNWRITTEN", True) == tuple(found[-1][name] for name in ("data_end", "stop_reason", "is_last"))


# ---- what is refused


def test_logs_of_several_members_are_not_one(tmp_path: Path) -> None:
    filled().write(tmp_path, member="n0")
    filled().write(tmp_path, member="n1")

    with pytest.raises(UnsupportedStoreError, match="logs of 2 members"):
        rows(tmp_path)
    assert 40 == len(rows(tmp_path / "dledger-n1"))


def test_a_stream_is_refused_by_name(tmp_path: Path) -> None:
    filled().write(tmp_path)

    with pytest.raises(UnsupportedStoreError, match="is a DLedger store"):
        LogFollower(tmp_path, ReadOptions.parse()).initial()


# ---- damage

BREAKS = [
    (MAGIC_AT, ">i", 2, "bad magic code"),
    (SIZE_AT, ">i", 0, "bad record size"),
    (SIZE_AT, ">i", 1 << 30, "torn record"),
    (POSITION_AT, ">q", 0, "wrong physical offset"),
    (INDEX_AT, ">q", 100, "expected DLedger index 20, found 100"),
    (TERM_AT, ">q", 0, "expected DLedger term 1 or later, found 0"),
    (HEAD_SIZE + builders.MAGIC_AT, ">i", 1, "bad magic code"),
    (HEAD_SIZE + builders.BODY_AT, ">b", 1, "bad body CRC"),
]


@pytest.mark.parametrize(("at", "layout", "value", "told"), BREAKS)
def test_a_broken_entry_is_one_clear_error_or_left_out(
    tmp_path: Path, at: int, layout: str, value: int, told: str
) -> None:
    log = filled()
    log.put(20, at, layout, value).write(tmp_path)
    others = [row for row in expected(log, 39) if row["physical_offset"] != log.records[20].physical_offset]

    with pytest.raises(CorruptRecordError) as error:
        rows(tmp_path)
    for text in (told, "dledger-n0/data/", "mode=DROPMALFORMED"):
        assert text in str(error.value)
    assert others == rows(tmp_path, mode="DROPMALFORMED")


@pytest.mark.parametrize(("at", "layout", "value", "told"), BREAKS)
@pytest.mark.parametrize("size", [None, 92, 300])
def test_the_bytes_of_a_broken_entry_are_a_row(
    tmp_path: Path, at: int, layout: str, value: int, told: str, size: int | None
) -> None:
    del told
    log = filled()
    log.put(20, at, layout, value).write(tmp_path)
    found = rows(tmp_path, DAMAGED, mode="PERMISSIVE", max_partition_bytes=size)
    (damage,) = (row for row in found if row["_corrupt_record"] is not None)
    begin, end = damage["physical_offset"], damage["physical_offset"] + damage["store_size"]

    assert 40 == len(found)
    assert end == log.entries[21]
    assert begin in (log.entries[20], log.records[20].physical_offset)
    assert bytes(log.data[begin:end]) == damage["_corrupt_record"]


def test_a_torn_last_entry_is_not_read(tmp_path: Path) -> None:
    log = filled()
    sound = expected(log, 39)[:-1]
    del log.data[-11:]
    log.write(tmp_path)

    assert sound == rows(tmp_path)


def test_ordinary_segments_among_entries_are_damage(tmp_path: Path) -> None:
    log = filled(4)
    log.write(tmp_path)
    other = LogBuilder(segment_size=FILE_SIZE, start_offset=FILE_SIZE)
    other.append(b"no entry")
    ((name, data),) = other.segments().items()
    (tmp_path / "dledger-n0" / "data" / name).write_bytes(data)

    assert expected(log, 3) == rows(tmp_path, mode="DROPMALFORMED")


@given(st.data())
@budget(0.3)
def test_broken_logs_end_in_rows_or_an_error_that_names_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever is broken, all ways to split have the same rows, in order, and each is a record that was written."""
    log = filled(24)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(log.entries)) + data.draw(st.integers(0, HEAD_SIZE + 100))
        part = data.draw(st.binary(min_size=1, max_size=8))[: len(log.data) - at]
        log.data[at : at + len(part)] = part
    root = log.write(tmp_path_factory.mktemp("store"), committed=data.draw(st.none() | st.integers(-5, 50)))
    size = data.draw(st.integers(92, 3000))

    all_rows = [rows(root, DAMAGED, mode=mode, verify_crc=False) for mode in ("DROPMALFORMED", "PERMISSIVE")]
    split = [
        rows(root, DAMAGED, mode=mode, verify_crc=False, max_partition_bytes=size)
        for mode in ("DROPMALFORMED", "PERMISSIVE")
    ]
    assert all_rows == split
    ends = [(row["physical_offset"], row["physical_offset"] + row["store_size"]) for row in all_rows[1]]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
    if len(all_rows[0]) == len(all_rows[1]):
        assert len(all_rows[0]) == len(rows(root, verify_crc=False))
    else:
        with pytest.raises(StoreError, match="dledger-n0/data/"):
            rows(root, verify_crc=False)
