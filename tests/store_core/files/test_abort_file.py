# SPDX-License-Identifier: Apache-2.0
"""The file that distinguishes a clean shutdown from a crash."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from store_core.files.store_lock import AbortFile

if TYPE_CHECKING:
    from pathlib import Path

    from tests.store_core.fakes import FaultyFileSystem


def content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir()}


def test_a_fresh_store_has_none(tmp_path: Path, disk: FaultyFileSystem) -> None:
    assert not AbortFile(tmp_path, disk).exists


@pytest.mark.parametrize("release", ["4.3", "4.9"])
def test_release_4_leaves_it_empty(tmp_path: Path, disk: FaultyFileSystem, release: str) -> None:
    AbortFile(tmp_path / "store", disk).create(4711, release)

    assert content(tmp_path / "store") == {"abort": b""}


def test_release_5_writes_the_process_and_an_empty_backup(tmp_path: Path, disk: FaultyFileSystem) -> None:
    AbortFile(tmp_path, disk).create(4711)

    assert content(tmp_path) == {"abort": b"4711", "abort.bak": b""}


def test_after_a_crash_the_backup_names_the_dead_process(tmp_path: Path, disk: FaultyFileSystem) -> None:
    AbortFile(tmp_path, disk).create(123456)
    again = AbortFile(tmp_path, disk)

    assert again.exists
    again.create(7)
    assert content(tmp_path) == {"abort": b"7", "abort.bak": b"123456"}


def test_a_clean_end_removes_it_and_leaves_the_backup(tmp_path: Path, disk: FaultyFileSystem) -> None:
    abort = AbortFile(tmp_path, disk)
    for process in (123456, 7):
        abort.create(process)
        abort.remove()

    assert not abort.exists
    assert content(tmp_path) == {"abort.bak": b""}
    abort.remove()


def test_a_crash_is_seen_from_the_moment_the_name_is_on_disk(tmp_path: Path, disk: FaultyFileSystem) -> None:
    disk.fail("write", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        AbortFile(tmp_path, disk).create(4711)

    assert AbortFile(tmp_path, disk).exists
    assert [call for call, _ in disk.calls if call in {"write", "sync_directory"}] == ["sync_directory", "write"]


def test_content_of_any_length_is_survived(tmp_path: Path, disk: FaultyFileSystem) -> None:
    (tmp_path / "abort").write_bytes(b"9" * 100_000)
    AbortFile(tmp_path, disk).create(7)

    assert (tmp_path / "abort").read_bytes() == b"7"
    assert (tmp_path / "abort.bak").read_bytes() == b"9" * 4096
