# SPDX-License-Identifier: Apache-2.0
"""Sync of a file, and of many as one file system: its name once if it is new, and nothing after a failure."""

from __future__ import annotations

import ctypes
import errno
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from store_core.files import file_sync
from store_core.files.file_sync import FileSync, WholeSync, sync_directories, sync_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.files.file_system import OpenFile
    from tests.store_core.fakes import FaultyFileSystem


@pytest.fixture
def file(tmp_path: Path, disk: FaultyFileSystem) -> OpenFile:
    return disk.open(tmp_path / "0", create=True)


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


class _System:
    """A system whose calls are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mounts: Path) -> None:
        self.mounts = mounts
        self.calls: list[str] = []
        self.error = 0
        self.is_there = True
        monkeypatch.setattr(file_sync, "_MOUNTS", mounts)
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(**self._library()))
        monkeypatch.setattr(ctypes, "get_errno", lambda: self.error)
        monkeypatch.setattr(os, "fsync", lambda _: self.calls.append("directory"))
        monkeypatch.setattr(os, "fdatasync", lambda _: self.calls.append("file"))

    def _library(self) -> dict[str, object]:
        def syncfs(_: int) -> int:
            self.calls.append("all")
            return -1 if self.error else 0

        return {"syncfs": syncfs} if self.is_there else {}

    def mount(self, device: int, *kinds: str) -> None:
        """Say which file systems are mounted from a device."""
        named = f"{os.major(device)}:{os.minor(device)}"
        lines = [f"22 27 {named} / /data rw,relatime shared:1 - {kind} /dev/data rw\n" for kind in kinds]
        self.mounts.write_text(f"21 27 0:9999 / /proc rw - proc proc rw\n{''.join(lines)}")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_System]:
    file_sync._syncfs.cache_clear()
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Linux", release="6.1.0-13-amd64"))
    found = _System(monkeypatch, tmp_path / "mounts")
    found.mount(tmp_path.stat().st_dev, "ext4")
    yield found
    file_sync._syncfs.cache_clear()


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(file_sync, "_MOST_SINGLE", 2)
    root = tmp_path / "many"
    for name in ("a", "b", "c"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_bytes(b"data")
    return root


def _sync(root: Path) -> None:
    with WholeSync(root) as whole:
        sync_files(root, whole)
    sync_directories(root)


def test_many_files_are_synced_at_once(system: _System, many: Path) -> None:
    _sync(many)

    assert system.calls == ["all", "all"]


def test_few_files_are_synced_singly(system: _System, many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sync, "_MOST_SINGLE", 4)

    _sync(many)

    assert system.calls == ["file"] * 3 + ["directory"] * 4


def test_files_that_were_written_before_are_synced_singly(system: _System, many: Path) -> None:
    sync_files(many)

    assert system.calls == ["file"] * 3


@pytest.mark.parametrize("kinds", [("nfs4",), ("overlay",), ("fuse.s3fs",), ("btrfs",), ("ext4", "other"), ()])
def test_file_systems_that_may_hide_an_error_are_synced_file_by_file(
    system: _System, many: Path, kinds: tuple[str, ...]
) -> None:
    system.mount(many.stat().st_dev, *kinds)

    _sync(many)

    assert system.calls == ["file"] * 3 + ["directory"] * 4


@pytest.mark.parametrize("release", ["5.7.19", "4.18.0-553.el8.x86_64", "custom"])
def test_releases_of_linux_that_tell_no_error_sync_file_by_file(
    system: _System, many: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Linux", release=release))

    _sync(many)

    assert "all" not in system.calls


@pytest.mark.parametrize("missing", ["the call", "the list of mounts"])
def test_without_what_it_takes_files_are_synced_singly(system: _System, many: Path, missing: str) -> None:
    if missing == "the call":
        system.is_there = False
    else:
        system.mounts.unlink()

    _sync(many)

    assert "all" not in system.calls


def test_an_error_is_raised_and_not_tried_in_another_way(system: _System, many: Path) -> None:
    system.error = errno.EIO

    with WholeSync(many) as whole, pytest.raises(OSError, match="Input/output error") as raised:
        sync_files(many, whole)

    assert (raised.value.errno, raised.value.filename, system.calls) == (errno.EIO, str(many), ["all"])


@pytest.mark.usefixtures("system")
def test_the_file_system_is_open_only_in_the_block(many: Path) -> None:
    whole = WholeSync(many)

    assert not whole.sync()
    with whole:
        assert whole.sync()
    assert not whole.sync()


def test_the_real_call_syncs_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sync, "_is_reporting", lambda _: True)

    with WholeSync(tmp_path) as whole:
        (tmp_path / "file").write_bytes(b"data")
        assert whole.sync() is (file_sync._syncfs() is not None)
