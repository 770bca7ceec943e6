# SPDX-License-Identifier: Apache-2.0
"""An export has each message once, goes on where it ended, wherever the machine dies; its proof finds what differs."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from store_core import read_messages
from store_core.answers import Export, export, prove
from store_core.answers.export_job import ExportReport, export_by
from store_core.answers.export_proof import ProofReport, prove_by
from store_core.answers.report import Verdict
from store_core.errors import (
    CorruptRecordError,
    ExpiredSegmentsError,
    InvalidOptionError,
    ReplacedStoreError,
    StoreAccessError,
    StoreLockedError,
    StoreNotFoundError,
)
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.store.export import lake_files
from store_core.store.export.export_ledger import ExportLedger
from store_core.store.export.lake_files import SegmentTotals, partition_directory
from store_core.store.parts import InProcess
from tests.builders import BODY_AT, SIZE_AT, LogBuilder, Record
from tests.store_core.fakes import DeadDiskError, MortalFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.store.export.lake_table import TableCommit
    from store_core.store.parts import Engine


DAY: Final = 86_400_000


def fill(log: LogBuilder, count: int) -> None:
    """Append messages of three topics and some days."""
    for number in range(len(log.records), len(log.records) + count):
        topic = ("orders", "%RETRY%billing", "mail")[number % 3]
        log.append(
            Record(b"body %d" % number * (number % 4), topic, {"KEYS": f"k{number}"}, queue_id=number % 2),
            store_timestamp=1_700_000_000_000 + number // 8 * DAY,
        )


@pytest.fixture
def log() -> LogBuilder:
    made = LogBuilder(1024)
    fill(made, 30)
    return made


def lake_rows(lake: Path) -> list[dict[str, Any]]:
    """Return the rows as a reader of Hive partitions sees them, in log order."""
    table = ds.dataset(lake, format="parquet", partitioning="hive").to_table()
    rows: list[dict[str, Any]] = table.drop_columns(["day"]).sort_by("physical_offset").to_pylist()
    return rows


def log_rows(store: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_messages(store).read_all().to_pylist()
    return rows


def test_a_lake_has_the_messages_of_the_log(log: LogBuilder, tmp_path: Path, engine: Engine) -> None:
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"
    report = Export(lake).ask(store, engine=engine)

    assert log_rows(store) == lake_rows(lake)
    assert (1, 30, 30) == (report.found.number, report.found.messages, report.found.all_messages)
    assert sum(record.size for record in log.records) == report.found.bytes
    assert Verdict.CLEAN is report.verdict
    assert {partition_directory("%RETRY%billing", 19675 + day) for day in range(4)} == {
        str(path.relative_to(lake)) for path in lake.glob("topic=%25RETRY%25billing/*")
    }
    proof = Export(lake, prove=True).ask(store, engine=engine)
    assert Verdict.CLEAN is proof.verdict
    assert "nothing differs" in proof.to_text()
    assert (proof.found.segments, 0) == (proof.found.proved_segments, proof.found.expired_segments)
    assert proof.found.segments > 2
    assert ["_ledger", "_staged"] == sorted(path.name for path in lake.iterdir() if path.name.startswith("_"))
    assert not [*(lake / "_staged").iterdir()]


def test_messages_whose_store_time_no_table_holds_are_in_a_partition_of_no_day(tmp_path: Path) -> None:
    log, times = LogBuilder(), (1_700_000_000_000_000, 1_700_000_000_000, (1 << 63) - 1)
    for time in times:
        log.append(topic="orders", store_timestamp=time)
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"
    export(store, lake)
    found = ds.dataset(lake, format="parquet", partitioning="hive").to_table().sort_by("physical_offset")

    assert log_rows(store) == lake_rows(lake)
    assert [time is None for time in found["store_timestamp"].to_pylist()] == [True, False, True]
    assert [str(day) for day in found["day"].to_pylist()] == ["None", "2023-11-14", "None"]
    assert Verdict.CLEAN is prove(store, lake).verdict


@pytest.mark.parametrize("topic", ["", " ", "..", "a/b", "a=b c", "\u65e5\u672c", "\u65e5" * 40])
def test_an_export_goes_on_after_messages_of_odd_topics(topic: str, tmp_path: Path) -> None:
    log, lake = LogBuilder(), tmp_path / "lake"
    for number in (1, 2):
        log.append_all(b"odd", b"other", topic=topic, properties={"KEYS": "k"})
        found = export(log.write(tmp_path / "store"), lake).found
        assert (number, 2 * number) == (found.number, found.all_messages)

    assert {topic} == {
        each.partition[0] for entry in ExportLedger(lake, OsFileSystem()).entries() for each in entry.files
    }
    assert Verdict.CLEAN is prove(tmp_path / "store", lake).verdict


def test_an_export_goes_on_where_the_last_one_ended(log: LogBuilder, tmp_path: Path) -> None:
    lake, found = tmp_path / "lake", []
    for count in (0, 0, 1, 25):
        fill(log, count)
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        store = log.write(tmp_path / "store")
        found.append(export(store, lake).found)
        assert log_rows(store) == lake_rows(lake)
        assert Verdict.CLEAN is prove(store, lake).verdict

    assert [1, None, 2, 3] == [each.number for each in found]
    assert [30, 0, 1, 25] == [each.messages for each in found]
    assert found[0].digest == found[1].digest != found[2].digest


def test_what_retention_deleted_after_its_export_is_compared_with_the_ledger(log: LogBuilder, tmp_path: Path) -> None:
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"
    export(store, lake)
    next(iter(sorted((store / "commitlog").iterdir()))).unlink()
    proof = prove(store, lake)

    assert (Verdict.CLEAN, 1) == (proof.verdict, proof.found.expired_segments)
    assert export(store, lake).found.number is None
    fill(log, 60)
    shutil.rmtree(store)
    log.write(store)
    for segment in sorted((store / "commitlog").iterdir())[:-2]:
        segment.unlink()
    with pytest.raises(ExpiredSegmentsError, match="--allow-loss"):
        export(store, lake)
    report = export(store, lake, allow_loss=True)
    assert report.found.lost_bytes == report.found.begin - log.records[29].end > 0
    assert Verdict.DAMAGED is report.verdict
    assert Verdict.CLEAN is prove(store, lake).verdict


def test_another_log_is_refused(log: LogBuilder, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    export(log.write(tmp_path / "store"), lake)
    other = LogBuilder(2048)
    other.append_all(*(b"other %d" % number for number in range(60)))

    with pytest.raises(ReplacedStoreError, match="Export into another directory"):
        export(other.write(tmp_path / "other"), lake, allow_loss=True)
    assert Verdict.FINDINGS is prove(tmp_path / "other", lake).verdict


@pytest.mark.parametrize("part", ["size", "body", "topic"])
def test_damage_is_left_out_and_counted(part: str, log: LogBuilder, tmp_path: Path) -> None:
    damaged = log.records[7]
    at = {"size": SIZE_AT, "body": BODY_AT, "topic": BODY_AT + len(damaged.body) + 1}[part]
    log.flip(damaged.physical_offset + at)
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"
    report = export(store, lake)

    assert (29, 1, damaged.size) == (report.found.messages, report.found.damaged_ranges, report.found.damaged_bytes)
    assert Verdict.DAMAGED is report.verdict
    assert "1 damaged range" in report.to_text()
    assert Verdict.CLEAN is prove(store, lake).verdict


def test_a_last_record_that_is_damaged_is_not_exported_and_noted_unless_it_may_be_in_progress(
    log: LogBuilder, tmp_path: Path
) -> None:
    last = log.records[-1]
    log.flip(last.physical_offset + BODY_AT)
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"
    reports = [export(store, lake), export(store, lake)]
    with StoreLock(store, OsFileSystem()):
        assert () == export(store, tmp_path / "of a broker").found.notes

    for report in reports:
        (note,) = report.found.notes
        assert f"the log ends at offset {last.physical_offset}: {last.size} bytes" in note
        assert "the body does not match its checksum" in note
        assert Verdict.CLEAN is report.verdict


@pytest.mark.parametrize("is_left", [False, True])
def test_a_segment_that_is_missing_among_those_exported_is_lost(is_left: bool, log: LogBuilder, tmp_path: Path) -> None:
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"
    missing = sorted((store / "commitlog").iterdir())[1]
    size = missing.stat().st_size
    missing.unlink()
    if is_left:
        missing.touch()  # an empty file
    report, later = export(store, lake), export(store, lake)
    (note,) = report.found.notes

    there = read_messages(store, columns=["topic"], fail_on_data_loss=False).read_all().num_rows
    assert report.found.messages == there < len(log.records)
    assert (f"segment {missing} is too short" if is_left else f"segment {missing.name} is missing") in note
    assert "fail_on_data_loss" not in note
    assert (size, Verdict.DAMAGED) == (report.found.lost_bytes, report.verdict)
    assert (0, Verdict.CLEAN) == (later.found.lost_bytes, later.verdict)  # it is in the ledger


def test_some_topics_can_be_exported(log: LogBuilder, tmp_path: Path) -> None:
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"
    assert 20 == export(store, lake, topic=["orders", "mail"]).found.messages
    assert Verdict.CLEAN is prove(store, lake).verdict
    with pytest.raises(
        InvalidOptionError, match="expected mail, orders, as in earlier exports into this directory, found x"
    ):
        export(store, lake, topic=["x"])


def changed(path: Path, **values: object) -> None:
    """Write a file of the lake again, with other values in its first row."""
    rows = pq.ParquetFile(path).read().to_pylist()
    rows[0] |= values
    table = pq.ParquetFile(path).read()
    pq.write_table(table.from_pylist(rows, table.schema), path)


@pytest.mark.parametrize("fault", ["body", "place", "missing", "twice", "rows", "ledger", "store"])
def test_a_planted_difference_is_found(fault: str, log: LogBuilder, tmp_path: Path) -> None:
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"
    export(store, lake)
    path = next(path for path in sorted(lake.rglob("*.parquet")) if pq.ParquetFile(path).metadata.num_rows > 1)
    if fault == "body":
        changed(path, body=b"forged")
    elif fault == "place":
        changed(path, physical_offset=1)
    elif fault == "missing":
        path.unlink()
    elif fault == "twice":
        shutil.copy(path, path.with_name("copy.parquet"))
    elif fault == "rows":
        table = pq.ParquetFile(path).read()
        pq.write_table(table.slice(1), path)
    elif fault == "store":
        log.flip(log.records[9].physical_offset + SIZE_AT, 1)
        shutil.rmtree(store)
        log.write(store)
    else:
        entry = lake / "_ledger" / "00000001.json"
        entry.write_text(entry.read_text().replace('"messages": 2', '"messages": 3', 1))
    proof = prove(store, lake)

    assert Verdict.FINDINGS is proof.verdict
    assert proof.found.differences == proof.tables["findings"].num_rows > 0
    assert "difference" in proof.to_text()
    has_plot = "Segments that differ, and the messages that the lake lacks" in proof.to_html()
    assert has_plot is ("differs" in proof.tables["segments"]["state"].to_pylist())


def test_a_ledger_whose_entries_do_not_follow_is_damaged(log: LogBuilder, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    export(log.write(tmp_path / "store"), lake)
    fill(log, 5)
    export(log.write(tmp_path / "more"), lake)
    entry = lake / "_ledger" / "00000001.json"
    text = entry.read_text()
    for wrong in (text.replace('"lost_bytes": 0', '"lost_bytes": 1'), "{}", text.replace("topic=", "../topic=")):
        entry.write_text(wrong)
        with pytest.raises(CorruptRecordError, match="the ledger of an export is damaged"):
            prove(tmp_path / "more", lake)


def test_what_can_not_be_done_is_refused(log: LogBuilder, tmp_path: Path) -> None:
    store = log.write(tmp_path / "store")
    with pytest.raises(InvalidOptionError, match="outside of the store"):
        export(store, store / "lake")
    with pytest.raises(StoreNotFoundError, match="nothing was exported"):
        prove(store, tmp_path / "none")
    with StoreLock(tmp_path / "lake" / "_ledger", OsFileSystem()), pytest.raises(StoreLockedError):
        export(store, tmp_path / "lake")


def test_many_partitions_at_once_need_no_more_files_than_may_be_open(
    log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_files, "_MOST_OPEN", 2)
    monkeypatch.setattr(lake_files, "_GROUP_BYTES", 1)
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"
    export(store, lake)

    assert log_rows(store) == lake_rows(lake)
    assert Verdict.CLEAN is prove(store, lake).verdict


# ---- deaths


def check_next_run(store: Path, lake: Path) -> None:
    """Check that the run after a death exports the rest once, and leaves nothing behind."""
    export(store, lake)

    assert log_rows(store) == lake_rows(lake)
    assert Verdict.CLEAN is prove(store, lake).verdict
    assert not [*(lake / "_staged").iterdir()]
    names = {path.suffix for path in (lake / "_ledger").iterdir()}
    assert {".json", ""} >= names


@pytest.mark.parametrize("lost_power", [False, True])
@pytest.mark.parametrize("stride", [31, pytest.param(1, marks=pytest.mark.soak)])
def test_a_machine_that_dies_at_any_change_exports_each_message_once(
    lost_power: bool, stride: int, log: LogBuilder, tmp_path: Path
) -> None:
    store, first = log.write(tmp_path / "store"), tmp_path / "first"
    export(store, first)
    fill(log, 12)
    more = log.write(tmp_path / "more")
    chance, deaths, seen = random.Random(19), 0, set()  # noqa: S311 -- no secret
    for changes in range(0, 10_000, stride):
        lake, disk = shutil.copytree(first, tmp_path / str(changes)), MortalFileSystem()
        for path in lake.rglob("*"):
            if path.is_file():
                disk.note_synced(path)
        disk.changes_left, disk.torn = changes, 0.5
        try:
            export_by(InProcess(), more, ExportLedger(lake, disk))
        except DeadDiskError:
            deaths += 1
        else:
            break
        disk.revive(lake, chance, lost_power=lost_power)
        seen.add(len(ExportLedger(lake, OsFileSystem()).pending()))
        check_next_run(more, lake)
        shutil.rmtree(lake)

    assert {0, 1} == seen
    assert deaths * stride > 40


class TableInMemory:
    """A table as Iceberg and Delta are: an append is atomic, and one that it has is ignored.

    * `dies`: "before" or "after": the machine dies there in the next append.
    """

    name = "memory"

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.dies = ""
        self._commits: set[tuple[str, int]] = set()

    def open(self, *, is_new: bool) -> None:
        if is_new and self.rows:
            raise InvalidOptionError("into: the table has rows")

    def append(self, commit: TableCommit) -> None:
        self._die("before")
        if (commit.ledger, commit.number) not in self._commits:
            self._commits.add((commit.ledger, commit.number))
            for each in commit.rows:
                added = {"topic": each.topic, "day": each.day}
                self.rows += [row | added for row in pq.ParquetFile(each.path).read().to_pylist()]
        self._die("after")

    def totals(self, starts: Sequence[int]) -> Iterable[SegmentTotals]:
        known = np.array(starts, np.int64)
        for row in self.rows:
            owner = int(np.searchsorted(known, row["physical_offset"], "right")) - 1
            place, size, crc = (
                np.array([row[name]], np.int64) for name in ("physical_offset", "store_size", "body_crc")
            )
            crc = crc if row["body"] else np.array([0], np.int64)
            yield SegmentTotals.of(starts[owner] if owner >= 0 else -1, place, size, crc)

    def _die(self, when: str) -> None:
        if self.dies == when:
            self.dies = ""
            raise DeadDiskError


def exported(store: Path, lake: Path, table: TableInMemory, files: FileSystem | None = None) -> ExportReport:
    return export_by(InProcess(), store, ExportLedger(lake, files or OsFileSystem(), table))


def proved(store: Path, lake: Path, table: TableInMemory) -> ProofReport:
    return prove_by(InProcess(), store, ExportLedger(lake, OsFileSystem(), table))


def check_has_each_once(store: Path, lake: Path, table: TableInMemory) -> None:
    rows = sorted(table.rows, key=lambda row: int(row["physical_offset"]))
    messages = read_messages(store).read_all()
    days = [f"{time:%Y-%m-%d}" for time in messages["store_timestamp"].to_pylist()]

    assert [row | {"day": day} for row, day in zip(messages.to_pylist(), days, strict=True)] == rows
    assert Verdict.CLEAN is proved(store, lake, table).verdict
    assert not [*(lake / "_staged").iterdir()]


def test_a_table_has_the_messages_of_the_log_and_then_what_is_new(log: LogBuilder, tmp_path: Path) -> None:
    store, lake, table = tmp_path / "store", tmp_path / "lake", TableInMemory()
    found = []
    for count in (0, 0, 25):
        fill(log, count)
        shutil.rmtree(store, ignore_errors=True)
        found.append(exported(log.write(store), lake, table).found)
        check_has_each_once(store, lake, table)

    assert [(1, 30), (None, 0), (2, 25)] == [(each.number, each.messages) for each in found]
    assert ["memory"] * 3 == [each.table for each in found]
    assert ["_ledger", "_staged"] == sorted(path.name for path in lake.iterdir())


@pytest.mark.parametrize("fault", ["body", "place", "missing", "twice"])
def test_a_planted_difference_of_a_table_is_found(fault: str, log: LogBuilder, tmp_path: Path) -> None:
    store, lake, table = log.write(tmp_path / "store"), tmp_path / "lake", TableInMemory()
    exported(store, lake, table)
    row = table.rows[7]
    if fault == "missing":
        table.rows.remove(row)
    elif fault == "twice":
        table.rows.append(row)
    else:
        name = {"body": "body_crc", "place": "physical_offset"}[fault]
        row[name] += 1

    assert Verdict.FINDINGS is proved(store, lake, table).verdict


@pytest.mark.parametrize("dies", ["before", "after"])
def test_an_export_that_died_beside_the_append_is_finished_by_the_next_run(
    dies: str, log: LogBuilder, tmp_path: Path
) -> None:
    store, lake, table = log.write(tmp_path / "store"), tmp_path / "lake", TableInMemory()
    table.dies = dies
    with pytest.raises(DeadDiskError):
        exported(store, lake, table)

    assert (0 if dies == "before" else 30) == len(table.rows)
    assert 30 == exported(store, lake, table).found.all_messages
    check_has_each_once(store, lake, table)


@pytest.mark.parametrize("lost_power", [False, True])
@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.soak)])
def test_each_message_is_there_once_whichever_change_the_machine_dies_at(
    lost_power: bool, stride: int, tmp_path: Path
) -> None:
    log, chance, deaths = LogBuilder(1024), random.Random(5), 0  # noqa: S311 -- no secret
    fill(log, 10)
    store = log.write(tmp_path / "store")
    for changes in range(0, 10_000, stride):
        lake, disk, table = tmp_path / str(changes), MortalFileSystem(), TableInMemory()
        disk.changes_left, disk.torn = changes, 0.5
        try:
            exported(store, lake, table, disk)
        except DeadDiskError:
            deaths += 1
        else:
            break
        disk.revive(lake, chance, lost_power=lost_power)
        exported(store, lake, table)
        check_has_each_once(store, lake, table)
        shutil.rmtree(lake)

    assert deaths * stride > 60


def test_a_ledger_is_for_one_kind_of_lake(log: LogBuilder, tmp_path: Path) -> None:
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"
    table = TableInMemory()
    exported(store, lake, table)

    with pytest.raises(
        InvalidOptionError, match="expected memory, as in earlier exports into this directory, found Parquet files"
    ):
        export(store, lake)
    with pytest.raises(InvalidOptionError, match="the table has rows"):
        exported(store, tmp_path / "other", table)


def test_a_file_above_the_lake_is_named(log: LogBuilder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreAccessError, match=f"{tmp_path}/file: expected a directory, found a file"):
        export(log.write(tmp_path / "store"), tmp_path / "file" / "lake")


def test_a_staged_file_that_is_gone_stops_a_pending_export(log: LogBuilder, tmp_path: Path) -> None:
    store, lake, table = log.write(tmp_path / "store"), tmp_path / "lake", TableInMemory()
    table.dies = "before"
    with pytest.raises(DeadDiskError):
        exported(store, lake, table)
    next((lake / "_staged").iterdir()).unlink()

    with pytest.raises(CorruptRecordError, match="the staged file of an export that is pending"):
        exported(store, lake, table)
    assert 1 == len(ExportLedger(lake, MortalFileSystem()).pending())
