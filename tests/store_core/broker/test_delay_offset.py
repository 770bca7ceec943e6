# SPDX-License-Identifier: Apache-2.0
"""Offsets of delayed messages by level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.broker.consumer_offset import DelayOffsetTable
from store_core.errors import CorruptRecordError
from store_core.files.file_system import OsFileSystem
from store_core.format.release import RELEASES
from store_core.snapshot.config import DataVersion
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.queue.queue_path import Release

KEPT = [
    store.name
    for store in golden_stores()
    if store.scenario in ("delay", "live") and store.version != "4.3.0"  # 4.3.0 had delivered nothing yet
]


@pytest.fixture
def table(tmp_path: Path) -> DelayOffsetTable:
    return DelayOffsetTable(tmp_path, OsFileSystem(), FakeClock())


@pytest.mark.golden
@pytest.mark.parametrize("name", KEPT)
def test_golden_files_are_written_as_they_were_read(name: str, golden: Callable[[str], UnpackedStore]) -> None:
    store = golden(name)
    release: Release = next((name for name in RELEASES if name == store.golden.release != "4.3"), "4.9")
    table = DelayOffsetTable(store.root, OsFileSystem(), FakeClock(), release)
    table.load()

    assert table.path.read_text() == table.text()
    assert table.offset_table()


def test_a_level_that_was_never_delivered_starts_at_0(table: DelayOffsetTable) -> None:
    table.update_offset(3, 30)

    assert (30, 0) == (table.offset_of(3), table.offset_of(4))


def test_what_was_persisted_is_loaded(table: DelayOffsetTable, tmp_path: Path) -> None:
    for level in (18, 3, 1):
        table.update_offset(level, level * 10)
    table.persist()
    again = DelayOffsetTable(tmp_path, OsFileSystem(), FakeClock(0))
    again.load()

    assert '\t"offsetTable":{\n\t\t1:10,\n\t\t3:30,\n\t\t18:180\n\t}\n}' in table.path.read_text()
    assert (table.offset_table(), table.data_version) == (again.offset_table(), again.data_version)


def test_release_4_writes_the_offsets_alone(tmp_path: Path) -> None:
    table = DelayOffsetTable(tmp_path, OsFileSystem(), FakeClock(), "4.9")
    table.update_offset(3, 30)
    table.persist()

    assert '{\n\t"offsetTable":{3:30\n\t}\n}' == table.path.read_text()


def test_the_data_version_moves_on_after_so_many_updates(tmp_path: Path) -> None:
    table = DelayOffsetTable(tmp_path, OsFileSystem(), FakeClock(), version_step=2)
    for offset in range(5):
        table.update_offset(1, offset)

    assert DataVersion(1_700_000_000_000, 2) == table.data_version


def test_offsets_outside_their_queues_are_brought_inside(table: DelayOffsetTable) -> None:
    for level, offset in ((1, 5), (2, 50), (3, 15), (4, 99)):
        table.update_offset(level, offset)
    corrected = table.correct(lambda level: None if level == 4 else (10, 20))

    assert (1, 2) == corrected
    assert {1: 10, 2: 20, 3: 15, 4: 99} == table.offset_table()


@pytest.mark.parametrize("text", ['{"offsetTable":{"x":1}}', '{"offsetTable":{1:null,2:[]}}', '{"offsetTable":3}'])
def test_a_hostile_file_is_refused(table: DelayOffsetTable, text: str) -> None:
    table.path.parent.mkdir()
    table.path.write_text(text)
    with pytest.raises(CorruptRecordError, match="offsetTable"):
        table.load()

    assert {} == table.offset_table()
