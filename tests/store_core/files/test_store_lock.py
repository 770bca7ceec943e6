# SPDX-License-Identifier: Apache-2.0
"""One writer per store, between two of ours and with a Java process; the file that tells a clean end from a crash."""

from __future__ import annotations

import errno
import pickle
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from store_core.errors import StoreError, StoreLockedError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import LOCK_FILE, AbortFile, StoreLock, is_lock_held
from tests.store_core.fakes import descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.file_system import OpenFile
    from tests.store_core.fakes import FaultyFileSystem


_PROGRAM: Final = Path(__file__).parent / "java" / "HoldLock.java"


def _has_compiler() -> bool:
    java = shutil.which("java")
    if java is None:
        return False
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    return "jdk.compiler" in modules


needs_compiler = pytest.mark.skipif(not _has_compiler(), reason="needs a JDK: `java File.java` compiles")


def is_held(lock: StoreLock) -> bool:
    return lock._file is not None


@contextmanager
def java_lock(root: Path) -> Iterator[str]:
    """Let a Java process try to take the lock; the block gets its output, and the process ends with the block."""
    command = ["java", "-Xshare:auto", str(_PROGRAM), str(root / LOCK_FILE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
        assert process.wait(60) == 0


def test_the_lock_file_holds_what_javas_holds(tmp_path: Path, disk: FaultyFileSystem) -> None:
    with StoreLock(tmp_path / "store", disk) as lock:
        assert is_held(lock)
        assert (tmp_path / "store" / "lock").read_bytes() == b"lock"

    assert not is_held(lock)
    assert (tmp_path / "store" / "lock").exists()


def test_a_second_open_in_the_same_process_is_refused(tmp_path: Path, disk: FaultyFileSystem) -> None:
    with StoreLock(tmp_path, disk), pytest.raises(StoreLockedError, match="another writer of this package"):
        StoreLock(tmp_path, disk).acquire()

    with StoreLock(tmp_path, disk):
        pass


def test_who_asks_for_the_lock_neither_takes_nor_makes_it(tmp_path: Path, disk: FaultyFileSystem) -> None:
    assert not is_lock_held(tmp_path)
    assert not is_lock_held(tmp_path / "no" / "store")
    assert [] == list(tmp_path.iterdir())
    with StoreLock(tmp_path, disk):
        before = descriptors()
        assert is_lock_held(tmp_path)
        assert is_lock_held(tmp_path)
        assert before == descriptors()
    assert not is_lock_held(tmp_path)
    with StoreLock(tmp_path, disk) as lock:
        assert is_held(lock)


def test_a_lock_that_can_not_be_asked_about_counts_as_held(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).symlink_to(LOCK_FILE)

    assert is_lock_held(tmp_path)


def test_a_lock_is_taken_once(tmp_path: Path, disk: FaultyFileSystem) -> None:
    with StoreLock(tmp_path, disk) as lock, pytest.raises(StoreLockedError, match="by this object already"):
        lock.acquire()

    lock.release()
    assert not is_held(lock)


def test_a_lock_that_can_t_be_written_is_not_kept(tmp_path: Path, disk: FaultyFileSystem) -> None:
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left") as caught:
        StoreLock(tmp_path, disk).acquire()

    with StoreLock(tmp_path, disk) as lock:
        assert is_held(lock)
    assert caught.value.errno == errno.ENOSPC


def test_the_lock_of_a_store_that_is_replaced_meanwhile_is_none(
    tmp_path: Path, disk: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, root = disk.open, tmp_path / "store"

    def swapped(path: Path, **how: bool) -> OpenFile:
        file = opened(path, **how)
        root.rename(tmp_path / "replaced")
        StoreLock(root, OsFileSystem()).acquire().release()
        return file

    monkeypatch.setattr(disk, "open", swapped)
    with pytest.raises(StoreLockedError, match="was put in the place of the one"):
        StoreLock(root, disk).acquire()


def test_a_refusal_is_an_error_of_this_package_and_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(StoreLockedError("who and what")))  # noqa: S301 -- our own bytes

    assert isinstance(error, StoreError)
    assert isinstance(error, OSError)
    assert str(error) == "who and what"


def test_who_copies_a_live_store_does_not_drop_its_lock(tmp_path: Path, disk: FaultyFileSystem) -> None:
    with StoreLock(tmp_path / "store", disk):
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        with pytest.raises(StoreLockedError):
            StoreLock(tmp_path / "store", disk).acquire()


def test_a_child_process_can_not_release_it(tmp_path: Path) -> None:
    # A separate interpreter, since forking this one could hang: other tests have left threads in it.
    program = f"""
import os, sys
from pathlib import Path
from store_core.errors import StoreLockedError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
lock = StoreLock(Path({str(tmp_path)!r}), OsFileSystem()).acquire()
child = os.fork()
if child == 0:
    lock.release()
    os._exit(0)
os.waitpid(child, 0)
try:
    StoreLock(Path({str(tmp_path)!r}), OsFileSystem()).acquire()
except StoreLockedError:
    sys.exit(0)
sys.exit("the child released the lock")
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_lock_ends_with_its_process(tmp_path: Path, disk: FaultyFileSystem) -> None:
    program = f"""
import os
from pathlib import Path
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
lock = StoreLock(Path({str(tmp_path)!r}), OsFileSystem()).acquire()
os.kill(os.getpid(), 9)
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, check=False, timeout=60)  # noqa: S603

    assert done.returncode == -9
    assert is_held(StoreLock(tmp_path, disk).acquire())


@pytest.mark.parametrize("operation", ["open", "write", "sync"])
def test_a_failing_disk_leaves_no_lock(tmp_path: Path, disk: FaultyFileSystem, operation: str) -> None:
    disk.fail(operation, errno.EIO)
    lock = StoreLock(tmp_path, disk)
    with pytest.raises(OSError, match="Input/output error"):
        lock.acquire()

    assert not is_held(lock)
    assert is_held(lock.acquire())
    lock.release()


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    before = descriptors()
    with StoreLock(tmp_path, OsFileSystem()), pytest.raises(StoreLockedError):
        StoreLock(tmp_path, OsFileSystem()).acquire()

    assert descriptors() == before


@needs_compiler
@pytest.mark.slow
def test_a_broker_that_runs_is_seen_and_keeps_its_lock(tmp_path: Path) -> None:
    with java_lock(tmp_path):
        assert is_lock_held(tmp_path)
        assert is_lock_held(tmp_path)
    assert not is_lock_held(tmp_path)


@needs_compiler
@pytest.mark.slow
def test_a_broker_that_runs_refuses_us_until_it_ends(tmp_path: Path, disk: FaultyFileSystem) -> None:
    with java_lock(tmp_path) as answer:
        state, process = answer.split()
        with pytest.raises(StoreLockedError, match=f"locked by process {process}"):
            StoreLock(tmp_path, disk).acquire()

    assert state == "locked"
    with StoreLock(tmp_path, disk) as lock:
        assert is_held(lock)


@needs_compiler
@pytest.mark.slow
def test_we_refuse_a_broker_until_we_end(tmp_path: Path, disk: FaultyFileSystem) -> None:
    with StoreLock(tmp_path, disk):
        (tmp_path / LOCK_FILE).read_bytes()  # closing another descriptor of the file would drop a POSIX lock
        with java_lock(tmp_path) as answer:
            assert answer == "refused"

    with java_lock(tmp_path) as answer:
        assert answer.startswith("locked")


def content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir()}


@pytest.mark.parametrize(
    ("release", "files"),
    [("4.3", {"abort": b""}), ("4.9", {"abort": b""}), ("5.3", {"abort": b"4711", "abort.bak": b""})],
)
def test_a_store_in_use_has_the_files_of_its_release_and_a_fresh_one_none(
    tmp_path: Path, disk: FaultyFileSystem, release: str, files: dict[str, bytes]
) -> None:
    abort = AbortFile(tmp_path / "store", disk)
    assert not abort.exists
    abort.create(4711, release)

    assert content(tmp_path / "store") == files


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
