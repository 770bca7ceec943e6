# SPDX-License-Identifier: Apache-2.0
"""Which paths are roots, parts or other kinds of stores; which log a configuration means; where the next file goes."""

from __future__ import annotations

import errno
import pickle
import shutil
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from store_core.errors import InvalidOptionError, SegmentLayoutError, UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.mapped_file import file_name_of
from store_core.files.mapped_file_queue import AllocateMappedFileService, MappedFileQueue
from store_core.files.segment_listing import SegmentPaths
from store_core.files.store_kind import StoreUse, check_is_root, check_store_kind, queue_database
from store_core.files.store_path import ConfiguredRoot, lock_places, log_directories, meant_log, roots_to_lock
from store_core.snapshot.log import Log
from tests.store_core.files.store_kinds import SEGMENT_SIZE, add_dledger, add_rocksdb, every_file, ordinary_store

if TYPE_CHECKING:
    from tests.store_core.fakes import FakeClock, FaultyFileSystem


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


@pytest.mark.parametrize(
    ("below", "what"),
    [
        ("commitlog", "is the commit log of"),
        (f"commitlog/{SEGMENT_SIZE:020d}", "lies in the commit log of"),
        ("commitlog/new", "lies in the commit log of"),
        ("consumequeue", "is the consume queues of"),
        ("consumequeue/orders", "lies in the consume queues of"),
        ("consumequeue/orders/0", "lies in the consume queues of"),
        (f"consumequeue/orders/0/{0:020d}", "lies in the consume queues of"),
        ("consumequeue_ext", "is the extensions of consume queues of"),
        ("batchconsumequeue/orders", "lies in the batch consume queues of"),
        ("index", "is the key index of"),
        ("index/20260101000000000", "lies in the key index of"),
        ("config", "is the broker's configuration of"),
    ],
)
def test_a_part_of_a_store_is_refused_and_its_root_is_named(root: Path, below: str, what: str) -> None:
    with pytest.raises(InvalidOptionError) as error:
        check_is_root(root / below, OsFileSystem())

    assert str(error.value).startswith(f"{root / below} {what} the store at {root}:")
    assert str(error.value).endswith(f"Give {root}")


def test_a_commit_log_alone_has_a_root_too(root: Path) -> None:
    (root / "checkpoint").unlink()
    (root / "consumequeue").rename(root.parent / "elsewhere")

    with pytest.raises(InvalidOptionError, match=f"Give {root}$"):
        check_is_root(root / "commitlog", OsFileSystem())


def test_files_of_an_earlier_opening_do_not_make_a_root_of_a_commit_log(root: Path) -> None:
    for name in ("checkpoint", "lock", "abort.bak"):
        (root / "commitlog" / name).touch()

    with pytest.raises(InvalidOptionError, match=f"Give {root}$"):
        check_is_root(root / "commitlog", OsFileSystem())


def test_a_relative_path_is_a_part_of_a_store_as_well(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "commitlog")

    with pytest.raises(InvalidOptionError, match=f"Give {root}$"):
        check_is_root(Path(), OsFileSystem())


def test_segments_in_a_directory_of_another_name_are_refused_unless_configuration_puts_them_there(root: Path) -> None:
    segments = root.parent / "segments"
    (root / "commitlog").rename(segments)

    with pytest.raises(InvalidOptionError, match=f"found {0:020d}"):
        check_is_root(segments, OsFileSystem())
    check_is_root(segments, OsFileSystem(), [segments])


def test_a_file_is_no_root(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InvalidOptionError, match="is a file: expected a store's root"):
        check_is_root(tmp_path / "file", OsFileSystem())


@pytest.mark.parametrize(
    "name", ["store.tar", "store.tar.gz", "store.tgz", "store.tar.zst", "store.tar.lz4", "a.TAR", "a.Tgz"]
)
def test_an_archive_is_no_root_and_is_to_be_unpacked(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()

    with pytest.raises(UnsupportedStoreError, match=f"{name} is an archive: expected a store's directory.* Unpack it"):
        check_is_root(tmp_path / name, OsFileSystem())


@pytest.mark.parametrize("name", ["", "new", "index", "config", "commitlog", "consumequeue", "a/b/c"])
def test_a_root_may_have_any_name_and_need_not_be_there(tmp_path: Path, name: str) -> None:
    check_is_root(tmp_path / name, OsFileSystem())
    ordinary_store(tmp_path / name / "more" if name == "commitlog" else tmp_path / name)
    check_is_root(tmp_path / name, OsFileSystem())


@pytest.mark.usefixtures("root")
def test_a_url_that_became_a_path_is_refused_before_a_directory_is_made(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedStoreError, match="looks like a URL"):
        check_is_root(tmp_path / "s3:" / "bucket" / "store", OsFileSystem())


def test_a_directory_with_a_colon_is_a_root(tmp_path: Path) -> None:
    root = ordinary_store(tmp_path / "disk-1:" / "store")

    check_is_root(root, OsFileSystem())


SIZE = 1024
A, B, C = Path("/a/log"), Path("/b/log"), Path("/c/log")


def spread(queue: MappedFileQueue, files: int) -> list[str]:
    """Fill this number of files, and return their directories."""
    for _ in range(files):
        file = queue.get_last_mapped_file()
        assert file is not None
        file.append(bytes(SIZE))
    return [file.path.parent.name for file in queue.mapped_files]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("/a/log", (A,)),
        ("/a/log,/b/log", (A, B)),
        (" /a/log , /b/log ,", (A, B)),
        ("", ()),
    ],
)
def test_several_paths_are_written_with_commas(text: str, paths: tuple[Path, ...]) -> None:
    assert SegmentPaths.parse(text).paths == paths


def test_read_only_and_full_directories_get_no_files() -> None:
    assert SegmentPaths((A, B, C), (B,), lambda: (A,)).candidates() == [C]


def test_when_all_are_full_all_that_are_writable_are_used() -> None:
    assert SegmentPaths((A, B, C), (B,), lambda: (A, C)).candidates() == [A, C]


def test_read_only_paths_alone_take_no_files() -> None:
    with pytest.raises(OSError, match="all commit log paths are read-only") as caught:
        SegmentPaths((A,), (A,)).next_files(0, SIZE)

    assert caught.value.errno == errno.EROFS


def test_a_log_is_spread_and_loaded_again(tmp_path: Path, disk: FaultyFileSystem) -> None:
    paths = SegmentPaths((tmp_path / "a", tmp_path / "b", tmp_path / "c"))
    queue = MappedFileQueue(paths, SIZE, disk)

    assert spread(queue, 5) == ["a", "b", "c", "a", "b"]

    again = MappedFileQueue(SegmentPaths((tmp_path / "c", tmp_path / "b"), (tmp_path / "a",)), SIZE, disk)
    again.load()

    assert [file.file_from_offset for file in again.mapped_files] == [0, 1024, 2048, 3072, 4096]
    assert spread(again, 3)[5:] == ["c", "b", "c"]


def test_a_directory_that_fills_up_is_left_out_from_then_on(tmp_path: Path, disk: FaultyFileSystem) -> None:
    full: set[Path] = set()
    queue = MappedFileQueue(SegmentPaths((tmp_path / "a", tmp_path / "b"), (), lambda: full), SIZE, disk)

    assert spread(queue, 2) == ["a", "b"]
    full.add(tmp_path / "a")
    assert spread(queue, 2) == ["a", "b", "b", "b"]
    full.add(tmp_path / "b")
    assert spread(queue, 2) == ["a", "b", "b", "b", "a", "b"]


def test_two_files_of_one_name_are_refused(tmp_path: Path, disk: FaultyFileSystem) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / file_name_of(0)).write_bytes(bytes(SIZE))
    queue = MappedFileQueue(SegmentPaths((tmp_path / "a", tmp_path / "b")), SIZE, disk)
    with pytest.raises(SegmentLayoutError, match="two files claim offset"):
        queue.load()


def test_a_file_made_ahead_in_a_directory_that_filled_up_is_taken_back(
    tmp_path: Path, disk: FaultyFileSystem, clock: FakeClock
) -> None:
    full: set[Path] = set()
    service = AllocateMappedFileService(disk, clock)
    clock.while_waiting = service.run_once
    paths = SegmentPaths((tmp_path / "a", tmp_path / "b"), (), lambda: full)
    queue = MappedFileQueue(paths, SIZE, disk, service)

    assert spread(queue, 1) == ["a"]
    assert (tmp_path / "b" / file_name_of(SIZE)).exists()
    full.add(tmp_path / "b")
    assert spread(queue, 1) == ["a", "a"]
    assert not (tmp_path / "b" / file_name_of(SIZE)).exists()
