# SPDX-License-Identifier: Apache-2.0
"""Ranges of a file are read one after another, and what goes wrong has a name."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import SegmentVanishedError, StoreAccessError
from store_core.files.local_bytes import LocalBytes
from tests.budgets import budget

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
