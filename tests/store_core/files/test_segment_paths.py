# SPDX-License-Identifier: Apache-2.0
"""A commit log over several directories: which of them gets the next file."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from store_core.errors import SegmentLayoutError
from store_core.files.mapped_file_queue import AllocateMappedFileService, MappedFileQueue
from store_core.files.segment_file import file_name_of
from store_core.files.segment_paths import SegmentPaths

if TYPE_CHECKING:
    from tests.store_core.fakes import FakeClock, FaultyFileSystem

SIZE = 1024
A, B, C = Path("/a/log"), Path("/b/log"), Path("/c/log")


def spread(queue: MappedFileQueue, files: int) -> list[str]:
    """Fill this number of files, and return their directories."""
    for _ in range(files):
        file = queue.get_last_mapped_file()
        assert file is not None
        file.append(bytes(SIZE))
    return [file.path.parent.name for file in queue.mapped_files]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("/a/log", (A,)),
        ("/a/log,/b/log", (A, B)),
        (" /a/log , /b/log ,", (A, B)),
        ("", ()),
    ],
)
def test_several_paths_are_written_with_commas(text: str, paths: tuple[Path, ...]) -> None:
    assert SegmentPaths.parse(text).paths == paths


def test_files_go_round_the_directories_by_their_index() -> None:
    paths = SegmentPaths((C, A, B))

    assert [paths.next_files(index * SIZE, SIZE)[0].parent for index in range(5)] == [A, B, C, A, B]


def test_the_file_made_ahead_is_where_the_next_one_will_be() -> None:
    paths = SegmentPaths((A, B))
    for offset in range(0, 5 * SIZE, SIZE):
        assert paths.next_files(offset, SIZE)[1] == paths.next_files(offset + SIZE, SIZE)[0]


def test_read_only_and_full_directories_get_no_files() -> None:
    assert SegmentPaths((A, B, C), (B,), lambda: (A,)).candidates() == [C]


def test_when_all_are_full_all_that_are_writable_are_used() -> None:
    assert SegmentPaths((A, B, C), (B,), lambda: (A, C)).candidates() == [A, C]


def test_read_only_paths_alone_take_no_files() -> None:
    with pytest.raises(OSError, match="all commit log paths are read-only") as caught:
        SegmentPaths((A,), (A,)).next_files(0, SIZE)

    assert caught.value.errno == errno.EROFS


def test_a_log_is_spread_and_loaded_again(tmp_path: Path, disk: FaultyFileSystem) -> None:
    paths = SegmentPaths((tmp_path / "a", tmp_path / "b", tmp_path / "c"))
    queue = MappedFileQueue(paths, SIZE, disk)

    assert spread(queue, 5) == ["a", "b", "c", "a", "b"]

    again = MappedFileQueue(SegmentPaths((tmp_path / "c", tmp_path / "b"), (tmp_path / "a",)), SIZE, disk)
    again.load()

    assert [file.file_from_offset for file in again.mapped_files] == [0, 1024, 2048, 3072, 4096]
    assert spread(again, 3)[5:] == ["c", "b", "c"]


def test_a_directory_that_fills_up_is_left_out_from_then_on(tmp_path: Path, disk: FaultyFileSystem) -> None:
    full: set[Path] = set()
    queue = MappedFileQueue(SegmentPaths((tmp_path / "a", tmp_path / "b"), (), lambda: full), SIZE, disk)

    assert spread(queue, 2) == ["a", "b"]
    full.add(tmp_path / "a")
    assert spread(queue, 2) == ["a", "b", "b", "b"]
    full.add(tmp_path / "b")
    assert spread(queue, 2) == ["a", "b", "b", "b", "a", "b"]


def test_two_files_of_one_name_are_refused(tmp_path: Path, disk: FaultyFileSystem) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / file_name_of(0)).write_bytes(bytes(SIZE))
    queue = MappedFileQueue(SegmentPaths((tmp_path / "a", tmp_path / "b")), SIZE, disk)
    with pytest.raises(SegmentLayoutError, match="two files claim offset"):
        queue.load()


def test_a_file_made_ahead_in_a_directory_that_filled_up_is_taken_back(
    tmp_path: Path, disk: FaultyFileSystem, clock: FakeClock
) -> None:
    full: set[Path] = set()
    service = AllocateMappedFileService(disk, clock)
    clock.while_waiting = service.run_once
    paths = SegmentPaths((tmp_path / "a", tmp_path / "b"), (), lambda: full)
    queue = MappedFileQueue(paths, SIZE, disk, service)

    assert spread(queue, 1) == ["a"]
    assert (tmp_path / "b" / file_name_of(SIZE)).exists()
    full.add(tmp_path / "b")
    assert spread(queue, 1) == ["a", "a"]
    assert not (tmp_path / "b" / file_name_of(SIZE)).exists()
