# SPDX-License-Identifier: Apache-2.0
"""An export into a table has each message once, whichever call the machine dies at; its proof finds what differs."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from store_core import read_messages
from store_core.answers import export
from store_core.answers.export_job import ExportReport, export_by
from store_core.answers.export_proof import ProofReport, prove_by
from store_core.answers.report import Verdict
from store_core.errors import CorruptRecordError, InvalidOptionError
from store_core.files.file_system import OsFileSystem
from store_core.store.export.export_ledger import ExportLedger
from store_core.store.export.segment_totals import SegmentTotals
from store_core.store.parts import InProcess
from tests.builders import LogBuilder
from tests.store_core.answers.test_store_export import fill
from tests.store_core.mortal_disk import DeadDiskError, MortalFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.store.export.lake_table import TableCommit


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


@pytest.fixture
def log() -> LogBuilder:
    made = LogBuilder(1024)
    fill(made, 30)
    return made


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
def test_a_planted_difference_is_found(fault: str, log: LogBuilder, tmp_path: Path) -> None:
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
def test_each_message_is_there_once_whichever_change_the_machine_dies_at(lost_power: bool, tmp_path: Path) -> None:
    log, chance, deaths = LogBuilder(1024), random.Random(5), 0  # noqa: S311 -- no secret
    fill(log, 10)
    store = log.write(tmp_path / "store")
    for changes in range(0, 10_000, 11):
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

    assert deaths > 5


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


def test_a_staged_file_that_is_gone_stops_a_pending_export(log: LogBuilder, tmp_path: Path) -> None:
    store, lake, table = log.write(tmp_path / "store"), tmp_path / "lake", TableInMemory()
    table.dies = "before"
    with pytest.raises(DeadDiskError):
        exported(store, lake, table)
    next((lake / "_staged").iterdir()).unlink()

    with pytest.raises(CorruptRecordError, match="the staged file of an export that is pending"):
        exported(store, lake, table)
    assert 1 == len(ExportLedger(lake, MortalFileSystem()).pending())
