# SPDX-License-Identifier: Apache-2.0
"""Deleting the oldest files of a queue by age."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.segment_paths import SegmentPaths
from store_core.store.clean import ExpiryRule, delete_expired_file_by_time

if TYPE_CHECKING:
    from pathlib import Path

    from tests.store_core.fakes import FakeClock, FaultyFileSystem

SIZE = 1024
HOUR_MS = 3_600_000
RULE = ExpiryRule(72 * HOUR_MS, 0.1, 10)


@pytest.fixture
def queue(tmp_path: Path, disk: FaultyFileSystem, clock: FakeClock) -> MappedFileQueue:
    """Five full files and a begun one, changed 6, 5, ... 1 hours ago."""
    made = MappedFileQueue(SegmentPaths((tmp_path,)), SIZE, disk)
    for index in range(6):
        file = made.get_last_mapped_file()
        assert file is not None
        file.append(b"x" * (SIZE if index < 5 else 10))
        set_age(made, index, 6 - index, clock)
    return made


def set_age(queue: MappedFileQueue, index: int, hours: int, clock: FakeClock) -> None:
    changed = (clock.now_ms() - hours * HOUR_MS) * 1_000_000
    os.utime(queue.mapped_files[index].path, ns=(changed, changed))


def rule(hours: int, batch_max: int = 10) -> ExpiryRule:
    return replace(RULE, reserved_ms=hours * HOUR_MS, batch_max=batch_max)


def left(queue: MappedFileQueue) -> list[int]:
    return [file.file_from_offset // SIZE for file in queue.mapped_files]


def on_disk(queue: MappedFileQueue) -> list[int]:
    return sorted(int(path.name) // SIZE for path in queue.paths.paths[0].iterdir())


@pytest.mark.parametrize(("hours", "expected"), [(7, [0, 1, 2, 3, 4, 5]), (6, [1, 2, 3, 4, 5]), (4, [3, 4, 5])])
def test_files_go_from_the_age_on(queue: MappedFileQueue, clock: FakeClock, hours: int, expected: list[int]) -> None:
    deleted = delete_expired_file_by_time(queue, rule(hours), clock)

    assert expected == left(queue) == on_disk(queue)
    assert 6 - len(expected) == deleted


def test_the_age_counts_to_the_millisecond(queue: MappedFileQueue, clock: FakeClock) -> None:
    young = replace(RULE, reserved_ms=6 * HOUR_MS + 1)

    assert 0 == delete_expired_file_by_time(queue, young, clock)


def test_the_last_file_stays_however_old(queue: MappedFileQueue, clock: FakeClock) -> None:
    assert 5 == delete_expired_file_by_time(queue, rule(0), clock)
    assert [5] == left(queue)


def test_a_young_file_protects_the_old_ones_behind_it(queue: MappedFileQueue, clock: FakeClock) -> None:
    set_age(queue, 1, 0, clock)
    delete_expired_file_by_time(queue, rule(2), clock)

    assert [1, 2, 3, 4, 5] == left(queue)


def test_at_once_means_whatever_the_age(queue: MappedFileQueue, clock: FakeClock) -> None:
    assert 5 == delete_expired_file_by_time(queue, RULE, clock, clean_at_once=True)


def test_a_round_deletes_no_more_than_a_batch(queue: MappedFileQueue, clock: FakeClock) -> None:
    assert 2 == delete_expired_file_by_time(queue, rule(0, batch_max=2), clock)
    assert [2, 3, 4, 5] == left(queue)


def test_there_is_a_pause_between_two_deletions(queue: MappedFileQueue, clock: FakeClock) -> None:
    delete_expired_file_by_time(queue, rule(0), clock)

    assert [0.1] * 4 == clock.slept


def test_what_the_system_refuses_to_delete_is_tried_again(
    queue: MappedFileQueue, disk: FaultyFileSystem, clock: FakeClock
) -> None:
    disk.fail("remove", errno.EIO, after=1)
    with pytest.raises(OSError, match="Input/output"):
        delete_expired_file_by_time(queue, rule(0), clock)
    after_failure = left(queue)

    assert [1, 2, 3, 4, 5] == after_failure
    assert 4 == delete_expired_file_by_time(queue, rule(0), clock)
    assert [5] == on_disk(queue)


def test_flushing_goes_on_behind_files_deleted_unflushed(queue: MappedFileQueue, clock: FakeClock) -> None:
    queue.flush(0)
    behind = queue.flushed_where
    delete_expired_file_by_time(queue, rule(0), clock)
    unchanged = queue.flush(0)

    assert SIZE == behind
    assert not unchanged
    assert queue.flushed_where == queue.max_offset


def test_committing_goes_on_behind_files_deleted_uncommitted(queue: MappedFileQueue, clock: FakeClock) -> None:
    queue.commit(0)
    delete_expired_file_by_time(queue, rule(0), clock)

    assert not queue.commit(0)
    assert queue.committed_where == queue.max_offset
