# SPDX-License-Identifier: Apache-2.0
"""The bytes of a local segment are those of its file; what goes wrong has a name."""

from __future__ import annotations

import errno
import os
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import SegmentVanishedError, StoreAccessError, StoreError, StoreNotFoundError
from store_core.files.local_bytes import LocalBytes
from store_core.files.segment_source import Segment, open_segment
from tests.budgets import budget

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def bytes_of(segment: Segment) -> bytes:
    with open_segment(segment) as opened:
        return opened.chunk(0, segment.size).tobytes()


def segment_of(path: Path, data: bytes) -> Segment:
    path.write_bytes(data)
    return Segment(str(path), 4096, len(data))


def test_the_bytes_of_a_segment_are_those_of_its_file(tmp_path: Path) -> None:
    assert bytes_of(segment_of(tmp_path / "s", b"some bytes")) == b"some bytes"


def test_an_empty_file_has_no_bytes(tmp_path: Path) -> None:
    with open_segment(segment_of(tmp_path / "s", b"")) as opened:
        assert opened.chunk(0, 0).size == 0
        assert opened.next_data(0) == 0


def test_what_is_appended_after_the_listing_is_not_there(tmp_path: Path) -> None:
    segment = segment_of(tmp_path / "s", b"listed")
    (tmp_path / "s").write_bytes(b"listed, and more")

    assert bytes_of(segment) == b"listed"


def test_bytes_outlive_the_opening_and_the_file(tmp_path: Path) -> None:
    with open_segment(segment_of(tmp_path / "s", b"some bytes")) as opened:
        raw = opened.chunk(0, 10)
    (tmp_path / "s").unlink()

    assert raw.tobytes() == b"some bytes"


@pytest.mark.parametrize("change", ["delete", "truncate"])
def test_a_segment_that_is_gone_or_shorter_is_named_with_the_way_on(tmp_path: Path, change: str) -> None:
    segment = segment_of(tmp_path / "s", b"some bytes")
    if change == "delete":
        (tmp_path / "s").unlink()
    else:
        (tmp_path / "s").write_bytes(b"some")

    with pytest.raises(SegmentVanishedError, match="failOnDataLoss=false") as caught:
        bytes_of(segment)
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, StoreError)
    assert str(tmp_path / "s") in str(caught.value)
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))  # noqa: S301 -- our own


def test_a_worker_that_does_not_see_the_directory_does_not_call_that_retention(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="Every worker has to see the store under the path that was given"):
        bytes_of(Segment(str(tmp_path / "unmounted" / "s"), 0, 1))


def test_holes_of_a_sparse_file_are_skipped_or_at_least_not_overrun(tmp_path: Path) -> None:
    with (tmp_path / "s").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"data")
        file.truncate(4 << 20)

    with open_segment(Segment(str(tmp_path / "s"), 0, 4 << 20)) as opened:
        assert 0 <= opened.next_data(0) <= 1 << 20
        assert opened.next_data((1 << 20) + 2) == (1 << 20) + 2
        assert 2 << 20 <= opened.next_data(2 << 20) <= 4 << 20


_SIZE = 5000
_DATA = np.random.default_rng(7).integers(0, 256, _SIZE, np.uint8).tobytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("packed") / "file"
    made.write_bytes(_DATA)
    return made


@pytest.fixture(scope="module")
def file(path: Path) -> Iterator[LocalBytes]:
    with path.open("rb") as opened:
        yield LocalBytes(str(path), opened, _SIZE)


def packed(file: LocalBytes, ranges: list[tuple[int, int]]) -> bytes:
    """Read ranges that are given as begin and size."""
    begins, sizes = np.array(ranges, np.int64).T
    return file.packed(begins, sizes).tobytes()


@budget(0.5)
@given(
    gaps=st.lists(st.tuples(st.sampled_from([0, 0, 1, 7, 300]), st.integers(0, 80)), min_size=1, max_size=12),
    most=st.sampled_from([1, 13, _SIZE]),
)
def test_bytes_are_those_of_the_ranges(file: LocalBytes, gaps: list[tuple[int, int]], most: int) -> None:
    at, ranges = 0, []
    for gap, size in gaps:
        ranges.append((at + gap, size))
        at += gap + size
    whole = os.pread
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pread", lambda descriptor, size, begin: whole(descriptor, min(size, most), begin))
        found = packed(file, ranges)

    assert found == b"".join(_DATA[begin : begin + size] for begin, size in ranges)


def test_neighbours_are_read_by_one_call(file: LocalBytes, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, whole = [], os.pread

    def counted(descriptor: int, size: int, begin: int) -> bytes:
        calls.append((begin, size))
        return whole(descriptor, size, begin)

    monkeypatch.setattr(os, "pread", counted)
    packed(file, [(10, 5), (15, 20), (35, 1), (40, 2)])

    assert calls == [(10, 26), (40, 2)]


def test_shorter_file_is_a_named_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(_DATA)
    with path.open("rb") as opened:
        os.truncate(path, 40)
        with pytest.raises(SegmentVanishedError, match=f"had {_SIZE} bytes when it was opened, and has 40 now"):
            packed(LocalBytes(str(path), opened, _SIZE), [(0, 10), (30, 20)])


@pytest.mark.parametrize("sound", [0, 5])
def test_failing_disk_is_a_named_error(file: LocalBytes, sound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int, size: int, begin: int) -> bytes:
        if begin == 100 + sound:
            raise OSError(errno.EIO, "Input/output error")
        return _DATA[begin : begin + min(size, 5)]

    def fails_again(descriptor: int, buffers: list[memoryview], begin: int) -> bytes:
        return fails(descriptor, len(buffers[0]), begin)

    monkeypatch.setattr(os, "pread", fails)
    monkeypatch.setattr(os, "preadv", fails_again)
    with pytest.raises(StoreAccessError, match=f"expected to read byte {100 + sound}, found: Input"):
        packed(file, [(100, 20)])
