# SPDX-License-Identifier: Apache-2.0
"""Which paths can be a store's root, which are part of a store, and which of several directories gets the next file."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from store_core.errors import InvalidOptionError, SegmentLayoutError, UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.mapped_file_queue import AllocateMappedFileService, MappedFileQueue
from store_core.files.segment_file import file_name_of
from store_core.files.segment_paths import SegmentPaths
from store_core.files.store_kind import check_is_root
from tests.store_core.files.store_kinds import SEGMENT_SIZE, ordinary_store

if TYPE_CHECKING:
    from tests.store_core.fakes import FakeClock, FaultyFileSystem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return ordinary_store(tmp_path / "store")


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


@pytest.mark.parametrize("name", ["store.tar", "store.tar.gz", "store.tgz", "store.tar.zst", "store.tar.lz4"])
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


def test_files_go_round_the_directories_by_their_index() -> None:
    paths = SegmentPaths((C, A, B))

    assert [paths.next_files(index * SIZE, SIZE)[0].parent for index in range(5)] == [A, B, C, A, B]


def test_the_file_made_ahead_is_where_the_next_one_will_be() -> None:
    paths = SegmentPaths((A, B))
    for offset in range(0, 5 * SIZE, SIZE):
        assert paths.next_files(offset, SIZE)[1] == paths.next_files(offset + SIZE, SIZE)[0]


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
