# SPDX-License-Identifier: Apache-2.0
"""Messages acknowledged with synchronous flush survive a crash of the process, and of the machine."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import DefaultMessageStore, Message, MessageStoreConfig, PutMessageStatus
from store_core.files.segment_paths import SegmentPaths
from store_core.store.put.commit_log import CommitLog
from store_core.store.put.put_result import as_future
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.store.logs import message, messages_of

if TYPE_CHECKING:
    from store_core.files.file_system import OpenFile, OsOpenFile

_APPENDER = Path(__file__).with_name("appender.py")
_ROOT = Path(__file__).parents[3]
_FILE_SIZE = 1 << 14
_PAGE = 4096


def start(store: Path, first: int, *more: int) -> subprocess.Popen[str]:
    """Start an appender with the number of its first message."""
    command = [sys.executable, str(_APPENDER), str(store), *map(str, (first, _FILE_SIZE, *more))]
    return subprocess.Popen(  # noqa: S603 -- our own script
        command, stdout=subprocess.PIPE, env={"PYTHONPATH": str(_ROOT), "PATH": ""}, text=True
    )


def run_and_kill(store: Path, first: int, acknowledgements: int) -> int:
    """Kill an appender after it got some acknowledgements; return the last number that it printed."""
    with start(store, first) as process:
        assert process.stdout is not None
        for _ in range(acknowledgements):
            process.stdout.readline()
        process.kill()
        numbers = process.stdout.read().split()
    return int(numbers[-1]) if numbers else first + acknowledgements - 1


def run_until_call(store: Path, first: int, calls: int) -> int:
    """Let an appender kill itself at a call; return the last number that it printed, or the one before its first."""
    with start(store, first, calls) as process:
        assert process.stdout is not None
        numbers = process.stdout.read().split()
    assert process.returncode == -signal.SIGKILL
    return int(numbers[-1]) if numbers else first - 1


def check_recovery(store: Path, last: int) -> int:
    """Open a store whose writer was killed after message `last`, and return the number of messages it has then."""
    with DefaultMessageStore.open(store, MessageStoreConfig(mapped_file_size_commit_log=_FILE_SIZE)) as opened:
        end = opened.max_physical_offset
    stored = messages_of(store / "commitlog") if end else []

    assert list(range(len(stored))) == [each.queue_offset for each in stored]
    assert list(range(len(stored))) == [int(each.body.partition(b":")[0]) for each in stored]
    assert last < len(stored)
    return len(stored)


@pytest.mark.slow
def test_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(4)  # noqa: S311 -- no secret
    following = 0
    for _ in range(4):
        last = run_and_kill(tmp_path, following, chance.randrange(1, 120))
        assert (tmp_path / "abort").exists()
        following = check_recovery(tmp_path, last)


@pytest.mark.slow
@pytest.mark.parametrize("points", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_process_killed_within_any_call_loses_nothing_that_was_acknowledged(points: int, tmp_path: Path) -> None:
    chance = random.Random(5)  # noqa: S311 -- no secret
    following = 0
    for calls in [chance.randrange(*calls) for calls in ((1, 30), (30, 300)) for _ in range(points)]:
        last = run_until_call(tmp_path, following, calls)
        following = check_recovery(tmp_path, last)


def test_no_file_of_a_store_is_ever_seen_half_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill can come after any of these calls, and RocketMQ before 5.1.3 loads no segment of another size."""
    sizes: dict[str, set[int]] = {}

    def watch(name: str) -> None:
        call = getattr(os, name)

        def watched(*given: object, **named: object) -> object:
            result = call(*given, **named)
            for path in (
                path for kind in ("commitlog", "consumequeue", "index") for path in tmp_path.glob(f"{kind}/**/*")
            ):
                if path.is_file():
                    sizes.setdefault(path.relative_to(tmp_path).parts[0], set()).add(path.stat().st_size)
            return result

        monkeypatch.setattr(os, name, watched)

    for name in ("open", "ftruncate", "link", "pwrite"):
        watch(name)
    config = MessageStoreConfig(
        release="4.9",
        mapped_file_size_commit_log=_FILE_SIZE,
        mapped_file_size_consume_queue=200,
        max_hash_slot_num=10,
        max_index_num=20,
    )
    with DefaultMessageStore.open(tmp_path, config) as store:
        for number in range(60):
            store.put_message(Message("orders", bytes(700), keys=f"k{number}"))

    assert {"commitlog": {_FILE_SIZE}, "consumequeue": {200}, "index": {40 + 10 * 4 + 20 * 20}} == sizes


class LosingDisk(FaultyFileSystem):
    """Records each file's content at its last sync: all that a power failure is certain to leave."""

    def __init__(self) -> None:
        super().__init__()
        self.safe: dict[str, bytes] = {}

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
        return self._watched(super().open(path, create=create, writable=writable), path)

    def make(self, path: Path, size: int) -> OsOpenFile:
        file = super().make(path, size)
        self._watched(file, path)
        return file

    def _watched(self, file: OpenFile, path: Path) -> OpenFile:
        sync = file.sync

        def remembering() -> None:
            sync()
            self.safe[path.name] = path.read_bytes()

        file.sync = remembering  # type: ignore[method-assign]  # one file's own
        return file

    def lose_power(self, directory: Path, target: Path, chance: random.Random) -> None:
        """Copy files page by page: as they are, or as they were when last synced."""
        target.mkdir(parents=True)
        for path in sorted(directory.iterdir()):
            now = path.read_bytes()
            then = self.safe.get(path.name, b"").ljust(len(now), b"\0")
            pages = range(0, len(now), _PAGE)
            kept = [chance.choice((now, then))[start : start + _PAGE] for start in pages]
            target.joinpath(path.name).write_bytes(b"".join(kept))


@given(st.lists(st.tuples(st.integers(0, 3000), st.booleans()), max_size=30), st.integers(0, 2**32))
def test_machine_that_loses_power_loses_nothing_that_was_acknowledged(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]], seed: int
) -> None:
    root, chance, disk = tmp_path_factory.mktemp("power"), random.Random(seed), LosingDisk()  # noqa: S311 -- no secret
    config = MessageStoreConfig(mapped_file_size_commit_log=_FILE_SIZE, flush_disk_type="SYNC_FLUSH")
    log = CommitLog(SegmentPaths((root / "log",)), config, disk, FakeClock())
    futures = []
    for number, (size, flushes) in enumerate(steps):
        futures.append(as_future(log.put(message(b"%d:" % number + chance.randbytes(size)))))
        if flushes:
            assert log.flusher.group_commit is not None
            log.flusher.group_commit.run_once()
    acknowledged = [each.result(0) for each in futures if each.done()]
    assert {PutMessageStatus.PUT_OK} >= {each.status for each in acknowledged}
    written = messages_of(root / "log") if steps else []
    disk.lose_power(root / "log", root / "store" / "commitlog", chance) if steps else None

    with DefaultMessageStore.open(root / "store", config, file_system=FaultyFileSystem()) as store:
        store.put_message(message(b"next"))
    found = messages_of(root / "store" / "commitlog")
    assert written[: len(acknowledged)] == found[: len(acknowledged)]
    assert [each.body for each in written[: len(found) - 1]] == [each.body for each in found[:-1]]
    assert (b"next", len(found) - 1) == (found[-1].body, found[-1].queue_offset)
    shutil.rmtree(root)


class Trouble(Enum):
    """What is wrong with a disk while a message is put."""

    NONE = "nothing"
    WRITE = "the first write fails"
    SEAL = "the second write fails"
    FULL = "no blocks are left but one"
    FULL_AND_DEAF = "so it is, and what was written can't be erased"
    OPEN = "no file can be opened"
    SYNC = "a sync fails"


def make_trouble(disk: FaultyFileSystem, trouble: Trouble) -> None:
    disk.heal()
    if trouble in (Trouble.WRITE, Trouble.SEAL):
        disk.fail("write", errno.EIO, after=int(trouble is Trouble.SEAL))
    if trouble in (Trouble.FULL, Trouble.FULL_AND_DEAF):
        disk.free_blocks = 1
    if trouble is Trouble.FULL_AND_DEAF:
        disk.fail("read", errno.EIO, times=9)
    if trouble is Trouble.OPEN:
        disk.fail("open", errno.EACCES, times=9)
    if trouble is Trouble.SYNC:
        disk.fail("sync", errno.EIO)


puts = st.tuples(st.integers(1, 6), st.integers(0, 3000), st.booleans(), st.sampled_from(Trouble))


@given(st.lists(puts, max_size=20))
def test_messages_that_a_failing_disk_took_are_there_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool, Trouble]]
) -> None:
    root, disk = tmp_path_factory.mktemp("trouble"), FaultyFileSystem()
    config = MessageStoreConfig(mapped_file_size_commit_log=_FILE_SIZE, flush_disk_type="SYNC_FLUSH")
    log = CommitLog(SegmentPaths((root / "commitlog",)), config, disk, FakeClock())
    group_commit = log.flusher.group_commit
    assert group_commit is not None
    taken: list[bytes] = []
    acknowledged = 0
    for number, (count, size, in_bulk, trouble) in enumerate(steps):
        bodies = [b"%d-%d:" % (number, each) + b"x" * size for each in range(count if in_bulk else 1)]
        make_trouble(disk, trouble)
        if in_bulk:
            table = pa.table({"topic": ["orders"] * count, "body": bodies})
            taken += bodies[: log.append_batch(table, waits=False).msg_num]
            group_commit.step()
        else:
            future = as_future(log.put(message(bodies[0])))
            group_commit.step()
            taken += bodies if future.result(0).is_ok else []
            acknowledged = len(taken) if future.result(0).status is PutMessageStatus.PUT_OK else acknowledged
    shutil.copytree(root / "commitlog", root / "store" / "commitlog") if taken else None

    assert log.flushed_where >= (log_end(root / "commitlog", acknowledged) if acknowledged else 0)
    with DefaultMessageStore.open(root / "store", config, file_system=FaultyFileSystem()) as store:
        store.put_message(message(b"next"))
    found = messages_of(root / "store" / "commitlog")
    assert [*taken, b"next"] == [each.body for each in found]
    assert list(range(len(found))) == [each.queue_offset for each in found]
    shutil.rmtree(root)


def log_end(directory: Path, messages: int) -> int:
    """Return the offset after this number of messages."""
    last = messages_of(directory)[messages - 1]
    return last.physical_offset + last.store_size
