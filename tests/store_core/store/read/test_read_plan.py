# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from store_core import read_messages
from store_core.errors import SegmentLayoutError, SegmentVanishedError
from store_core.files.segment_source import Segment, SegmentBytes, open_segment
from store_core.store.read.message_reader import read_range
from store_core.store.read.picks import Picks
from store_core.store.read.ranges import ReadRange, task_groups
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import ReadPlan, plan_ranges
from tests.builders import BODY_AT, FIRST_STORE_TIMESTAMP, MAGIC_AT, LogBuilder

SIZE = 1024
MINUTE = 60_000


@pytest.fixture
def log() -> LogBuilder:
    """Three closed segments and one that is being written; the first was deleted long ago."""
    log = LogBuilder(SIZE, start_offset=SIZE)
    log.fill(3)
    log.append_all(b"one", b"two", b"three")
    return log


@pytest.fixture
def root(log: LogBuilder, tmp_path: Path) -> Path:
    return log.write(tmp_path / "store")


def plan(path: Path, **options: Any) -> ReadPlan:  # noqa: ANN401 -- those of reading
    return plan_ranges(path, ReadOptions.parse(**options))


def spans(path: Path, **options: Any) -> list[tuple[int, int]]:  # noqa: ANN401 -- those of reading
    return [(part.begin, part.end) for part in plan(path, **options).ranges]


# -------------------------------------------------------------------------------------------------- where the log ends


def test_there_is_a_range_for_each_segment_up_to_the_write_position(root: Path, log: LogBuilder) -> None:
    assert spans(root) == [(1024, 2048), (2048, 3072), (3072, 4096), (4096, log.end)]
    assert [part.is_last for part in plan(root).ranges] == [False, False, False, True]
    assert plan(root).notes == ()


def test_a_torn_record_is_left_out_and_noted(log: LogBuilder, tmp_path: Path) -> None:
    log.flip(log.records[-1].physical_offset + BODY_AT)
    root = log.write(tmp_path)

    assert spans(root)[-1] == (4096, log.records[-1].physical_offset)
    assert f"the log ends at offset {log.records[-1].physical_offset}" in plan(root).notes[0]
    assert spans(root, verify_crc=False)[-1] == (4096, log.end)


def test_stale_records_are_noted(log: LogBuilder, tmp_path: Path) -> None:
    keep = log.records[-3].physical_offset
    stale = log.truncate(keep)
    log.append(b"new", store_timestamp=FIRST_STORE_TIMESTAMP + MINUTE)
    end = log.end
    log.append_raw(bytes(8) + stale[end + 8 - keep :])
    root = log.write(tmp_path)

    assert spans(root)[-1] == (4096, end)
    assert "are older, so they are not data" in plan(root).notes[0]


# ------------------------------------------------------------------------------------------------------ what is missing


LENIENT = [{"mode": "DROPMALFORMED"}, {"mode": "PERMISSIVE"}, {"fail_on_data_loss": "false"}]


@pytest.mark.parametrize("options", LENIENT)
def test_a_missing_segment_is_an_error_or_noted_if_the_options_say_so(
    root: Path, log: LogBuilder, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    (root / "commitlog" / f"{2048:020d}").unlink()

    with pytest.raises(SegmentLayoutError, match="00000000000000002048 is missing"):
        plan(root)
    assert spans(root, **options) == [(1024, 2048), (3072, 4096), (4096, log.end)]
    assert "00000000000000002048 is missing" in plan(root, **options).notes[0]
    assert "00000000000000002048 is missing" in caplog.text


def test_a_start_after_the_log_s_end_is_noted(root: Path, log: LogBuilder) -> None:
    assert not plan(root, starting_offsets=str(log.end)).notes
    (note,) = plan(root, starting_offsets=str(log.end + 1)).notes
    assert f"is {log.end + 1}, after the log's end at offset {log.end}: there are no rows" in note


@pytest.mark.parametrize("options", LENIENT)
def test_a_segment_that_is_too_long_ends_where_the_next_begins(root: Path, options: dict[str, str]) -> None:
    path = root / "commitlog" / f"{2048:020d}"
    path.write_bytes(path.read_bytes() + bytes(100))

    with pytest.raises(SegmentLayoutError, match="begins inside it"):
        plan(root)
    assert spans(root, **options)[:3] == [(1024, 2048), (2048, 3072), (3072, 4096)]


def test_retention_while_planning_is_no_error(root: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    first = root / "commitlog" / f"{1024:020d}"

    def delete_and_open(segment: Segment) -> SegmentBytes:
        first.unlink(missing_ok=True)
        return open_segment(segment)

    monkeypatch.setattr("store_core.snapshot.log.open_segment", delete_and_open)

    assert spans(root, starting_timestamp=0) == [(2048, 3072), (3072, 4096), (4096, log.end)]


def test_a_store_that_vanishes_while_planning_is_not_planned_for_ever(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(segment: Segment, ahead_to: int = 0) -> SegmentBytes:
        del ahead_to
        raise SegmentVanishedError(segment.path)

    monkeypatch.setattr("store_core.files.segment_source.open_segment", vanished)

    with pytest.raises(SegmentVanishedError):
        plan(root)


# -------------------------------------------------------------------------------------------------------- what is asked


def test_a_last_segment_that_is_not_asked_for_still_closes_the_one_before(root: Path) -> None:
    assert not any(part.is_last for part in plan(root, ending_offsets=4096).ranges)
    assert plan(root, ending_offsets=4097).ranges[-1].is_last


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """Write four segments whose messages are an hour apart from segment to segment."""
    log = LogBuilder(SIZE)
    for hour in range(4):
        for minute in (0, 1, 2, 59):
            log.append(b"x", store_timestamp=FIRST_STORE_TIMESTAMP + (60 * hour + minute) * MINUTE)
        log.roll()
    return log.write(tmp_path / "timed")


def hour(number: float) -> int:
    return int(FIRST_STORE_TIMESTAMP + number * 60 * MINUTE)


@pytest.mark.parametrize(
    ("start", "end", "segments"),
    [
        (hour(0), hour(4), [0, 1, 2, 3]),
        (hour(1.5), hour(1.6), [1]),
        (hour(1.5), None, [1, 2, 3]),
        (None, hour(1.5), [0, 1]),
        (hour(2) - 1, None, [1, 2, 3]),
        (hour(2) + MINUTE, None, [1, 2, 3]),  # the clock may have been set back by a minute
        (hour(2) + MINUTE + 1, None, [2, 3]),
        (None, hour(1) - MINUTE, [0]),
        (None, hour(1) - MINUTE + 1, [0, 1]),
        (hour(10), None, [3]),
        (None, hour(-1), []),
    ],
)
def test_segments_are_skipped_by_the_times_of_their_first_records(
    timed: Path, start: int | None, end: int | None, segments: list[int]
) -> None:
    ranges = plan(timed, starting_timestamp=start, ending_timestamp=end).ranges

    assert [part.begin // SIZE for part in ranges] == segments


@pytest.mark.parametrize(
    ("start", "end"),
    [(None, 0.6), (None, 1.1), (0.2, 0.6), (0.7, 1.1), (0.7, None), (1.2, 2.7), (2.5, 2.7), (2.5, None)],
)
def test_a_clock_that_was_set_back_hides_no_row(tmp_path: Path, start: float | None, end: float | None) -> None:
    """Once in the third segment, which the fourth one's first record shows, and once in the last."""
    log = LogBuilder(SIZE)
    for hours in ([0, 0.1, 0.2], [1, 1.1, 1.2], [2, 2.9, 0.3], [0.5, 0.6], [0.7, 2.6, 0.8]):
        for stored in hours:
            log.append(b"x", store_timestamp=hour(stored))
        log.roll()
    root = log.write(tmp_path / "set-back")
    first, after = None if start is None else hour(start), None if end is None else hour(end)

    found = read_messages(root, columns=["physical_offset"], starting_timestamp=first, ending_timestamp=after)

    assert found.read_all()["physical_offset"].to_pylist() == [
        record.physical_offset
        for record in log.records
        if (first or 0) <= record.store_timestamp < (after or hour(100))
    ]


def test_times_that_became_narrower_since_the_plan_skip_segments_without_opening_them(timed: Path) -> None:
    first = plan(timed, starting_timestamp=0).ranges[0]
    Path(first.segment.path).unlink()

    assert [] == list(read_range(first, ReadOptions.parse(starting_timestamp=hour(3.5))))
    with pytest.raises(SegmentVanishedError):
        list(read_range(first, ReadOptions.parse(starting_timestamp=hour(0.5))))


def test_a_segment_whose_first_record_is_broken_is_not_skipped(timed: Path) -> None:
    path = timed / "commitlog" / f"{2 * SIZE:020d}"
    data = bytearray(path.read_bytes())
    data[MAGIC_AT] ^= 0xFF
    path.write_bytes(data)

    ranges = plan(timed, starting_timestamp=hour(3.5), mode="DROPMALFORMED").ranges
    assert [part.begin // SIZE for part in ranges] == [1, 3]


# --------------------------------------------------------------------------------------------------------------- splits


def test_the_largest_ranges_are_split_first(root: Path, log: LogBuilder) -> None:
    ranges = spans(root, min_partitions=7)

    assert ranges[-1] == (4096, log.end)
    assert [end - begin for begin, end in ranges[:-1]] == [512] * 6


def test_there_are_no_ranges_too_small_for_a_record_and_none_of_nothing(root: Path, tmp_path: Path) -> None:
    for options in ({"min_partitions": 10**6}, {"max_partition_bytes": 1}):
        assert min(end - begin for begin, end in spans(root, **options)) >= 91
    assert spans(LogBuilder(SIZE).write(tmp_path / "empty"), min_partitions=5) == []


MIB = 1 << 20


def picked(number: int, size: int, count: int = 1) -> ReadRange:
    places = number * MIB + np.arange(count)
    picks = Picks(places, np.full(count, size, np.int64), np.zeros(count, np.int32), places)
    return ReadRange(Segment(f"/{number}", number * MIB, MIB), number * MIB, (number + 1) * MIB, 0, picks=picks)


def sizes(*parts: ReadRange) -> list[int]:
    groups = task_groups(parts)
    assert [part for group in groups for part in group] == list(parts)
    return [len(group) for group in groups]


def test_very_many_small_records_are_tasks_of_their_own() -> None:
    assert sizes(*(picked(number, 100, 20_000) for number in range(4))) == [1, 1, 1, 1]
    assert sizes(*(picked(number, 100, 2_000) for number in range(4))) == [4]


def test_what_a_look_up_scans_is_read_with_its_records_if_it_is_little() -> None:
    little, much = (ReadRange(Segment("/0", 0, size), 0, size, size) for size in (MIB, 40 * MIB))

    assert sizes(picked(0, 10), little, picked(1, 10), picked(2, 10)) == [4]
    assert sizes(picked(0, 10), much, picked(1, 10), picked(2, 10)) == [1, 1, 2]
