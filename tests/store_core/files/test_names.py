# SPDX-License-Identifier: Apache-2.0
"""Which paths can be a store's root, and which are part of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_kind import check_is_root
from tests.store_core.files.store_kinds import SEGMENT_SIZE, ordinary_store


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
