# SPDX-License-Identifier: Apache-2.0
"""URLs of stores: the file systems that they stand for, settings, those that are rejected, and paths in them."""

from __future__ import annotations

import pickle
import shutil
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import fsspec
import pytest

from store_core import read_messages
from store_core.errors import (
    InvalidOptionError,
    StoreAccessError,
    StoreError,
    StoreNotFoundError,
    UnsupportedStoreError,
)
from store_core.files import storage as storage_module
from store_core.files.file_system import OsFileSystem
from store_core.files.storage import NO_SETTINGS, Storage, StorageSettings, parse_url
from store_core.files.store_kind import check_is_no_url
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import located, path_of, places_of
from store_core.files.url_path import UrlPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.golden_stores import UnpackedStore


@pytest.mark.parametrize(
    ("url", "scheme", "authority", "relative"),
    [
        ("s3://bucket/a/store/", "s3", "bucket", "a/store"),
        ("S3A://bucket/store", "s3", "bucket", "store"),
        ("hdfs://host:8020/a", "hdfs", "host:8020", "a"),
        ("hdfs://user@host/a", "hdfs", "user@host", "a"),
        ("gs://bucket", "gs", "bucket", ""),
        ("abfs://container@account.dfs.core.windows.net/a", "abfs", "container@account.dfs.core.windows.net", "a"),
    ],
)
def test_url_is_taken_apart(url: str, scheme: str, authority: str, relative: str) -> None:
    found = parse_url(url, NO_SETTINGS)
    assert found is not None
    assert (found.storage, found.relative) == (Storage(scheme, authority, NO_SETTINGS), relative)


@pytest.mark.parametrize("path", ["/data/store", "file:///data/store", "data/store", "C:/data", "s3:/data", ""])
def test_path_is_none(path: str) -> None:
    assert parse_url(path, NO_SETTINGS) is None


@pytest.mark.parametrize(
    "url",
    [
        "s3://user:password@bucket/a",
        "s3://user:pass/password@bucket/a",
        "s3://user:/password@bucket",
        "s3://user:pass?password@bucket/a",
        "s3://bucket/a?region=x",
        "s3://bucket?region=password@",
    ],
)
def test_url_with_settings_in_it_is_rejected(url: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_url(url, NO_SETTINGS)
    assert "password@" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [("hdfs://host:8020/a@b", "a@b"), ("s3://bucket/a@b:c", "a@b:c"), ("s3://bucket:/a", "a")],
)
def test_url_whose_path_looks_like_a_password_s_end_is_taken(url: str, path: str) -> None:
    found = parse_url(url, NO_SETTINGS)
    assert found is not None
    assert found.url.endswith(f"/{path}")


def test_file_system_is_opened_once() -> None:
    storage = Storage("memory", "x", NO_SETTINGS)
    assert storage.opened() is storage.opened()


def test_unknown_scheme_is_named() -> None:
    with pytest.raises(UnsupportedStoreError, match="nosuch://x"):
        Storage("nosuch", "x", NO_SETTINGS).opened()


@pytest.mark.parametrize(
    ("authority", "settings"), [("host:8020", {}), ("someone@host:8020", {}), ("host:8020", {"user": "someone"})]
)
def test_hadoop_without_its_library_names_the_ways_to_read_it(
    authority: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_missing(*_: object, **__: object) -> None:
        raise OSError("Unable to load libhdfs")

    monkeypatch.setattr(storage_module, "_of_pyarrow", is_missing)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UnsupportedStoreError, match=r"HADOOP_HOME.*hdfs-native"):
        Storage("hdfs", authority, StorageSettings.of(settings)).opened()
    if authority == "host:8020" and not settings:
        with pytest.raises(UnsupportedStoreError, match=r"another client of HDFS.*local disk"):
            Storage("hdfs", authority, NO_SETTINGS).opened()


def test_other_errors_of_hadoop_are_no_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_refused(*_: object, **__: object) -> None:
        raise OSError("connection refused")

    monkeypatch.setattr(storage_module, "_of_pyarrow", is_refused)
    with pytest.raises(StoreAccessError, match="connection refused"):
        Storage("hdfs", "elsewhere", NO_SETTINGS).opened()


HIDDEN: Final = "nobody-may-see-this"


def test_settings_are_the_same_in_any_order_and_case() -> None:
    assert StorageSettings.of({"Region": "x", "scheme": "http"}) == StorageSettings.of(
        {"scheme": "http", "region": "x"}
    )


def test_values_become_text() -> None:
    settings = StorageSettings.of({"anonymous": True, "connect_timeout": 5})
    types: dict[str, type] = {"anonymous": bool, "connect_timeout": float}
    assert settings.arguments(types) == {"anonymous": True, "connect_timeout": 5.0}


@pytest.mark.parametrize(
    ("settings", "types", "says"),
    [
        ({"anonymous": HIDDEN}, {"anonymous": bool}, r"storage\.anonymous: expected true or false"),
        ({"connect_timeout": HIDDEN}, {"connect_timeout": float}, r"storage\.connect_timeout: expected a number"),
        ({"secret_kye": HIDDEN}, {"secret_key": str}, "did you mean 'secret_key'"),
        ({"token": HIDDEN}, {}, "the settings are none"),
    ],
)
def test_wrong_settings_are_rejected_without_their_values(
    settings: dict[str, str], types: dict[str, type], says: str
) -> None:
    with pytest.raises(InvalidOptionError, match=says) as caught:
        StorageSettings.of(settings).arguments(types)
    assert HIDDEN not in str(caught.value)


@pytest.mark.parametrize("settings", [{"a b": "x"}, {"token": [HIDDEN]}, {"token": None}])
def test_names_and_values_of_other_kinds_are_rejected(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        StorageSettings.of(settings)
    assert HIDDEN not in str(caught.value)


def test_secrets_are_hidden_in_errors_of_others_and_names_of_places_are_not() -> None:
    settings = StorageSettings.of({"secret_key": HIDDEN, "region": "eu-west-1", "account_key": "abc"})
    assert settings.hidden_in(f"{HIDDEN} in eu-west-1, abc") == "*** in eu-west-1, abc"
    assert HIDDEN not in repr(settings)


@pytest.mark.parametrize("scheme", ["file://", "FILE://", "file:", "file://localhost", "local://"])
def test_names_of_the_local_disk_are_the_path(scheme: str, golden: Callable[[str], UnpackedStore]) -> None:
    root = golden("5.3.3/tx").root
    assert read_messages(root).read_all() == read_messages(f"{scheme}{root}").read_all()


@pytest.mark.parametrize(
    "form", ["zip://{0}", "zip://store::file://{0}", "tar://{0}", "simplecache::file://{0}", "http://127.0.0.1:9/{0}"]
)
def test_other_names_are_refused_with_the_name(
    form: str, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    path = shutil.make_archive(str(tmp_path / "copy"), "zip", golden("5.3.3/tx").path, "store")
    url = form.format(path)
    with pytest.raises(StoreError) as caught:
        read_messages(url)
    assert form.split(":", maxsplit=1)[0] in str(caught.value)


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
