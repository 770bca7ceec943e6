# SPDX-License-Identifier: Apache-2.0
"""URLs of stores: the file systems that they stand for, and those that are rejected."""

from __future__ import annotations

import pytest

from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.remote.storage import Storage, parse_url
from store_core.files.remote.storage_settings import NO_SETTINGS


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


@pytest.mark.parametrize("url", ["s3://user:password@bucket/a", "s3://bucket/a?region=x"])
def test_url_with_settings_in_it_is_rejected(url: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_url(url, NO_SETTINGS)
    assert "password@" not in str(caught.value)


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
