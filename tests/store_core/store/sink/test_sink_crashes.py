# SPDX-License-Identifier: Apache-2.0
"""Commits on full disks and in processes that die: all of a job or nothing, and the next job works."""

from __future__ import annotations

import errno
import random
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from store_core import MessageStoreConfig
from store_core.answers import check
from store_core.store.sink import commit
from store_core.store.sink import staged_batch as sink_directory
from store_core.store.sink.commit import CommitReport, with_sizes_of
from tests.golden_stores import golden_stores, unpack
from tests.store_core.fakes import FaultyFileSystem
from tests.store_core.store.sink import staging
from tests.store_core.store.sink.staging import CONFIG, bodies_of, check_queues, make_store
from tests.store_core.store.sink.test_staged_append import CASES, Case, MortalDisk

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.format.release import Release
    from tests.golden_stores import GoldenStore

FIRST, SECOND = f"job-{'0' * 32}", f"job-{'1' * 32}"
BUDGETS = [pytest.param(20, id="20 points"), pytest.param(100, id="100 points", marks=pytest.mark.soak)]
SEED = 8
CRASHED = [golden for golden in golden_stores() if golden.scenario == "crash"]


def run_job(root: Path, bodies: list[bytes], disk: FileSystem, job: str, **more: Any) -> CommitReport:  # noqa: ANN401
    """Commit in a process that finds no other job alive."""
    return staging.commit(root, bodies, job, file_system=disk, is_alive=lambda _: False, **more)


def check_next_job(root: Path, stored: list[bytes]) -> None:
    """Check that the store has these messages and accepts another job, which leaves nothing of the previous one."""
    assert stored == bodies_of(root)
    run_job(root, [b"next"], FaultyFileSystem(), SECOND)

    assert [*stored, b"next"] == bodies_of(root)
    assert len(stored) + 1 == check_queues(root)
    assert not (root / "abort").exists()
    assert [] == [path for name in ("staged", "segments") for path in (root / "commitlog-sink" / name).rglob("*")]
    assert [root.name] == [path.name for path in root.parent.iterdir()]


@pytest.mark.parametrize("points", BUDGETS)
@pytest.mark.parametrize("name", ["tail", "one segment", "several segments", "a new store"])
def test_a_disk_that_fills_up_anywhere_leaves_all_or_nothing_and_the_next_job_goes_on(
    name: str, points: int, tmp_path: Path
) -> None:
    case, chance = CASES[name], random.Random(f"{SEED}{name}")  # noqa: S311 -- no secret
    needed = blocks_of(case, tmp_path / "whole" / "store")
    full = 0
    for number in range(points):
        root, disk = tmp_path / f"{number}" / "store", FaultyFileSystem()
        make_store(root, case.before)
        disk.free_blocks = chance.randrange(needed)
        try:
            appended = run_job(root, case.added, disk, FIRST).appended.records
        except OSError as error:
            appended, full = 0, full + (error.errno == errno.ENOSPC)
        disk.heal()
        stored = check_queues(root) - len(case.before)

        assert stored in (0, len(case.added))
        assert appended in (0, stored)
        check_next_job(root, (case.before + case.added)[: len(case.before) + stored])
        shutil.rmtree(root.parent)
    assert full > points // 3


def blocks_of(case: Case, root: Path) -> int:
    """Count the blocks that a whole job needs."""
    disk = FaultyFileSystem()
    make_store(root, case.before)
    disk.free_blocks = 10**6
    run_job(root, case.added, disk, FIRST)
    return 10**6 - disk.free_blocks


@pytest.mark.golden
@pytest.mark.parametrize("golden", CRASHED, ids=lambda golden: golden.name)
def test_a_job_on_the_store_of_a_broker_that_was_killed_leaves_no_key_out(
    golden: GoldenStore, golden_directory: Path, tmp_path: Path
) -> None:
    """A recovery deletes index files that the checkpoint does not cover, whose keys are of earlier segments, too."""
    root = shutil.copytree(unpack(golden, golden_directory).root, tmp_path / "store")
    with (root / "checkpoint").open("r+b") as checkpoint:
        checkpoint.seek(16)
        checkpoint.write(bytes(8))  # no index file was flushed yet
    config = with_sizes_of(root, MessageStoreConfig(release=cast("Release", golden.release)), FaultyFileSystem())
    run_job(root, [b"next"], FaultyFileSystem(), FIRST, config=config)

    assert {} == check(root, release=golden.release).counts


@pytest.mark.parametrize("points", BUDGETS)
@pytest.mark.parametrize("in_one_step", [True, False], ids=["exchange", "renames"])
def test_a_process_that_dies_while_it_overwrites_leaves_the_old_store_or_the_new_one(
    in_one_step: bool, points: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = [b"old %d" % number for number in range(9)], [b"new %d" % number + b"n" * 500 for number in range(30)]
    exchange = sink_directory._exchange
    disk = MortalDisk()

    def mortal_exchange(first: Path, second: Path) -> bool:
        if in_one_step:
            disk.change(second)
        return in_one_step and exchange(first, second)

    def mortal_removal(path: Path) -> bool:
        return not disk.is_dead and sink_directory.remove_store(path)

    monkeypatch.setattr(sink_directory, "_exchange", mortal_exchange)
    monkeypatch.setattr(commit, "remove_store", mortal_removal)
    found: set[bool] = set()
    total = 0
    for number, part in enumerate([1.0, *(each / points for each in range(points))]):
        root, disk = tmp_path / f"{number}" / "store", MortalDisk()
        make_store(root, old)
        disk.changes_left = 10**6 if not number else round(total * part)
        before = disk.changes_left
        if number:
            with pytest.raises(OSError, match="Input/output error"):
                run_job(root, new, disk, FIRST, overwrite=True)
        else:
            run_job(root, new, disk, FIRST, overwrite=True)
            total = before - disk.changes_left
        disk = MortalDisk()  # later calls are those of a new process
        # The next job completes an interrupted swap before anything is read.
        run_job(root, [], FaultyFileSystem(), SECOND)
        stored = bodies_of(root)

        assert stored in (old, new)
        found.add(stored == new)
        check_next_job(root, stored)
        shutil.rmtree(root.parent)
    assert found == {True, False}


class DyingAmidSegments(MortalDisk):
    """Dies after this many new segments were renamed into the log's directory."""

    def __init__(self, renames_left: int) -> None:
        super().__init__()
        self._renames_left = renames_left

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if target.parent.name == "commitlog":
            self._renames_left -= 1
            if not self._renames_left:
                self.changes_left = 0


@pytest.mark.parametrize("release", ["5.3", "5.4", "5.5"])
def test_the_next_job_takes_back_any_number_of_segments_that_a_dead_one_left_behind_a_hole(
    release: Release, tmp_path: Path
) -> None:
    old, new = [b"old %d" % number for number in range(9)], [b"n" * 4000 for _ in range(24)]
    config, root = replace(CONFIG, release=release), tmp_path / "store"
    make_store(root, old)
    with pytest.raises(OSError, match="Input/output error"):
        run_job(root, new, DyingAmidSegments(11), FIRST, config=config)
    assert len(list((root / "commitlog").iterdir())) == 12

    run_job(root, [b"next"], FaultyFileSystem(), SECOND, config=config)

    assert [*old, b"next"] == bodies_of(root)
    assert check_queues(root) == 10
