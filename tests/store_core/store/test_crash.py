# SPDX-License-Identifier: Apache-2.0
"""What was acknowledged with synchronous flush survives the process, and the machine."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import DefaultMessageStore, MessageStoreConfig, PutMessageStatus
from store_core.files.segment_paths import SegmentPaths
from store_core.store.commit_log import CommitLog
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.store.logs import message, messages_of

if TYPE_CHECKING:
    from store_core.files.file_system import OsOpenFile

_APPENDER = Path(__file__).with_name("appender.py")
_ROOT = Path(__file__).parents[3]
_FILE_SIZE = 1 << 14
_PAGE = 4096


def run_and_kill(store: Path, first: int, acknowledgements: int) -> int:
    """Let an appender work until it has had some acknowledgements, kill it, and give the last number it wrote down."""
    command = [sys.executable, str(_APPENDER), str(store), str(first), str(_FILE_SIZE)]
    with subprocess.Popen(  # noqa: S603 -- our own script
        command, stdout=subprocess.PIPE, env={"PYTHONPATH": str(_ROOT), "PATH": ""}, text=True
    ) as process:
        assert process.stdout is not None
        for _ in range(acknowledgements):
            process.stdout.readline()
        process.kill()
        numbers = process.stdout.read().split()
    return int(numbers[-1]) if numbers else first + acknowledgements - 1


@pytest.mark.slow
def test_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(4)  # noqa: S311 -- no secret
    config = MessageStoreConfig(mapped_file_size_commit_log=_FILE_SIZE)
    following = 0
    for _ in range(4):
        last = run_and_kill(tmp_path, following, chance.randrange(1, 120))
        with DefaultMessageStore.open(tmp_path, config) as store:
            assert not store.recovery_report.last_exit_ok
        stored = messages_of(tmp_path / "commitlog")

        assert list(range(len(stored))) == [each.queue_offset for each in stored]
        assert list(range(len(stored))) == [int(each.body.partition(b":")[0]) for each in stored]
        assert last < len(stored)
        following = len(stored)


class LosingDisk(FaultyFileSystem):
    """Remembers what every file held when it was last synced: what a machine that loses its power keeps for sure."""

    def __init__(self) -> None:
        super().__init__()
        self.safe: dict[str, bytes] = {}

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> OsOpenFile:
        file = super().open(path, create=create, writable=writable)
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
        futures.append(log.async_put_message(message(b"%d:" % number + chance.randbytes(size))))
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
