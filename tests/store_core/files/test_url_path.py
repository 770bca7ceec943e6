# SPDX-License-Identifier: Apache-2.0
"""A path in a storage acts as a local one for readers, and lists a storage once."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest

from store_core.errors import InvalidOptionError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.storage import StorageSettings
from store_core.files.store_kind import check_is_no_url
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import located, path_of, places_of
from store_core.files.url_path import UrlPath

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = OsFileSystem()
SECRET = "nobody-sees-this"  # noqa: S105 -- no file system asks for it


@pytest.fixture
def root() -> Iterator[Path]:
    """Provide a directory with a file and a queue's file."""
    memory = fsspec.filesystem("memory")
    memory.pipe("/place/a/checkpoint", b"0123456789")
    memory.pipe("/place/a/consumequeue/T/0/00000000000000000000", bytes(2 << 20) + b"end")
    yield path_of("memory://place/a")
    memory.rm("/place", recursive=True)


def test_paths_below_and_above_are_urls(root: Path) -> None:
    below = root / "consumequeue" / "T"
    assert "memory://place/a/consumequeue/T" == str(below)
    assert root == below.parent.parent == below.parents[1]
    assert root == below.with_name("x").parent.parent
    assert ("T", "a") == (below.name, root.name)
    assert below == root.joinpath("consumequeue", "T") == below.absolute() == below.resolve()
    assert below != Path(str(below))
    assert root.parent.parent == root.parent


def test_what_is_there_is_told(root: Path) -> None:
    file = root / "consumequeue/T/0/00000000000000000000"
    assert (root.is_dir(), root.is_file(), root.exists()) == (True, False, True)
    assert (file.is_dir(), file.is_file(), file.exists()) == (False, True, True)
    assert not (root / "nowhere").exists()
    assert file.stat().st_size == (2 << 20) + 3
    assert stat.S_ISDIR((root / "consumequeue").stat().st_mode)
    assert ["checkpoint", "consumequeue"] == FILES.names(root)
    assert ["0"] == FILES.names(root / "consumequeue" / "T")
    assert [] == FILES.names(root / "index")
    with pytest.raises(NotADirectoryError):
        FILES.names(root / "checkpoint")
    with pytest.raises(FileNotFoundError, match="memory://place/a/nowhere"):
        (root / "nowhere").stat()


def test_files_are_read(root: Path) -> None:
    assert b"0123456789" == (root / "checkpoint").read_bytes()
    large = FILES.open(root / "consumequeue/T/0/00000000000000000000", writable=False)
    assert b"\0end" == large.read(9, (2 << 20) - 1)
    assert b"" == large.read(1, large.size())
    assert large.next_data(5) == (5, large.size())
    large.close()
    small = FILES.open(root / "checkpoint", writable=False)
    assert b"345" == small.read(3, 3)


def test_nothing_is_written(root: Path) -> None:
    for write in (
        (root / "x").mkdir,
        lambda: (root / "x").write_bytes(b""),
        lambda: (root / "x").open("wb"),
        (root / "checkpoint").unlink,
        lambda: FILES.open(root / "x", create=True),
        lambda: FILES.open(root / "checkpoint"),
        lambda: FILES.make_directories(root / "x"),
        lambda: FILES.rename(root / "checkpoint", root / "y"),
        lambda: FILES.remove(root / "checkpoint"),
    ):
        with pytest.raises(UnsupportedStoreError, match="nothing is written"):
            write()
    assert not is_lock_held(root)


def test_a_listing_stays_as_it_was_until_it_is_asked_for_again(root: Path) -> None:
    assert ["checkpoint", "consumequeue"] == FILES.names(root)
    fsspec.filesystem("memory").pipe("/place/a/new", b"")
    assert not (root / "new").exists()
    assert (path_of("memory://place/a") / "new").exists()
    assert isinstance(root, UrlPath)
    assert (root.relisted() / "new").exists()


def test_a_pickle_has_no_listing_and_text_has_no_setting() -> None:
    path = path_of("memory://place/a", StorageSettings.of({"secret": SECRET}))
    assert path == pickle.loads(pickle.dumps(path))  # noqa: S301 -- as tasks get them
    assert SECRET not in f"{path} {path!r} {path.parts}"


def test_who_takes_it_for_a_local_path_finds_a_url(root: Path) -> None:
    with pytest.raises(UnsupportedStoreError, match="looks like a URL"):
        check_is_no_url(Path(root))


def test_urls_and_local_paths_are_not_mixed(root: Path, tmp_path: Path) -> None:
    assert located(tmp_path) == tmp_path
    assert [root] == located(root)
    with pytest.raises(InvalidOptionError, match="expected paths on this machine alone, or URLs alone"):
        located([root, tmp_path])


def test_what_is_not_there_is_named(root: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="no such path: memory://place/b"):
        places_of("memory://place/b")
    assert [root] == places_of(str(root))
