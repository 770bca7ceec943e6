# SPDX-License-Identifier: Apache-2.0
"""How another kind of store is recognised by its root, what is refused then, and what is only noted."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from store_core.errors import UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_kind import StoreUse, check_store_kind, queue_database
from store_core.snapshot.log import Log
from tests.store_core.files.store_kinds import add_dledger, add_rocksdb, every_file, ordinary_store

if TYPE_CHECKING:
    from pathlib import Path

USES = list(StoreUse)
OPEN, READ, REPLACE = StoreUse.OPEN_QUEUES, StoreUse.READ_LOG, StoreUse.REPLACE_QUEUES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return ordinary_store(tmp_path / "store")


def notes_of(root: Path, use: StoreUse = OPEN) -> tuple[str, ...]:
    return check_store_kind(root, OsFileSystem(), use)


@pytest.mark.parametrize("use", USES)
def test_an_ordinary_store_and_none_at_all_are_fine(root: Path, use: StoreUse) -> None:
    add_rocksdb(root / "rocksdbstore", holds_data=False)  # RocketMQ 5.4 makes it in every store
    (root / "compaction").mkdir()

    assert () == notes_of(root, use)
    assert () == notes_of(root / "not there", use)


# ---- DLedger


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_dledger_store_is_refused_by_name_for_every_use(root: Path, use: StoreUse, is_mixed: bool) -> None:
    data = add_dledger(root, "n7")
    if not is_mixed:
        shutil.rmtree(root / "commitlog")
    before = every_file(root)

    with pytest.raises(UnsupportedStoreError, match="DLedger") as error:
        notes_of(root, use)

    for told in (str(root), str(data), "Nothing was changed", "its broker"):
        assert told in str(error.value)
    assert is_mixed is ("The older records can be read" in str(error.value))
    assert before == every_file(root)


def test_a_directory_with_the_prefix_alone_is_no_dledger_log(root: Path) -> None:
    (root / "dledger-n0").mkdir()
    (root / "dledger-notes").touch()
    (root / "dledger-file").mkdir()
    (root / "dledger-file" / "data").touch()

    assert () == notes_of(root)


@pytest.mark.parametrize("below", ["", "commitlog", "dledger-n0", "dledger-n0/data", "dledger-n0/index"])
def test_no_directory_of_a_dledger_store_is_read(root: Path, below: str) -> None:
    add_dledger(root)

    with pytest.raises(UnsupportedStoreError, match="is a DLedger store"):
        Log.of(root / below)


def test_nor_by_a_link_or_among_several_paths(root: Path, tmp_path: Path) -> None:
    add_dledger(root)
    (tmp_path / "link").symlink_to(root / "commitlog")
    other = ordinary_store(tmp_path / "other") / "commitlog"

    for given in (tmp_path / "link", f"{other},{root / 'commitlog'}", f"file://{root}"):
        with pytest.raises(UnsupportedStoreError, match="is a DLedger store"):
            Log.of(given)


def test_a_segment_given_by_its_own_name_is_read_but_not_a_file_of_entries(root: Path) -> None:
    data = add_dledger(root)
    segments = sorted((root / "commitlog").iterdir())

    assert [segment.name for segment in segments] == [found.name for found in Log.of(segments).segments]
    with pytest.raises(UnsupportedStoreError, match="is a DLedger store"):
        Log.of(next(data.iterdir()))


def test_a_store_beside_a_dledger_store_is_none(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "second")
    add_dledger(root)

    assert 3 == len(Log.of(tmp_path / "second" / "commitlog").segments)


# ---- RocksDB


@pytest.mark.parametrize("directory", ["consumequeue", "consumequeue_rocksdb"])
def test_queues_in_a_rocksdb_alone_are_not_opened_but_the_log_is_read(root: Path, directory: str) -> None:
    shutil.rmtree(root / "consumequeue")
    database = add_rocksdb(root / directory)

    assert () == notes_of(root, READ) == notes_of(root, StoreUse.READ_QUEUES)
    assert database == queue_database(root, OsFileSystem())
    with pytest.raises(UnsupportedStoreError, match="has its queues in a RocksDB") as error:
        notes_of(root)
    assert str(database) in str(error.value)
    for way in ("opened read-only", "--to files --replace", "--output"):
        assert way in str(error.value)


@pytest.mark.parametrize("directory", ["consumequeue", "consumequeue_rocksdb"])
def test_queues_that_are_in_files_as_well_are_opened_with_a_note(root: Path, directory: str) -> None:
    database = add_rocksdb(root / directory)

    (note,) = notes_of(root)
    assert str(database) in note
    assert (note,) == notes_of(root, StoreUse.READ_QUEUES)
    assert () == notes_of(root, READ)
    assert queue_database(root, OsFileSystem()) is None


def test_a_rocksdb_among_queues_is_not_moved_away_by_new_queues(root: Path) -> None:
    add_rocksdb(root / "consumequeue_rocksdb")
    assert 1 == len(notes_of(root, REPLACE))

    add_rocksdb(root / "consumequeue")
    with pytest.raises(UnsupportedStoreError, match="--topic"):
        notes_of(root, REPLACE)
    shutil.rmtree(root / "consumequeue" / "orders")
    with pytest.raises(UnsupportedStoreError, match="Leave --replace out"):
        notes_of(root, REPLACE)


def test_topics_named_like_files_of_a_rocksdb_are_topics(root: Path) -> None:
    for topic in ("CURRENT", "MANIFEST-000001"):
        (root / "consumequeue" / topic / "0").mkdir(parents=True)

    assert () == notes_of(root)


# ---- what does no harm


def test_a_rocksdb_with_an_index_or_timers_is_noted(root: Path) -> None:
    add_rocksdb(root / "rocksdbstore")

    (note,) = notes_of(root)
    assert str(root / "rocksdbstore") in note
    assert () == notes_of(root, READ)


def test_compacted_topics_are_noted(root: Path) -> None:
    (root / "compaction" / "compactionLog" / "orders" / "0").mkdir(parents=True)

    (note,) = notes_of(root)
    assert "cleanup.policy=COMPACTION" in note
    assert () == notes_of(root, READ)


@pytest.mark.parametrize("use", USES)
def test_tiered_storage_is_noted_for_readers_of_the_log_too(root: Path, use: StoreUse) -> None:
    (root / "config").mkdir()
    (root / "config" / "tieredStoreMetadata.json").write_text("{}")

    (note,) = notes_of(root, use)
    assert "tiered storage" in note
    assert note in Log.of(root).notes
