# SPDX-License-Identifier: Apache-2.0
"""What a store does when its disks fill up, by release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from store_core.format.release import rules_of
from store_core.store.clean import DiskLimits, DiskSpace, SpaceVerdict
from store_core.store.message_store_config import MessageStoreConfig
from tests.store_core.fakes import FaultyFileSystem

if TYPE_CHECKING:
    from store_core.format.release import Release

A, B, QUEUES = Path("/a/commitlog"), Path("/b/commitlog"), Path("/q/consumequeue")


class Disks(FaultyFileSystem):
    """Disks as full as a test says; other disks do not exist."""

    def __init__(self, **percents: int) -> None:
        super().__init__()
        self.percents = {path: percents[path.parent.name] for path in (A, B, QUEUES) if path.parent.name in percents}

    def used_percent(self, path: Path) -> int:
        return self.percents.get(path, -1)


def config(**settings: Any) -> MessageStoreConfig:  # noqa: ANN401 -- any field
    return MessageStoreConfig(**settings)


def verdict(release: Release, log: int, queues: int, **settings: Any) -> tuple[bool, bool, bool | None]:  # noqa: ANN401
    found = SpaceVerdict.of(DiskLimits.of(config(release=release, **settings)), rules_of(release), log, queues)
    return found.wants_deletion, found.at_once, found.is_full


# ---- limits


def test_limits_default_to_those_of_rocketmq() -> None:
    assert DiskLimits(90, 85, 75) == DiskLimits.of(config())


@pytest.mark.parametrize(("value", "kept"), [(9, 10), (10, 10), (95, 95), (96, 95), (-3, 10)])
@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_every_release_bounds_the_limit_of_deletion(release: Release, value: int, kept: int) -> None:
    assert kept == DiskLimits.of(config(release=release, disk_max_used_space_ratio=value)).delete


@pytest.mark.parametrize(("value", "warning", "forcible"), [(10, 35, 30), (60, 60, 60), (99, 90, 85)])
def test_the_other_limits_are_bounded_by_5_alone(value: int, warning: int, forcible: int) -> None:
    settings = {"disk_space_warning_level_ratio": value, "disk_space_clean_forcibly_ratio": value}
    new = DiskLimits.of(config(**settings))
    old = DiskLimits.of(config(release="4.9", **settings))

    assert (warning, forcible) == (new.warning, new.forcible)
    assert (value, value) == (old.warning, old.forcible)


# ---- verdicts


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
@pytest.mark.parametrize(
    ("log", "queues", "expected"),
    [
        (75, 75, (False, False, False)),
        (76, 10, (True, False, False)),
        (10, 76, (True, False, False)),
        (-1, 10, (True, False, False)),
        (10, -1, (True, False, False)),
        (86, 10, (True, True, None)),
        (90, 10, (True, True, None)),
        (91, 10, (True, True, True)),
        (10, 86, (True, True, False)),
        (10, 91, (True, True, True)),
        (91, 91, (True, True, True)),
    ],
)
def test_full_disks_ask_for_deletion(
    release: Release, log: int, queues: int, expected: tuple[bool, bool, bool | None]
) -> None:
    assert expected == verdict(release, log, queues)


def test_a_log_disk_over_the_limit_of_deletion_ends_the_check_in_4() -> None:
    assert (True, False, False) == verdict("4.9", 80, 91)
    assert (True, True, True) == verdict("5.3", 80, 91)


def test_a_queue_disk_with_room_clears_the_flag_of_a_full_log_disk_in_4() -> None:
    assert (False, True, False) == verdict("4.9", 92, 10, disk_max_used_space_ratio=95)
    assert (True, True, True) == verdict("5.3", 92, 10, disk_max_used_space_ratio=95)


def test_at_once_needs_another_reason_to_delete_in_4() -> None:
    assert (False, True, False) == verdict("4.9", 10, 88, disk_max_used_space_ratio=95)
    assert (True, True, False) == verdict("5.3", 10, 88, disk_max_used_space_ratio=95)


# ---- measuring


def test_of_several_log_disks_the_emptiest_counts() -> None:
    space = DiskSpace(config(), (A, B), QUEUES, Disks(a=95, b=50, q=10))

    assert SpaceVerdict(wants_deletion=False, at_once=False, is_full=False) == space.check()


def test_a_missing_log_directory_counts_as_the_emptiest() -> None:
    space = DiskSpace(config(), (A, B), QUEUES, Disks(a=95, q=10))

    assert SpaceVerdict(wants_deletion=True, at_once=False, is_full=False) == space.check()


def test_directories_over_the_forcible_limit_are_full_as_of_the_last_check() -> None:
    disks = Disks(a=86, b=85, q=10)
    space = DiskSpace(config(), (A, B), QUEUES, disks)
    before = set(space.full_paths())
    space.check()
    full = set(space.full_paths())
    disks.percents[A] = 20
    space.check()

    assert (set(), {A}, set()) == (before, full, set(space.full_paths()))
