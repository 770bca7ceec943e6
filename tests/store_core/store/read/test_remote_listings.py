# SPDX-License-Identifier: Apache-2.0
"""Listing and planning a remote store asks for little, however much is there and whatever its keys look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from store_core.errors import StoreNotFoundError
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from tests.benchmarks.segments import make_log
from tests.object_store import BUCKET, Faults, ObjectStore

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("no_chance")

_SEGMENT = 1 << 12
_SEGMENTS = 1000
_TIMED = 40
_KEY = 300
"""More bytes than a key takes in a listing."""


@pytest.fixture(scope="module")
def wide(running_server: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Provide a store of 1,000 segments, on a disk and in the bucket."""
    root = make_log(tmp_path_factory.mktemp("wide"), _SEGMENTS * _SEGMENT, _SEGMENT, 300)
    for segment in (root / "commitlog").iterdir():
        running_server.place(f"wide/commitlog/{segment.name}", segment.read_bytes())
    return root, f"s3://{BUCKET}/wide"


def plan(server: ObjectStore, url: str, **options: object) -> Faults:
    """Plan a read, and return what was asked of the server."""
    server.faults = counted = Faults()
    plan_ranges(url, ReadOptions.parse(storage=server.settings, **options))
    return counted


def test_planning_1000_segments_lists_them_and_reads_the_last(server: ObjectStore, wide: tuple[Path, str]) -> None:
    asked = plan(server, wide[1])
    assert 3 >= asked.lists  # the root, and two pages of at most 1,000 keys
    assert 2 >= asked.gets
    assert 2 * _SEGMENT + _KEY * _SEGMENTS >= asked.bytes_sent
    assert 8 >= asked.heads


def test_time_filters_read_the_head_of_each_segment_once(server: ObjectStore, tmp_path: Path) -> None:
    root = make_log(tmp_path, _TIMED * _SEGMENT, _SEGMENT, 300)
    for segment in (root / "commitlog").iterdir():
        server.place(f"timed/commitlog/{segment.name}", segment.read_bytes())
    asked = plan(server, f"s3://{BUCKET}/timed", starting_timestamp=0)
    assert _TIMED <= asked.gets <= _TIMED + 2
    assert 2 * _TIMED + 8 >= asked.heads


def test_1000_segments_have_the_rows_of_the_disk(server: ObjectStore, wide: tuple[Path, str]) -> None:
    root, url = wide
    bounds = {"starting_offsets": 990 * _SEGMENT, "columns": ["topic", "physical_offset"]}
    server.faults = asked = Faults()
    found = read_messages(url, storage=server.settings, **bounds).read_all()  # type: ignore[arg-type]  # of two types
    assert read_messages(root, **bounds).read_all() == found  # type: ignore[arg-type]  # as above
    assert 24 >= asked.gets


@pytest.mark.parametrize("count", [2_500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_keys_that_are_no_segments_are_left_out_however_many(count: int, server: ObjectStore, tmp_path: Path) -> None:
    root = make_log(tmp_path, 2 * _SEGMENT, _SEGMENT, 300)
    for segment in (root / "commitlog").iterdir():
        server.place(f"crowd/commitlog/{segment.name}", segment.read_bytes())
    for number in range(count):
        server.place(f"crowd/commitlog/{number:019d}", b"x")
    server.faults = asked = Faults()
    url = f"s3://{BUCKET}/crowd"
    assert read_messages(root).read_all() == read_messages(url, storage=server.settings).read_all()
    assert 3 + count // 1000 >= asked.lists


def test_keys_that_look_like_segments_or_directories_are_left_out(server: ObjectStore, tmp_path: Path) -> None:
    root = make_log(tmp_path, 2 * _SEGMENT, _SEGMENT, 300)
    for segment in (root / "commitlog").iterdir():
        server.place(f"like/commitlog/{segment.name}", segment.read_bytes())
    beside = [
        f"like/commitlog/{2 * _SEGMENT:020d}/inner",  # a directory with a segment's name
        f"like/commitlog/{3 * _SEGMENT:020d}/",  # an empty "directory"
        f"like/commitlog/ {4 * _SEGMENT:020d}",
        f"like/commitlog/{5 * _SEGMENT:020d}.bak",
        f"like/commitlog/-{_SEGMENT:019d}",
        "like/commitlog/\uff10" + f"{6 * _SEGMENT:019d}",  # a digit of another script
        "like/commitlog/99999999999999999999",
        f"like/{7 * _SEGMENT:020d}",  # beside the log
        f"like/commitlog-old/{8 * _SEGMENT:020d}",
    ]
    for key in beside:
        server.place(key, b"" if key.endswith("/") else b"x")
    url = f"s3://{BUCKET}/like"
    assert read_messages(root).read_all() == read_messages(url, storage=server.settings).read_all()


def test_empty_directory_has_nothing_to_read(server: ObjectStore) -> None:
    server.place("void/commitlog/", b"")
    with pytest.raises(StoreNotFoundError, match=f"s3://{BUCKET}/void"):
        read_messages(f"s3://{BUCKET}/void", storage=server.settings)
