# SPDX-License-Identifier: Apache-2.0
"""What is foreseen to be deleted is what brokers delete round by round: by hour, by age, and on disks that fill up."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from store_core.answers.store_retention import retention
from store_core.files.file_system import OsFileSystem
from store_core.store.message_store_config import MessageStoreConfig
from tests.interop.judge import Judge
from tests.interop.puts import Put
from tests.interop.rocketmq import RocketMq
from tests.interop.scenarios import ALL_RELEASES
from tests.interop.toolchain import RELEASES, harness_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.answers import RetentionReport
    from store_core.format.release import Release

pytestmark = pytest.mark.interop

ROUNDS: Final = 4
ROUND: Final = 10_000
"""Milliseconds from a round to the next (``cleanResourceInterval``)."""

DISK: Final = 4 << 20
FULL: Final = 60
"""Per cent of the disk that are in use."""

HOUR: Final = 3_600_000
NEVER: Final = "99"
PROPERTIES: Final = {
    "disk_space_clean_forcibly_ratio": "rocketmq.broker.diskSpaceCleanForciblyRatio",
    "disk_space_warning_level_ratio": "rocketmq.broker.diskSpaceWarningLevelRatio",
}


@dataclass(frozen=True)
class Case:
    """Settings, and the hours for which segments did not change; limits are relative to what is in use."""

    name: str
    ages: tuple[float, ...]
    hour: str = NEVER
    limits: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


_OLD: Final = (100.0,) * 14
CASES: Final = [
    Case("the hour has come", _OLD, "now"),
    Case("the hour has not come", _OLD),
    Case("one is young", (100.0,) * 3 + (1.0,) + (100.0,) * 10, "now"),
    Case("all are young", (1.0,) * 14, "now"),
    Case("kept for 30 hours", (31.0,) * 5 + (29.0,) * 9, "now", settings={"file_reserved_time": 30}),
    Case("over the ratio", _OLD, limits={"disk_max_used_space_ratio": -2}),
    Case("far over the ratio", _OLD, limits={"disk_max_used_space_ratio": -20}),
    Case("below the ratio", _OLD, limits={"disk_max_used_space_ratio": 20}),
    Case("over the ratio, and young", (1.0,) * 14, limits={"disk_max_used_space_ratio": -2}),
    Case("forcibly", (1.0,) * 14, limits={"disk_max_used_space_ratio": 20, "disk_space_clean_forcibly_ratio": -2}),
    Case(
        "forcibly, both limits",
        (1.0,) * 14,
        limits={"disk_max_used_space_ratio": -2, "disk_space_clean_forcibly_ratio": -2},
    ),
    Case(
        "forcibly, and that is off",
        (100.0,) * 2 + (1.0,) * 12,
        limits={"disk_max_used_space_ratio": 20, "disk_space_clean_forcibly_ratio": -20},
        settings={"clean_file_forcibly_enable": False},
    ),
    Case("small batches", _OLD, "now", settings={"delete_file_batch_max": 3}),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Provide a directory on a small disk; where none can be made, it is on the disk of all tests."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)]
    is_made = subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 -- ours
    yield place
    if is_made:
        subprocess.run(["umount", "--lazy", str(place)], check=True)  # noqa: S603, S607 -- RocketMQ keeps files mapped


@pytest.fixture(scope="module", params=ALL_RELEASES)
def judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    """Provide a process of its own, as limits of disks are properties of the process."""
    with RocketMq(harness_command(RELEASES[request.param], "-XX:TieredStopAtLevel=1", "-Xmx256m")) as process:
        yield Judge(request.param, process)


@pytest.fixture(scope="module")
def store(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("written") / "store"
    puts = [Put(f"T{n % 2}", bytes(3000), n % 3, (("KEYS", f"k{n}"),)) for n in range(75)]
    judge.put(root, puts).result()
    return root


def filled(disk: Path, store: Path) -> tuple[Path, int]:
    """Copy a store to a disk, fill that up, and return the copy, and how many per cent are in use."""
    root, files = shutil.copytree(store, disk / "store"), OsFileSystem()
    size = os.statvfs(disk).f_blocks * os.statvfs(disk).f_frsize
    if size <= DISK:
        with (disk / "other").open("wb") as other:
            while files.used_percent(disk) < FULL:
                other.write(bytes(4096))
                other.flush()
    return root, files.used_percent(disk)


def settings_of(case: Case, percent: int) -> dict[str, Any]:
    """Return the settings of the store; without a limit, there is none that matters."""
    far = {"disk_max_used_space_ratio": 95, "disk_space_clean_forcibly_ratio": 99, "disk_space_warning_level_ratio": 99}
    hour = f"{datetime.now().astimezone().hour:02d}" if case.hour == "now" else case.hour
    usual = {"delete_when": hour, "file_reserved_time": 72, "clean_file_forcibly_enable": True}
    return far | usual | {name: percent + by for name, by in case.limits.items()} | case.settings


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_files_that_go_are_those_foreseen(judge: Judge, store: Path, disk: Path, case: Case) -> None:
    root, percent = filled(disk, store)
    settings = settings_of(case, percent)
    now = time.time_ns()
    for path, ago in zip(sorted((root / "commitlog").iterdir()), case.ages, strict=False):
        os.utime(path, ns=(now, round(now - ago * HOUR * 1_000_000)))
    has_batches = judge.release not in ("4.3", "4.9")
    if not has_batches:
        settings.pop("delete_file_batch_max", None)
    config = MessageStoreConfig(release=cast("Release", judge.release), **settings)
    report = retention(root, days=1, daily_growth=0, now=now // 1_000_000, config=config)
    foreseen = rounds_of(report, now // 1_000_000)

    java = {camel(name): value for name, value in settings.items() if has_batches or name not in PROPERTIES}
    java["deleteCommitLogFilesInterval"] = java["deleteConsumeQueueFilesInterval"] = 0
    properties = {
        PROPERTIES[name]: "" if has_batches else str(value / 100)
        for name, value in settings.items()
        if name in PROPERTIES
    }
    seen = judge.clean(root, ROUNDS, properties, **java)

    assert foreseen == [before - after for before, after in pairwise(seen)]


def rounds_of(report: RetentionReport, now: int) -> list[set[str]]:
    """Return the files that are to go in each round; those of queues and index go with the segments."""
    gone = [(row["deleted"], f"commitlog/{row['segment']}") for row in report.tables["deletions"].to_pylist()]
    gone += [(row["deleted"], row["path"]) for row in report.tables["files"].to_pylist()]
    found = [set[str]() for _ in range(ROUNDS)]
    for at, name in gone:
        number = round((at.timestamp() * 1000 - now) / ROUND)
        if number < ROUNDS:
            found[number].add(name)
    return found
