# SPDX-License-Identifier: Apache-2.0
"""Segments that are read into memory have the rows of mapped ones, and what happens to their files is an error."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from store_core import read_messages
from store_core.errors import InvalidOptionError, SegmentVanishedError, StoreAccessError
from store_core.files import read_bytes
from store_core.files.segment_source import Segment, open_pages, open_segment
from tests.builders import LogBuilder
from tests.store_core.store.read.lookup_stores import OPTIONS, same_as_scan, small_store
from tests.store_core.store.read.test_narrow_reads import MODES, damaged, outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from tests.golden_stores import UnpackedStore

SEGMENT = 1 << 16
STORES = ("4.3.0/tx", "4.9.7/basic", "5.3.3/compressed", "5.3.3/v2topic", "5.5.0/bcq")


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load little at a time, so that what is looked at before it is loaded is zeros."""
    monkeypatch.setattr(read_bytes.ReadBytes, "step", 1 << 13)


def small_log(root: Path) -> Path:
    """Write a log of two segments; return the path of the first."""
    log = LogBuilder(SEGMENT)
    log.fill(2)
    log.append(b"last")
    log.write(root)
    return root / "commitlog" / f"{0:020d}"


def begun(root: Path) -> pa.RecordBatchReader:
    """Begin to read in small batches."""
    reader = read_messages(root, columns=["body"], max_records_per_batch=20, segment_access="read")
    assert reader.read_next_batch().num_rows
    return reader


def check_equal(root: Path, **options: Any) -> None:  # noqa: ANN401 -- any option
    """Check that rows, batches and errors are those of mapped files."""
    for more in ({}, {"columns": ["topic", "tags"]}, {"max_records_per_batch": 17}, {"max_partition_bytes": 50_000}):
        given = {**options, **more}
        assert outcome(root, segment_access="mapped", **given) == outcome(root, segment_access="read", **given)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", STORES)
def test_golden_store_has_the_rows_of_mapped_segments(
    name: str, mode: str, golden: Callable[[str], UnpackedStore]
) -> None:
    store = golden(name)
    check_equal(store.root, release=store.golden.release, mode=mode)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_store_has_the_rows_and_errors_of_mapped_segments(
    seed: int, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    check_equal(damaged(golden("5.3.3/tx").root, tmp_path, seed), mode=MODES[seed % 3])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_look_up_has_the_rows_of_a_scan(options: dict[str, Any], tmp_path: Path) -> None:
    small_store(tmp_path)
    plan = same_as_scan(tmp_path, segment_access="read", **options)

    assert plan.explanation.plan == "queues"
    assert all(part.segment.is_copied for part in plan.ranges)


@pytest.mark.parametrize("size", [0, 1000, SEGMENT - 1])
def test_truncation_is_a_named_error(size: int, tmp_path: Path) -> None:
    first = small_log(tmp_path)
    reader = begun(tmp_path)
    os.truncate(first, size)

    with pytest.raises(SegmentVanishedError, match=rf"had {SEGMENT} bytes when it was opened, and has {size} now"):
        reader.read_all()


def test_bytes_behind_the_new_end_of_a_file_are_no_hole(tmp_path: Path) -> None:
    path = small_log(tmp_path)
    with open_pages(Segment(str(path), 0, SEGMENT).copied()) as opened:
        opened.load(0, 1 << 12)
        os.truncate(path, 1 << 13)
        with pytest.raises(SegmentVanishedError, match="truncated"):
            opened.load(1 << 14, 1 << 15)


def test_what_was_loaded_stays_as_it_was(tmp_path: Path) -> None:
    path = small_log(tmp_path)
    with open_segment(Segment(str(path), 0, SEGMENT).copied()) as opened:
        expected = path.read_bytes()
        path.write_bytes(b"x" * SEGMENT)
        os.truncate(path, 0)
        assert expected == opened.raw.tobytes()


def test_failing_disk_is_a_named_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_log(tmp_path)

    def fails(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", fails)
    with pytest.raises(StoreAccessError, match=rf"{path.parent}/\d+: expected to read byte \d+, found: Input"):
        read_messages(tmp_path, segment_access="read").read_all()


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_log(tmp_path)
    expected = read_messages(tmp_path).read_all()
    whole = os.preadv

    def short(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        return whole(descriptor, [buffers[0][:1000]], offset)

    monkeypatch.setattr(os, "preadv", short)
    assert expected == read_messages(tmp_path, segment_access="read").read_all()


@pytest.mark.parametrize("is_sparse", [True, False], ids=["hole", "zeros"])
def test_zeros_take_no_memory(is_sparse: bool, tmp_path: Path) -> None:
    path, size = tmp_path / f"{0:020d}", 64 << 20
    with path.open("wb") as file:
        file.write(b"x")
        if is_sparse:
            file.truncate(size)
        else:
            file.write(bytes(size - 1))
    with open_segment(Segment(str(path), 0, size).copied()) as opened:
        held = sum(int(line.split()[1]) for line in _mapping_of(opened.raw.ctypes.data) if line.startswith("Rss:"))
        assert held <= 8 << 10
        assert opened.raw[0] == ord("x")


def _mapping_of(address: int) -> list[str]:
    """Return what Linux says of the mapping that has an address."""
    found: list[str] = []
    is_mine = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, last = line.split()[0].partition("-")
        if last:
            is_mine = int(first, 16) <= address < int(last, 16)
        if is_mine:
            found.append(line)
    return found


def test_dropped_bytes_are_read_again(tmp_path: Path) -> None:
    path, size = tmp_path / f"{0:020d}", 9 << 20
    path.write_bytes(bytes(range(1, 256)) * (size // 255) + bytes([7]) * (size % 255))
    with open_pages(Segment(str(path), 0, size).copied()) as opened:
        opened.load(0, size)
        opened.drop(size)
        assert not opened.raw[: 8 << 20].any()
        opened.load(100, 1 << 20)
        opened.load(0, size)
        assert path.read_bytes() == opened.raw.tobytes()


def test_other_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="option segmentAccess"):
        read_messages(tmp_path, segment_access="pread")  # type: ignore[arg-type]  # what is tested
