# SPDX-License-Identifier: Apache-2.0
"""The checkpoint file: its bytes, and how recovery uses it."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

import pytest

from store_core.store.store_state import CHECKPOINT_SIZE, StoreCheckpoint

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import UnpackedStore
    from tests.store_core.fakes import FaultyFileSystem

NAMES = (
    "physic_msg_timestamp",
    "logics_msg_timestamp",
    "index_msg_timestamp",
    "master_flushed_offset",
    "confirm_physical_offset",
)


def values(checkpoint: StoreCheckpoint) -> tuple[int, ...]:
    return tuple(getattr(checkpoint, name) for name in NAMES)


def filled(root: Path, disk: FaultyFileSystem, release: str = "5.3") -> StoreCheckpoint:
    checkpoint = StoreCheckpoint(root, disk, release)
    for number, name in enumerate(NAMES, 1):
        setattr(checkpoint, name, number << 40)
    return checkpoint


def test_a_checkpoint_that_is_not_there_is_all_zero(tmp_path: Path, disk: FaultyFileSystem) -> None:
    checkpoint = StoreCheckpoint(tmp_path, disk).load()

    assert values(checkpoint) == (0, 0, 0, 0, 0)
    assert not (tmp_path / "checkpoint").exists()


def test_the_five_fields_are_big_endian_in_a_page_of_zeros(tmp_path: Path, disk: FaultyFileSystem) -> None:
    filled(tmp_path, disk).flush()
    stored = (tmp_path / "checkpoint").read_bytes()

    assert len(stored) == CHECKPOINT_SIZE == 4096
    assert stored[:40] == struct.pack(">5q", *(number << 40 for number in range(1, 6)))
    assert not any(stored[40:])


def test_what_was_flushed_is_loaded(tmp_path: Path, disk: FaultyFileSystem) -> None:
    checkpoint = filled(tmp_path, disk)
    checkpoint.flush()

    assert values(StoreCheckpoint(tmp_path, disk).load()) == values(checkpoint)


@pytest.mark.parametrize("release", ["4.3", "4.9"])
def test_release_4_knows_three_fields_and_leaves_the_others(
    tmp_path: Path, disk: FaultyFileSystem, release: str
) -> None:
    filled(tmp_path, disk).flush()
    older = StoreCheckpoint(tmp_path, disk, release).load()
    older.physic_msg_timestamp = 77
    older.flush()

    assert values(older) == (77, 2 << 40, 3 << 40, 0, 0)
    assert values(StoreCheckpoint(tmp_path, disk).load()) == (77, 2 << 40, 3 << 40, 4 << 40, 5 << 40)


@pytest.mark.parametrize("release", ["4.9", "5.3", "5.4"])
def test_only_5_5_knows_up_to_where_queues_are_flushed(tmp_path: Path, disk: FaultyFileSystem, release: str) -> None:
    newest = filled(tmp_path, disk, "5.5")
    newest.logics_physical_offset = 6 << 40
    newest.flush()
    older = StoreCheckpoint(tmp_path, disk, release).load()
    older.physic_msg_timestamp = 77
    older.flush()
    stored = (tmp_path / "checkpoint").read_bytes()

    assert older.logics_physical_offset == 0
    assert stored[40:48] == struct.pack(">q", 6 << 40)
    assert not any(stored[48:])
    assert StoreCheckpoint(tmp_path, disk, "5.5").load().logics_physical_offset == 6 << 40


@pytest.mark.parametrize("size", [0, 1, 7, 8, 39, 40, 100, 5000])
def test_a_file_of_any_size_is_read_as_far_as_it_goes(tmp_path: Path, disk: FaultyFileSystem, size: int) -> None:
    whole = struct.pack(">5q", 1, 2, 3, 4, 5).ljust(5000, b"\xff")
    (tmp_path / "checkpoint").write_bytes(whole[:size])

    padded = whole[:size].ljust(40, b"\0")
    assert values(StoreCheckpoint(tmp_path, disk).load()) == struct.unpack(">5q", padded[:40])


@pytest.mark.parametrize(
    ("physic", "logics", "index", "minimum", "with_index"),
    [
        (0, 0, 0, 0, 0),
        (10_000, 20_000, 5_000, 7_000, 5_000),
        (20_000, 10_000, 9_999, 7_000, 7_000),
        (2_999, 10_000, 10_000, 0, 0),
        (3_001, 3_001, 0, 1, 0),
        (-(2**63), 2**63 - 1, 1, 0, 0),
    ],
)
def test_recovery_goes_back_three_seconds(
    tmp_path: Path, disk: FaultyFileSystem, physic: int, logics: int, index: int, minimum: int, with_index: int
) -> None:
    checkpoint = StoreCheckpoint(tmp_path, disk)
    checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp = physic, logics
    checkpoint.index_msg_timestamp = index

    assert (checkpoint.min_timestamp, checkpoint.min_timestamp_index) == (minimum, with_index)


def test_a_flush_syncs_the_file_and_the_first_time_its_directory(tmp_path: Path, disk: FaultyFileSystem) -> None:
    checkpoint = filled(tmp_path, disk)
    checkpoint.flush()
    checkpoint.flush()
    steps = [call for call, _ in disk.calls if call in {"write", "sync", "sync_directory"}]

    assert steps == ["write", "sync", "sync_directory", "write", "sync"]


@pytest.mark.parametrize("operation", ["open", "grow", "write", "sync", "sync_directory"])
def test_a_flush_that_failed_is_tried_anew(tmp_path: Path, disk: FaultyFileSystem, operation: str) -> None:
    checkpoint = filled(tmp_path, disk)
    disk.fail(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.flush()
    checkpoint.flush()
    checkpoint.close()

    assert values(StoreCheckpoint(tmp_path, disk).load()) == values(checkpoint)


@pytest.mark.golden
def test_real_checkpoints_are_read_and_written_back_as_they_were(
    golden_store: UnpackedStore, tmp_path: Path, disk: FaultyFileSystem
) -> None:
    stored = (golden_store.root / "checkpoint").read_bytes()
    checkpoint = StoreCheckpoint(golden_store.root, disk, golden_store.golden.release).load()
    checkpoint.path = tmp_path / "checkpoint"
    checkpoint.flush()

    assert (tmp_path / "checkpoint").read_bytes() == stored
