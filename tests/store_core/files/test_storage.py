# SPDX-License-Identifier: Apache-2.0
"""URLs of stores: the file systems that they stand for, and those that are rejected."""

from __future__ import annotations

import sys

import pytest

from store_core.errors import InvalidOptionError, StoreAccessError, UnsupportedStoreError
from store_core.files import storage as storage_module
from store_core.files.storage import NO_SETTINGS, Storage, StorageSettings, parse_url


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


def test_url_shows_no_setting() -> None:
    found = parse_url("s3a://bucket/a/", NO_SETTINGS)
    assert found is not None
    assert found.url == "s3://bucket/a"


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
