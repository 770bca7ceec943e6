# SPDX-License-Identifier: Apache-2.0
"""What a crash leaves after the last sound record: where the log then ends, and which reads show these bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import ReadOptions, plan_ranges, read_messages, read_range
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import LOCK_FILE, StoreLock
from store_core.format.columns import COLUMNS
from store_core.format.record.scan import StopReason
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import FoundEnd, find_end
from tests.builders import BLANK_SIZE, BODY_AT, FIRST_STORE_TIMESTAMP, MAGIC_AT, LogBuilder, Record, blank_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIZE: Final = 2048


def zero_second_half(log: LogBuilder, record: Record) -> None:
    log.patch(record.end - record.size // 2, bytes(record.size // 2))


def zero_all_but_six_bytes(log: LogBuilder, record: Record) -> None:
    log.patch(record.physical_offset + 6, bytes(record.size - 6))


def zero_first_half(log: LogBuilder, record: Record) -> None:
    log.patch(record.physical_offset, bytes(record.size // 2))


def garble_body(log: LogBuilder, record: Record) -> None:
    log.flip(record.physical_offset + BODY_AT, 4)


TORN: Final = {
    zero_second_half: StopReason.SIZE_MISMATCH,
    zero_all_but_six_bytes: StopReason.BAD_MAGIC,
    zero_first_half: StopReason.UNWRITTEN,
    garble_body: StopReason.BAD_CRC,
}


@pytest.fixture
def log() -> LogBuilder:
    log = LogBuilder(SIZE)
    log.append_all(*(b"body %d." % number * 9 for number in range(16)), topic="t", properties={"KEYS": "k"})
    assert SIZE + 500 < log.end < 2 * SIZE
    return log


@pytest.fixture(params=TORN, ids=lambda tear: tear.__name__)
def torn(request: pytest.FixtureRequest, log: LogBuilder) -> Record:
    tear: Callable[[LogBuilder, Record], None] = request.param
    tear(log, log.records[-1])
    return log.records[-1]


def closed(log: LogBuilder, root: Path, *, preallocated: int = 0) -> Path:
    """Write a store that is not open anywhere: its lock exists and is free."""
    log.write(root, preallocated=preallocated)
    root.joinpath(LOCK_FILE).touch()
    return root


def stored(log: LogBuilder, record: Record) -> bytes:
    """Return what is left of a record, up to its last byte that is not zero."""
    data = b"".join(log.segments().values())
    return data[record.physical_offset : record.end].rstrip(b"\0")


def rows(root: Path, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- those of reading
    columns = options.pop("columns", ["physical_offset", "store_size", "topic", "_corrupt_record"])
    found: list[dict[str, Any]] = read_messages(root, columns=columns, **options).read_all().to_pylist()
    return found


def in_parts(root: Path, **options: Any) -> list[tuple[int, bytes | None]]:  # noqa: ANN401 -- those of reading
    parsed = ReadOptions.parse(mode="PERMISSIVE", columns="physical_offset,_corrupt_record", **options)
    ranges = plan_ranges(root, parsed).ranges
    batches = [batch for part in reversed(ranges) for batch in read_range(part, parsed)]
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return sorted(found)


# ----------------------------------------------------------------------------------------------------- what is the end


def test_the_end_is_one_past_the_last_sound_record(log: LogBuilder, torn: Record, tmp_path: Path) -> None:
    root = closed(log, tmp_path, preallocated=2)
    found = find_end(Log.of(root).segments)
    (tail,) = found.tails

    assert found.end_offset == torn.physical_offset
    assert found.path == tail.path == str(root / "commitlog" / f"{SIZE:020d}")
    assert (tail.begin, tail.size) == (torn.physical_offset, len(stored(log, torn)))
    assert tail.reason in TORN.values()
    assert plan_ranges(root, ReadOptions.parse(mode="PERMISSIVE")).end == found


def test_files_made_ahead_and_blank_records_do_not_move_the_end(log: LogBuilder, tmp_path: Path) -> None:
    end = log.end
    log.roll()
    segments = Log.of(closed(log, tmp_path, preallocated=3)).segments

    assert find_end(segments) == FoundEnd(end, segments[1].path)
    assert plan_ranges(tmp_path, ReadOptions()).end == FoundEnd(end, segments[1].path)


def test_a_log_without_a_record_ends_where_it_begins(tmp_path: Path) -> None:
    segments = Log.of(LogBuilder(SIZE, start_offset=SIZE).write(tmp_path, preallocated=1)).segments

    assert find_end(segments) == FoundEnd(SIZE, segments[0].path)
    assert find_end(()) == FoundEnd()


def test_a_tail_ends_where_records_of_an_earlier_time_begin(log: LogBuilder, tmp_path: Path) -> None:
    keep = log.records[-2].physical_offset
    stale = log.truncate(keep)
    log.append(b"new", topic="t", store_timestamp=FIRST_STORE_TIMESTAMP + 60_000)
    end = log.end
    log.append_raw(stale[end - keep :])
    (tail,) = find_end(Log.of(closed(log, tmp_path)).segments).tails

    assert (tail.begin, tail.end) == (end, keep + len(stale) // 2)


@pytest.mark.parametrize("number", [3, 14])
@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED", "PERMISSIVE"])
def test_sound_records_behind_a_blank_one_are_no_rows_and_are_told_of(
    log: LogBuilder, mode: str, number: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = log.records[number]
    last_of_file = SIZE if number == 3 else 2 * SIZE
    log.patch(hidden.physical_offset, blank_record(last_of_file - hidden.physical_offset)[:BLANK_SIZE])
    shown = [row["physical_offset"] for row in rows(closed(log, tmp_path), mode=mode)]

    assert hidden.physical_offset not in shown
    assert log.records[number + 1].physical_offset not in shown
    assert f"the blank record at offset {hidden.physical_offset} of" in caplog.text
    assert f"from offset {log.records[number + 1].physical_offset} on" in caplog.text


def test_older_records_behind_a_blank_one_are_not_told_of(
    log: LogBuilder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    behind = log.truncate(log.records[13].physical_offset)
    begin = log.end
    log.append(b"newer", store_timestamp=FIRST_STORE_TIMESTAMP + 1000)
    log.append_raw((blank_record(8) + behind)[log.end - begin :])
    log.patch(log.records[-1].end, blank_record(2 * SIZE - log.records[-1].end)[:BLANK_SIZE])
    rows(closed(log, tmp_path))

    assert "the blank record" not in caplog.text


def test_a_plan_that_ends_earlier_does_not_know_where_the_log_ends(log: LogBuilder, tmp_path: Path) -> None:
    assert plan_ranges(closed(log, tmp_path), ReadOptions.parse(ending_offsets=100)).end is None


# ------------------------------------------------------------------------------------------- which reads show the bytes


def test_permissive_gives_a_torn_tail_a_row(log: LogBuilder, torn: Record, tmp_path: Path) -> None:
    root = closed(log, tmp_path, preallocated=1)
    sound = [record.physical_offset for record in log.records[:-1]]
    *before, last = rows(root, mode="PERMISSIVE")

    assert sound == [row["physical_offset"] for row in before]
    assert last == {
        "physical_offset": torn.physical_offset,
        "store_size": len(stored(log, torn)),
        "topic": None,
        "_corrupt_record": stored(log, torn),
    }
    for mode in ("FAILFAST", "DROPMALFORMED"):
        assert sound == [row["physical_offset"] for row in rows(root, mode=mode)]


def test_a_torn_tail_has_a_row_whatever_columns_are_read(log: LogBuilder, torn: Record, tmp_path: Path) -> None:
    root = closed(log, tmp_path)

    assert torn in log.records
    for column in COLUMNS:
        assert len(rows(root, mode="PERMISSIVE", columns=[column.name])) == len(log.records)


@pytest.mark.parametrize("piece", [16 << 20, 7])
def test_a_torn_tail_is_the_same_in_all_splits(
    log: LogBuilder, torn: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr("store_core.store.read.chunk_rows._DAMAGED_PIECE", piece)
    root = closed(log, tmp_path, preallocated=1)
    whole = in_parts(root)

    assert b"".join(found or b"" for _, found in whole) == stored(log, torn)
    for options in ({"min_partitions": 9}, {"max_partition_bytes": 100}, {"max_partition_bytes": 33}):
        assert whole == in_parts(root, **options)
    assert whole == in_parts(root, max_records_per_batch=1)


def test_a_torn_tail_that_begins_a_segment_has_a_row(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    log.append_all(b"one", b"two")
    log.roll()
    zero_second_half(log, log.append(b"torn" * 20))
    root = closed(log, tmp_path, preallocated=1)
    *before, (offset, data) = in_parts(root, min_partitions=5)

    assert [(record.physical_offset, None) for record in log.records[:-1]] == before
    assert (offset, data) == (SIZE, stored(log, log.records[-1]))
    assert find_end(Log.of(root).segments).end_offset == log.records[-2].end


def test_a_store_of_one_torn_record_has_one_row(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    garble_body(log, log.append(b"torn" * 20))

    assert [(0, stored(log, log.records[0]))] == in_parts(closed(log, tmp_path), min_partitions=3)


def test_a_torn_tail_outside_the_offsets_asked_for_has_no_row(log: LogBuilder, torn: Record, tmp_path: Path) -> None:
    root, begin = closed(log, tmp_path), torn.physical_offset

    assert len(log.records) - 1 == len(rows(root, mode="PERMISSIVE", ending_offsets=begin))
    assert len(log.records) == len(rows(root, mode="PERMISSIVE", ending_offsets=begin + 1))
    assert 1 == len(rows(root, mode="PERMISSIVE", starting_offsets=begin))
    assert 0 == len(rows(root, mode="PERMISSIVE", starting_offsets=begin + 1))


def test_a_torn_body_is_a_row_like_others_where_checksums_do_not_count(log: LogBuilder, tmp_path: Path) -> None:
    garble_body(log, log.records[-1])
    found = rows(closed(log, tmp_path), mode="PERMISSIVE", verify_crc=False)

    assert ["t"] * len(log.records) == [row["topic"] for row in found]
    assert FoundEnd(log.end, found_path(tmp_path)) == plan_ranges(tmp_path, ReadOptions.parse(verify_crc=False)).end


def found_path(root: Path) -> str:
    return str(root / "commitlog" / f"{SIZE:020d}")


# --------------------------------------------------------------------------------------------------------- live stores


def test_what_a_writer_is_writing_is_no_damage(log: LogBuilder, torn: Record, tmp_path: Path) -> None:
    root = closed(log, tmp_path, preallocated=1)
    with StoreLock(root, OsFileSystem()):
        plan = plan_ranges(root, ReadOptions.parse(mode="PERMISSIVE"))

        assert len(log.records) - 1 == len(rows(root, mode="PERMISSIVE"))
        assert plan.end == FoundEnd(torn.physical_offset, found_path(root))
        assert not any("no newer record follows" in note for note in plan.notes)
    assert len(log.records) == len(rows(root, mode="PERMISSIVE"))


def test_without_a_lock_to_go_by_a_tail_has_no_row_and_a_note(log: LogBuilder, torn: Record, tmp_path: Path) -> None:
    root = log.write(tmp_path)
    plan = plan_ranges(root, ReadOptions.parse(mode="PERMISSIVE"))

    assert len(log.records) - 1 == len(rows(root, mode="PERMISSIVE"))
    assert plan.end is not None
    assert [torn.physical_offset] == [tail.begin for tail in plan.end.tails]
    assert any("create an empty file of that name" in note for note in plan.notes)
    root.joinpath(LOCK_FILE).touch()
    assert len(log.records) == len(rows(root, mode="PERMISSIVE"))


def test_a_record_that_was_finished_since_the_plan_is_no_damage(log: LogBuilder, tmp_path: Path) -> None:
    options = ReadOptions.parse(mode="PERMISSIVE", columns="physical_offset,_corrupt_record")
    last = log.records[-1]
    whole = log.truncate(last.physical_offset)
    log.append_raw(whole[: len(whole) // 2])
    plan = plan_ranges(closed(log, tmp_path), options)
    log.append_raw(whole[len(whole) // 2 :])
    closed(log, tmp_path)
    found = [row for part in plan.ranges for batch in read_range(part, options) for row in batch.to_pylist()]

    assert len(plan.ranges[-1:]) == 1
    assert plan.ranges[-1].torn_end > plan.ranges[-1].data_end
    assert [record.physical_offset for record in log.records] == [row["physical_offset"] for row in found]
    assert all(row["_corrupt_record"] is None for row in found)


def test_older_garbage_far_behind_the_end_is_found_across_holes(log: LogBuilder, tmp_path: Path) -> None:
    log = LogBuilder(1 << 23)
    log.append(b"sound")
    end = log.end
    log.append_raw(bytes(5 << 20) + b"left")
    (tail,) = find_end(Log.of(closed(log, tmp_path)).segments).tails

    assert (tail.begin, tail.end) == (end, log.end)
    assert "it begins with zeros" in str(tail)


def test_magic_codes_after_the_end_prove_nothing(log: LogBuilder, tmp_path: Path) -> None:
    log.flip(log.records[-1].physical_offset + MAGIC_AT)
    log.append_raw(log.records[0].encode())
    found = find_end(Log.of(closed(log, tmp_path)).segments)

    assert found.end_offset == log.records[-1].physical_offset
    assert found.tails[0].end == log.end
