# SPDX-License-Identifier: Apache-2.0
"""Sync of a file: its name once if it is new, and nothing after a failure."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from store_core.files.file_sync import FileSync

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import OpenFile
    from tests.store_core.fakes import FaultyFileSystem


@pytest.fixture
def file(tmp_path: Path, disk: FaultyFileSystem) -> OpenFile:
    return disk.open(tmp_path / "0", create=True)


def test_only_the_first_sync_of_a_new_file_includes_its_directory(
    tmp_path: Path, disk: FaultyFileSystem, file: OpenFile
) -> None:
    sync = FileSync(tmp_path / "0", disk)
    sync.sync(lambda: file)
    assert 0 == disk.count("sync_directory")

    sync.note_creation()
    sync.sync(lambda: file)
    sync.sync(lambda: file)

    assert 1 == disk.count("sync_directory")
    assert 3 == disk.count("sync")


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_no_sync_succeeds_after_one_that_failed(
    tmp_path: Path, disk: FaultyFileSystem, file: OpenFile, operation: str
) -> None:
    sync = FileSync(tmp_path / "0", disk)
    sync.note_creation()
    disk.fail(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        sync.sync(lambda: file)
    syncs = disk.count("sync")
    with pytest.raises(OSError, match="an earlier flush failed") as caught:
        sync.sync(lambda: file)

    assert (errno.EIO, str(tmp_path / "0")) == (caught.value.errno, caught.value.filename)
    assert syncs == disk.count("sync")


def test_a_file_that_can_not_be_opened_counts_as_not_synced(tmp_path: Path, disk: FaultyFileSystem) -> None:
    sync = FileSync(tmp_path / "0", disk)
    with pytest.raises(FileNotFoundError):
        sync.sync(lambda: disk.open(tmp_path / "0"))

    with pytest.raises(OSError, match="an earlier flush failed"):
        sync.sync(lambda: disk.open(tmp_path / "0", create=True))
