# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from store_core.errors import SegmentVanishedError, StoreError, StoreNotFoundError
from store_core.files.segment_source import Segment, open_segment

if TYPE_CHECKING:
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
    assert str(tmp_path / "s") in str(caught.value)
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))  # noqa: S301 -- our own


def test_a_worker_that_does_not_see_the_directory_does_not_call_that_retention(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="Every worker has to see the store under the path that was given"):
        bytes_of(Segment(str(tmp_path / "unmounted" / "s"), 0, 1))


def test_a_vanished_segment_is_a_file_not_found_and_one_of_our_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        bytes_of(Segment(str(tmp_path / "gone"), 0, 1))
    assert isinstance(caught.value, StoreError)


def test_holes_of_a_sparse_file_are_skipped_or_at_least_not_overrun(tmp_path: Path) -> None:
    with (tmp_path / "s").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"data")
        file.truncate(4 << 20)

    with open_segment(Segment(str(tmp_path / "s"), 0, 4 << 20)) as opened:
        assert 0 <= opened.next_data(0) <= 1 << 20
        assert opened.next_data((1 << 20) + 2) == (1 << 20) + 2
        assert 2 << 20 <= opened.next_data(2 << 20) <= 4 << 20
