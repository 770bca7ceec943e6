# SPDX-License-Identifier: Apache-2.0
"""Segments that are truncated, replaced, deleted or emptied while they are read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from store_core.errors import SegmentVanishedError
from tests.builders import LogBuilder

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

SEGMENT = 1 << 16


@pytest.fixture
def root(tmp_path: Path) -> Path:
    log = LogBuilder(SEGMENT)
    log.fill(2)
    log.append(b"last")
    log.write(tmp_path)
    return tmp_path


def begun(root: Path) -> tuple[pa.RecordBatchReader, int]:
    """Begin to read in small batches; return the reader, and how many rows the first one has."""
    reader = read_messages(root, columns=["physical_offset", "body"], max_records_per_batch=20)
    return reader, reader.read_next_batch().num_rows


def first_segment(root: Path) -> Path:
    return root / "commitlog" / f"{0:020d}"


@pytest.mark.parametrize("size", [0, 1000, SEGMENT - 1])
def test_a_segment_that_is_truncated_between_batches_is_a_named_error(root: Path, size: int) -> None:
    reader, _ = begun(root)
    os.truncate(first_segment(root), size)

    with pytest.raises(SegmentVanishedError, match=rf"had {SEGMENT} bytes when it was opened, and has {size} now"):
        reader.read_all()


def test_a_segment_that_is_deleted_or_replaced_is_read_to_its_end(root: Path) -> None:
    expected = read_messages(root, columns=["physical_offset", "body"]).read_all().num_rows
    reader, count = begun(root)
    first_segment(root).unlink()
    first_segment(root).write_bytes(b"another file")

    assert expected == count + reader.read_all().num_rows


def test_a_segment_whose_bytes_become_a_hole_is_damage(root: Path) -> None:
    expected = read_messages(root).read_all().num_rows
    with first_segment(root).open("r+b") as file:
        file.seek(SEGMENT // 2)
        file.write(bytes(SEGMENT // 4))
    found = read_messages(root, mode="PERMISSIVE", columns=["physical_offset", "_corrupt_record"]).read_all()
    damaged = found.filter(found["_corrupt_record"].is_valid())

    assert damaged.num_rows >= 1
    assert found.num_rows - damaged.num_rows < expected


def test_an_unreadable_or_vanished_segment_is_a_named_error(root: Path) -> None:
    reader = read_messages(root, columns=["body"], max_records_per_batch=20)
    os.truncate(root / "commitlog" / f"{SEGMENT:020d}", 100)

    with pytest.raises(SegmentVanishedError, match="it has 100 bytes now"):
        reader.read_all()
