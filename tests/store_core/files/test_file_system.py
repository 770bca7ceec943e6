# SPDX-License-Identifier: Apache-2.0
"""The operating system's files as the store uses them, and the fakes that stand in for them."""

from __future__ import annotations

import errno
import os
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from store_core.files.file_system import OsFileSystem, OsOpenFile, UnsyncedNames, write_all
from store_core.files.machine import SystemClock
from tests.short_lived import run_python
from tests.store_core.fakes import SyncingDisk, descriptors

if TYPE_CHECKING:
    from pathlib import Path

    from tests.store_core.fakes import FaultyFileSystem


@pytest.fixture
def system() -> OsFileSystem:
    return OsFileSystem()


@pytest.mark.parametrize("has_unnamed", [True, False])
def test_a_made_file_is_zeros_of_its_size(
    has_unnamed: bool, system: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_unnamed:
        monkeypatch.setattr("store_core.files.file_system._UNNAMED", 0)
    before = descriptors()
    file = system.make(tmp_path / "f", 10_000)
    file.write(memoryview(b"one"), 0)
    file.close()

    assert b"one".ljust(10_000, b"\0") == (tmp_path / "f").read_bytes()
    with pytest.raises(FileExistsError):
        system.make(tmp_path / "f", 10_000)
    with pytest.raises(FileNotFoundError):
        system.make(tmp_path / "none" / "f", 10_000)
    assert ["f"] == system.names(tmp_path)
    assert before == descriptors()


def test_a_made_file_has_its_size_before_it_has_its_name(
    system: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    grow = OsOpenFile.grow

    def watched(file: OsOpenFile, size: int) -> None:
        seen.append(system.names(tmp_path))
        grow(file, size)
        seen.append(system.names(tmp_path))

    monkeypatch.setattr(OsOpenFile, "grow", watched)
    system.make(tmp_path / "f", 10_000)

    assert [[], []] == seen
    assert 10_000 == (tmp_path / "f").stat().st_size


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.ENOENT, errno.EOPNOTSUPP])
def test_a_file_is_made_where_it_can_not_be_named_later(
    refusal: int, system: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr("os.link", refuse)
    system.make(tmp_path / "f", 100).close()

    assert 100 == (tmp_path / "f").stat().st_size


def test_a_file_that_has_no_room_is_not_there(
    system: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(OsOpenFile, "grow", full)
    for unnamed in (True, False):
        if not unnamed:
            monkeypatch.setattr("store_core.files.file_system._UNNAMED", 0)
        with pytest.raises(OSError, match="No space"):
            system.make(tmp_path / "f", 100)

    assert [] == system.names(tmp_path)


def test_a_file_closes_with_its_last_reference(system: OsFileSystem, tmp_path: Path) -> None:
    before = descriptors()
    file = system.open(tmp_path / "f", create=True)
    assert descriptors() != before
    del file

    assert descriptors() == before


@pytest.mark.parametrize("pieces", [1, 7, 4096])
def test_a_write_in_pieces_is_a_whole_write(
    system: OsFileSystem, tmp_path: Path, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = system.open(tmp_path / "f", create=True)
    data = bytes(range(256)) * 10
    whole = file.write
    monkeypatch.setattr(file, "write", lambda view, offset: whole(view[:pieces], offset))
    write_all(file, memoryview(data), 3)

    assert (tmp_path / "f").read_bytes() == bytes(3) + data


def test_a_large_write_is_made_in_pieces(system: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = system.open(tmp_path / "f", create=True)
    data, whole = bytes(range(256)) * 10_000, file.write
    sizes: list[int] = []

    def write(view: memoryview, offset: int) -> int:
        sizes.append(len(view))
        return whole(view, offset)

    monkeypatch.setattr(file, "write", write)
    write_all(file, memoryview(data), 0)

    assert sizes == [1 << 20, 1 << 20, 2_560_000 - (2 << 20)]
    assert (tmp_path / "f").read_bytes() == data


def test_a_write_that_takes_nothing_is_an_error(
    system: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = system.open(tmp_path / "f", create=True)
    monkeypatch.setattr(file, "write", lambda _view, _offset: 0)
    with pytest.raises(OSError, match="took 0"):
        write_all(file, memoryview(b"x"), 0)


def test_what_is_not_there_is_nothing(system: OsFileSystem, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    assert system.status(tmp_path / "no") is None
    assert system.status(tmp_path / "file" / "below") is None
    assert system.names(tmp_path / "no") == []
    assert system.used_percent(tmp_path / "no") == -1
    system.remove(tmp_path / "no")
    system.remove_directory(tmp_path / "no")


def test_a_status_tells_size_time_kind_and_identity(system: OsFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    os.utime(path, ns=(0, 1_700_000_000_123_999_999))
    (tmp_path / "g").hardlink_to(path)
    status, linked = system.status(path), system.status(tmp_path / "g")
    directory = system.status(tmp_path)

    assert status is not None
    assert (status.size, status.modified_ms, status.is_directory) == (3, 1_700_000_000_123, False)
    assert linked is not None
    assert linked.identity == status.identity
    assert directory is not None
    assert directory.is_directory


def test_directories_are_made_durably_one_below_the_other(disk: FaultyFileSystem, tmp_path: Path) -> None:
    disk.make_directories(tmp_path / "a" / "b")
    disk.make_directories(tmp_path / "a" / "b")

    assert [name for call, name in disk.calls if call == "sync_directory"] == [tmp_path.name, "a"]


def test_a_directory_that_is_not_empty_stays(system: OsFileSystem, tmp_path: Path) -> None:
    system.make_directories(tmp_path / "a" / "b")
    system.remove_directory(tmp_path / "a")
    system.remove_directory(tmp_path / "a" / "b")

    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("blocks", "free", "available", "percent"),
    [
        (100, 100, 100, 0),
        (100, 25, 25, 75),
        (1000, 249, 249, 76),
        (100, 20, 10, 89),
        (100, 0, 0, 100),
        (0, 0, 0, -1),
    ],
)
def test_used_space_is_rounded_up_and_leaves_out_roots_reserve(
    system: OsFileSystem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    blocks: int,
    free: int,
    available: int,
    percent: int,
) -> None:
    found = SimpleNamespace(f_blocks=blocks, f_bfree=free, f_bavail=available, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _: found)

    assert system.used_percent(tmp_path) == percent


def test_a_limit_of_the_system_is_an_error_and_no_signal(tmp_path: Path) -> None:
    """The system itself refuses a write here, since a really full disk is not available."""
    program = f"""
import resource, signal
from pathlib import Path
from store_core.files.machine import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.files.mapped_file import MappedFile
from store_core.format.message import AppendMessageResult, AppendMessageStatus
path = Path({str(tmp_path)!r}) / "00000000000000000000"
file = MappedFile.create(path, 1 << 20, OsFileSystem())
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
def callback(offset, view, room):
    view[:] = b"x" * room
    return AppendMessageResult(AppendMessageStatus.PUT_OK, offset, room)
result = file.append_with(callback)
print(result.status.name, file.write_error.errno, file.wrote_position, any(path.read_bytes()))
"""
    assert run_python(program, tmp_path).split() == ["UNKNOWN_ERROR", str(errno.EFBIG), "0", "False"]


def test_the_machines_clock_goes_on() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0)
    event = threading.Event()

    assert not clock.wait(event, 0)
    event.set()
    assert clock.wait(event, None)
    assert clock.monotonic() >= before
    assert clock.now_ms() > 1_700_000_000_000


# ---- names of new directories


def test_added_directories_are_synced_with_the_first_below_them(tmp_path: Path) -> None:
    disk = SyncingDisk()
    for path in (tmp_path / "a" / "b" / "c", tmp_path / "a" / "b" / "d"):
        disk.add_directories(path)
    before = [*disk.synced]
    for path in (tmp_path / "a" / "b" / "c", tmp_path / "a" / "b" / "d"):
        disk.sync_directory(path)

    assert before == []
    assert disk.synced == ["c", "b", "a", tmp_path.name, "d"]


def test_a_name_that_came_later_is_synced_once_more(tmp_path: Path) -> None:
    disk = SyncingDisk()
    disk.add_directories(tmp_path / "a" / "b")
    disk.sync_directory(tmp_path / "a" / "b")
    disk.synced.clear()
    disk.add_directories(tmp_path / "a" / "c")
    disk.sync_directory(tmp_path / "a" / "c")

    assert disk.synced == ["c", "a"]


def test_a_name_that_is_made_during_a_sync_is_still_due(tmp_path: Path) -> None:
    names, synced = UnsyncedNames(), list[str]()
    names.make(tmp_path / "a")

    def sync_one(directory: Path) -> None:
        synced.append(directory.name)
        if len(synced) == 1:
            names.make(tmp_path / "b")

    for _ in range(3):
        if tmp_path in names:
            names.sync(tmp_path / "a", sync_one)

    assert synced == ["a", tmp_path.name, "a", tmp_path.name]
    assert tmp_path not in names


def test_a_name_whose_sync_failed_is_still_due(tmp_path: Path) -> None:
    disk = SyncingDisk()
    disk.add_directories(tmp_path / "a" / "b")
    disk.failing = tmp_path.name
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync_directory(tmp_path / "a" / "b")
    disk.failing = None
    disk.synced.clear()
    disk.sync_directory(tmp_path / "a" / "b")

    assert disk.synced == ["b", tmp_path.name]


def test_a_directory_that_was_added_is_made_durable_when_that_is_asked_for(tmp_path: Path) -> None:
    disk = SyncingDisk()
    disk.add_directories(tmp_path / "a" / "b")
    disk.make_directories(tmp_path / "a" / "b")
    disk.make_directories(tmp_path / "a" / "b")

    assert disk.synced == ["a", tmp_path.name]
