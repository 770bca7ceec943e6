# SPDX-License-Identifier: Apache-2.0
"""What was planted into a copy of a store is reported as exactly that, and equal logs have no differences."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import StoreNotFoundError
from store_core.answers import DiffBy, DiffReport, diff
from store_core.answers.report import Verdict
from store_core.answers.shown_text import text_width
from store_core.errors import InvalidOptionError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from tests.budgets import budget
from tests.builders import BODY_AT, FIRST_STORE_TIMESTAMP, LogBuilder, Record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Golden

GOLDEN = ["4.3.0/basic", "4.9.7/crash", "5.3.3/aged", "5.3.3/bcq", "5.3.3/propcrc", "5.3.3/torn-garble", "5.3.3/tx"]
BY_RECORDS = {"by": DiffBy.RECORDS}


def log_of(count: int = 60, size: int = 4096, **fields: Any) -> LogBuilder:  # noqa: ANN401 -- those of Record
    log = LogBuilder(size)
    for number in range(count):
        properties = {"KEYS": f"k{number}", "UNIQ_KEY": f"u{number}"}
        log.append(b"body %d " % number * 4, topic=f"t{number % 3}", properties=properties, **fields)
    return log


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return log_of().write(tmp_path / "whole", preallocated=1)


def planted(path: Path, physical_offset: int, count: int) -> None:
    """Invert bytes of a log on disk."""
    names = sorted((path / "commitlog").iterdir())
    segment = max((each for each in names if int(each.name) <= physical_offset), key=lambda each: int(each.name))
    data, begin = bytearray(segment.read_bytes()), physical_offset - int(segment.name)
    data[begin : begin + count] = bytes(byte ^ 0xFF for byte in data[begin : begin + count])
    segment.write_bytes(data)


def rows(report: DiffReport, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in report.tables[table].to_pylist()]


def assert_no_differences(report: DiffReport) -> None:
    assert Verdict.CLEAN is report.verdict
    assert not report.found.has_differences
    assert report.found.first_difference is None
    assert [] == rows(report, "ranges", "begin") + rows(report, "records", "physical_offset")


# ---- equal logs


@pytest.mark.golden
@pytest.mark.parametrize("options", [{"same_extent": True}, {"by": DiffBy.RECORDS, "same_extent": True}])
@pytest.mark.parametrize("name", GOLDEN)
def test_a_store_does_not_differ_from_its_copy(
    name: str, options: dict[str, Any], golden: Golden, tmp_path: Path
) -> None:
    store = golden(name).root
    copied = shutil.copytree(store, tmp_path / "copy")

    assert_no_differences(diff(store, copied, **options))


@pytest.mark.golden
def test_trimmed_and_preallocated_ends_are_no_differences(golden: Golden, tmp_path: Path) -> None:
    store = golden("5.3.3/propcrc").root
    copied = shutil.copytree(store, tmp_path / "copy")
    last = max((copied / "commitlog").iterdir())
    whole_size = last.stat().st_size
    data = last.read_bytes().rstrip(b"\0")
    last.write_bytes(data)
    more = shutil.copytree(store, tmp_path / "more")
    (more / "commitlog" / f"{int(last.name) + whole_size:020d}").write_bytes(bytes(whole_size))

    assert_no_differences(diff(store, copied, same_extent=True))
    assert_no_differences(diff(copied, more, same_extent=True))


# ---- planted differences


@pytest.mark.golden
@given(data=st.data())
@budget(0.3)
@pytest.mark.parametrize("name", ["4.9.7/basic", "5.3.3/batch", "5.3.3/propcrc"])
def test_inverted_bytes_are_reported_as_exactly_that(
    name: str, data: st.DataObject, golden: Golden, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = golden(name)
    records = [row for row in store.expected() if row["store_size"] > 120]
    row = data.draw(st.sampled_from(records))
    at = data.draw(st.integers(BODY_AT, row["store_size"] - 1))
    count = data.draw(st.integers(1, row["store_size"] - at))
    copied = shutil.copytree(store.root, tmp_path_factory.mktemp("copies") / "copy")
    begin = row["physical_offset"] + at
    planted(copied, begin, count)
    report = diff(store.root, copied)

    assert Verdict.FINDINGS is report.verdict
    assert [(begin, begin + count, count, None)] == rows(
        report, "ranges", "begin", "end", "differing_bytes", "missing_in"
    )
    assert begin == report.found.first_difference
    assert [(row["physical_offset"], row["topic"], row["queue_id"], row["queue_offset"])] == [
        found[1:]
        for found in rows(report, "records", "side", "physical_offset", "topic", "queue_id", "queue_offset")
        if found[0] == "a"
    ]
    assert (0, 0) == (report.found.missing_bytes_a, report.found.missing_bytes_b)


def test_a_changed_record_is_found_across_segment_sizes(whole: Path, tmp_path: Path) -> None:
    log = log_of(size=16384)
    log.flip(log.records[20].physical_offset + BODY_AT, 3)
    report = diff(whole, log.write(tmp_path / "other"))

    assert (1, 0, 0) == (
        report.found.changed_records,
        report.found.only_a_records,
        report.found.only_b_records,
    )
    assert {("a", "changed", "t2", 6), ("b", "changed", "t2", 6)} == set(
        rows(report, "records", "side", "kind", "topic", "queue_offset")
    )


def test_a_damaged_last_record_is_a_difference_though_the_log_ends_before_it(whole: Path, tmp_path: Path) -> None:
    log = log_of()
    last = log.records[-1]
    log.flip(last.physical_offset + BODY_AT, 2)
    report = diff(whole, log.write(tmp_path / "other"))

    assert (1, 0) == (report.found.changed_records, report.found.ahead_records_a)
    assert last.physical_offset + BODY_AT == report.found.first_difference


def test_bytes_after_a_blank_record_are_no_difference(whole: Path, tmp_path: Path) -> None:
    other = shutil.copytree(whole, tmp_path / "other")
    planted(other, 4094, 2)
    report = diff(whole, other)

    assert_no_differences(report)
    assert 2 == report.found.filler_bytes


# ---- extents


@pytest.mark.parametrize("options", [{}, BY_RECORDS])
def test_a_log_that_is_behind_is_no_finding_unless_asked_for(
    options: dict[str, Any], whole: Path, tmp_path: Path
) -> None:
    behind = log_of(50).write(tmp_path / "behind")
    report = diff(behind, whole, **options)

    assert_no_differences(report)
    assert (0, 10) == (report.found.ahead_records_a, report.found.ahead_records_b)
    assert [("b", "ahead", 10)] == rows(report, "ahead", "side", "kind", "records")
    assert Verdict.FINDINGS is diff(behind, whole, **options, same_extent=True).verdict


def test_a_torn_record_of_a_dead_writer_is_no_difference_where_its_bytes_are_right(whole: Path, tmp_path: Path) -> None:
    log = log_of()
    torn = log.truncate(log.records[59].physical_offset)
    log.append_raw(torn[:100])
    report = diff(whole, log.write(tmp_path / "torn"))

    assert_no_differences(report)
    assert 1 == report.found.ahead_records_a


def test_what_retention_deleted_is_no_finding(whole: Path, tmp_path: Path) -> None:
    aged = shutil.copytree(whole, tmp_path / "aged")
    min((aged / "commitlog").iterdir()).unlink()
    report = diff(whole, aged)

    assert_no_differences(report)
    assert (4096, 0) == (report.found.earlier_bytes_a, report.found.earlier_bytes_b)


def test_a_missing_segment_in_the_middle_is_a_finding(whole: Path, tmp_path: Path) -> None:
    holed = shutil.copytree(whole, tmp_path / "holed")
    sorted((holed / "commitlog").iterdir())[1].unlink()
    records = [each for each in log_of().records if 4096 <= each.physical_offset < 8192]
    report = diff(whole, holed)

    assert Verdict.FINDINGS is report.verdict
    assert (0, 4096, 0) == (report.found.missing_bytes_a, report.found.missing_bytes_b, report.found.differing_bytes)
    assert [("a", "only", each.physical_offset) for each in records] == rows(
        report, "records", "side", "kind", "physical_offset"
    )


def test_logs_without_a_common_offset_are_told_so(tmp_path: Path) -> None:
    early, late = LogBuilder(4096), LogBuilder(4096, 1 << 20)
    for log in (early, late):
        log.append(b"one")
    report = diff(early.write(tmp_path / "early"), late.write(tmp_path / "late"))

    assert "no offset is in both logs, so nothing was compared" in report.found.notes


def test_records_after_the_others_end_that_are_older_are_stale(tmp_path: Path) -> None:
    old, new = LogBuilder(), LogBuilder()
    for number in range(10):
        old.append(b"same" if number < 5 else b"old", store_timestamp=FIRST_STORE_TIMESTAMP + number)
    for number in range(5):
        new.append(b"same", store_timestamp=FIRST_STORE_TIMESTAMP + number)
    new.append(b"new", store_timestamp=FIRST_STORE_TIMESTAMP + 1000)
    report = diff(new.write(tmp_path / "new"), old.write(tmp_path / "old"))

    assert "b" == report.found.stale_side
    assert [("b", "stale", 4)] == rows(report, "ahead", "side", "kind", "records")
    assert 1 == report.found.changed_records


def test_a_record_in_progress_in_a_live_log_is_no_difference(whole: Path, tmp_path: Path) -> None:
    log = log_of(50)
    log.append_raw(log_of(51).records[50].encode()[:60] + b"\xff" * 20)
    live = log.write(tmp_path / "live")
    lock = StoreLock(live, OsFileSystem()).acquire()
    try:
        report = diff(live, whole)
    finally:
        lock.release()

    assert_no_differences(report)
    assert 10 == report.found.ahead_records_b
    assert [True, False] == report.tables["logs"]["is_live"].to_pylist()
    assert Verdict.FINDINGS is diff(live, whole).verdict


# ---- the report


def test_the_text_is_safe_for_a_terminal_and_fits_it(tmp_path: Path) -> None:
    log, other = LogBuilder(), LogBuilder()
    log.append(Record(b"one", "t\x1b[31m" + "x" * 60, {"KEYS": "\x07" * 10}))
    other.append(Record(b"two", "t\x1b[31m" + "x" * 60, {"KEYS": "\x07" * 10}))
    stores = log.write(tmp_path / ("a" * 50)), other.write(tmp_path / "b")
    text = diff(*stores).to_text()
    whole = {f"  {path}" for path in stores}  # a path stays whole, so that it can be copied

    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[31m" in text
    assert max(text_width(line) for line in text.splitlines() if line not in whole) <= 80


def test_a_path_without_a_log_and_a_wrong_option_are_refused(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        diff(whole, tmp_path / "nothing")
    with pytest.raises(InvalidOptionError, match="rows"):
        diff(whole, whole, rows=-1)
