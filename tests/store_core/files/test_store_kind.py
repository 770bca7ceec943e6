# SPDX-License-Identifier: Apache-2.0
"""Other kinds of stores are recognised by their roots; by which rule a store and a configuration mean one log."""

from __future__ import annotations

import pickle
import shutil
from itertools import product
from pathlib import Path

import pytest

from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.segment_paths import SegmentPaths
from store_core.files.store_kind import StoreUse, check_store_kind, queue_database
from store_core.files.store_path import ConfiguredRoot, lock_places, log_directories, meant_log, roots_to_lock
from store_core.snapshot.log import Log
from tests.store_core.files.store_kinds import add_dledger, add_rocksdb, every_file, ordinary_store

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


OWN = ("missing", "empty", "has segments", "a link to the other")
CONFIGURED = ("none", "own", "other", "own and other", "missing")
READ_ONLY = ("none", "other")
BROKER = ("not said", "this", "another")


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Make another store, whose log is the other one."""
    (tmp_path / "live" / "commitlog").mkdir(parents=True)
    (tmp_path / "live" / "commitlog" / f"{0:020d}").touch()
    (tmp_path / "live" / "checkpoint").touch()
    return tmp_path


def made(world: Path, own: str) -> Path:
    root = world / "store"
    root.mkdir()
    if own == "a link to the other":
        (root / "commitlog").symlink_to(world / "live" / "commitlog")
    elif own != "missing":
        (root / "commitlog").mkdir()
    if own == "has segments":
        (root / "commitlog" / f"{0:020d}").touch()
    return root


@pytest.mark.parametrize(
    ("own", "configured", "read_only", "broker"), list(product(OWN, CONFIGURED, READ_ONLY, BROKER))
)
def test_the_store_that_was_named_is_what_is_meant(
    world: Path, own: str, configured: str, read_only: str, broker: str
) -> None:
    root, other = made(world, own), world / "live" / "commitlog"
    names = {"none": "", "own": f"{root}/commitlog", "other": f"{other}", "missing": f"{world}/nowhere"}
    names["own and other"] = f"{root}/commitlog,{other}"
    paths = SegmentPaths.parse(names[configured], str(other) if read_only == "other" else "")
    broker_root = {"not said": None, "this": root, "another": world / "live"}[broker]
    log = meant_log(root, paths, broker_root, OsFileSystem())
    found = {path.resolve() for path in log.all_paths}

    has_own = own in {"has segments", "a link to the other"}
    is_own = (root / "commitlog").resolve() in {path.resolve() for path in paths.all_paths}
    if has_own:
        assert (root / "commitlog").resolve() in found
    if has_own and configured != "none" and not is_own:
        assert [root / "commitlog"] == list(log.all_paths)
        assert log.note
        assert log.doubt
    if is_own or (configured == "none" and read_only == "none"):
        assert ("", "") == (log.note, log.doubt)
    if other.resolve() in found and own not in {"has segments", "a link to the other"} and not is_own:
        is_of_other = configured in {"other", "own and other"} or broker == "another"
        assert bool(log.doubt) == is_of_other
    if log.doubt:
        with pytest.raises(InvalidOptionError, match="option storePathCommitLog"):
            log.check_is_certain()
    else:
        log.check_is_certain()


@pytest.mark.parametrize("linked", [False, True])
def test_the_locks_of_a_log_are_those_of_the_roots_above_it(world: Path, linked: bool) -> None:
    root = made(world, "a link to the other" if linked else "has segments")
    elsewhere = world / "disk" / "commitlog"
    live = (world / "live",) if linked else ()

    assert (root, *live) == lock_places(root, [root / "commitlog"], None)
    assert (root, world / "disk") == lock_places(root, [elsewhere, world / "disk" / "more"], None)
    assert (root, world / "disk", world / "live") == lock_places(root, [elsewhere], world / "live")


def test_a_root_keeps_what_it_knows_of_its_log_between_processes(world: Path) -> None:
    root = ConfiguredRoot.of(world / "store", (world / "disk",), None, world / "live", ("a note",))
    again = pickle.loads(pickle.dumps(root))  # noqa: S301 -- our own bytes
    below = pickle.loads(pickle.dumps(root / "index"))  # noqa: S301 -- as above

    assert (root, root.log, root.notes, root.broker_root) == (again, again.log, again.notes, again.broker_root)
    assert (world / "disk",) == log_directories(again)
    assert (world / "store" / "index", Path(world / "store")) == (below, Path(again))
    assert (below / "commitlog",) == log_directories(below)
    assert roots_to_lock(again)[0] == root
