# SPDX-License-Identifier: Apache-2.0
"""Consecutive segments: finding, making, loading, flushing, deleting them, also by age."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from store_core.errors import SegmentLayoutError
from store_core.files.file_system import OsFileSystem
from store_core.files.mapped_file import file_name_of
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.segment_listing import SegmentPaths
from store_core.store.clean import ExpiryRule, delete_expired_file_by_time

if TYPE_CHECKING:
    from store_core.files.mapped_file import MappedFile
    from tests.golden_stores import UnpackedStore
    from tests.store_core.fakes import FakeClock, FaultyFileSystem


SIZE = 1024


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "commitlog"


@pytest.fixture
def queue(directory: Path, disk: FaultyFileSystem) -> MappedFileQueue:
    return MappedFileQueue(SegmentPaths((directory,)), SIZE, disk)


def last(queue: MappedFileQueue, start_offset: int = 0) -> MappedFile:
    file = queue.get_last_mapped_file(start_offset)
    assert file is not None
    return file


def append(queue: MappedFileQueue, data: bytes) -> None:
    """Append bytes as if there were no file boundaries."""
    while data:
        file = last(queue)
        room = file.file_size - file.wrote_position
        assert file.append(data[:room])
        data = data[room:]


def names(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.iterdir())


def starts(queue: MappedFileQueue) -> list[int]:
    return [file.file_from_offset for file in queue.mapped_files]


def put_file(directory: Path, name: str, size: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(bytes(size))


# ---- one byte space


def test_a_file_that_can_not_be_made_is_none_and_the_next_try_is_new(
    queue: MappedFileQueue, disk: FaultyFileSystem
) -> None:
    disk.fail("open", errno.ENOSPC)

    assert queue.get_last_mapped_file() is None
    assert queue.create_error is not None
    assert queue.create_error.errno == errno.ENOSPC
    assert queue.mapped_files == ()
    assert queue.get_last_mapped_file() is not None
    assert queue.create_error is None


# ---- finding


def test_a_time_finds_the_first_file_changed_since(queue: MappedFileQueue, directory: Path) -> None:
    for index, changed in enumerate((100, 200, 200, 300)):
        put_file(directory, file_name_of(index * SIZE), SIZE)
        os.utime(directory / file_name_of(index * SIZE), (changed, changed))
    queue.load()

    def found(timestamp_ms: int) -> int:
        file = queue.get_mapped_file_by_time(timestamp_ms)
        assert file is not None
        return file.file_from_offset // SIZE

    assert [found(time) for time in (0, 100_000, 100_001, 200_000, 200_001, 300_000, 300_001)] == [0, 0, 1, 1, 3, 3, 3]


def test_an_empty_queue_knows_no_time(queue: MappedFileQueue) -> None:
    assert queue.get_mapped_file_by_time(0) is None
    assert (queue.min_offset, queue.max_offset, queue.max_wrote_position) == (-1, 0, 0)


# ---- loading


def test_loaded_files_count_as_full(queue: MappedFileQueue, directory: Path, disk: FaultyFileSystem) -> None:
    for offset in (SIZE, 2 * SIZE):
        put_file(directory, file_name_of(offset), SIZE)
    notes = queue.load()

    assert notes == ()
    assert starts(queue) == [SIZE, 2 * SIZE]
    for file in queue.mapped_files:
        assert (file.wrote_position, file.committed_position, file.flushed_position) == (SIZE, SIZE, SIZE)
    assert disk.count("open") == 0
    assert last(queue).file_from_offset == 3 * SIZE


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_a_right_sized_file_with_another_name_is_refused(queue: MappedFileQueue, directory: Path, release: str) -> None:
    put_file(directory, file_name_of(0), SIZE)
    put_file(directory, file_name_of(0) + ".bak", SIZE)
    with pytest.raises(SegmentLayoutError, match="expected its start offset"):
        queue.load(release)


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
@pytest.mark.parametrize("offset", [0, SIZE, 2 * SIZE])
def test_a_link_to_nothing_is_refused_and_stays(
    queue: MappedFileQueue, directory: Path, offset: int, release: str
) -> None:
    for each in (0, SIZE, 2 * SIZE):
        put_file(directory, file_name_of(each), SIZE)
    link = directory / file_name_of(offset)
    link.unlink()
    link.symlink_to(directory / "gone")

    with pytest.raises(SegmentLayoutError, match=f"{link} is a link: what it points to is not there"):
        queue.load(release)
    assert link.is_symlink()


DIRECTORY = -1
"""In place of a size."""

ODD_ENTRIES = {
    **{
        f"{release}: a file of {size} bytes": (
            release,
            {0: size, SIZE: SIZE},
            f"found {size} bytes. RocketMQ {release} re",
        )
        for release in ("4.9", "5.3")
        for size in (0, 1, SIZE - 1, SIZE + 1)
    },
    **{
        f"4.3: a file of {size} bytes": (
            "4.3",
            {0: SIZE, SIZE: size, 2 * SIZE: SIZE, 3 * SIZE: SIZE},
            f"found {size} bytes: loading ends here, 2 later entries are left out",
        )
        for size in (0, 1, SIZE + 1)
    },
    "5.3: an empty last file": ("5.3", {0: SIZE, SIZE: 0}, "has no bytes"),
    "4.9: an empty last file": ("4.9", {0: SIZE, SIZE: 0}, "found 0 bytes. RocketMQ 4.9 refuses"),
    "5.3: a directory": ("5.3", {0: SIZE, SIZE: DIRECTORY}, "skipped the directory"),
    "4.9: a directory": ("4.9", {0: SIZE, SIZE: DIRECTORY}, "found a directory. RocketMQ 4.9 refuses"),
    "4.3: a directory": ("4.3", {0: SIZE, SIZE: DIRECTORY}, "found a directory: loading ends here"),
}


@pytest.mark.parametrize(("release", "entries", "told"), ODD_ENTRIES.values(), ids=ODD_ENTRIES)
def test_a_release_refuses_skips_deletes_or_ends_at_what_is_no_file_of_the_queue(
    queue: MappedFileQueue, directory: Path, release: str, entries: dict[int, int], told: str
) -> None:
    for offset, size in entries.items():
        if size == DIRECTORY:
            (directory / file_name_of(offset)).mkdir()
        else:
            put_file(directory, file_name_of(offset), size)
    if "RocketMQ" in told:
        with pytest.raises(SegmentLayoutError, match=told):
            queue.load(release)
        assert names(directory) == list(entries)
        return
    (note,) = queue.load(release)

    assert told in note
    assert starts(queue) == [0]
    assert names(directory) == ([0] if "has no bytes" in told else list(entries))


def test_a_read_only_queue_deletes_nothing(directory: Path, disk: FaultyFileSystem) -> None:
    put_file(directory, file_name_of(0), 0)
    queue = MappedFileQueue(SegmentPaths((directory,)), SIZE, disk, writable=False)

    assert len(queue.load("5.3")) == 1
    assert names(directory) == [0]


@pytest.mark.golden
def test_real_stores_load_with_the_rules_of_their_release(golden_store: UnpackedStore, disk: FaultyFileSystem) -> None:
    directory = golden_store.root / "commitlog"
    size = golden_store.segments[0].stat().st_size
    queue = MappedFileQueue(SegmentPaths((directory,)), size, disk, writable=False)

    assert queue.load(golden_store.golden.release) == ()
    assert [file.path for file in queue.mapped_files] == golden_store.segments
    assert queue.check_self() == ()
    view = queue.mapped_files[0].select(0)
    assert view is not None
    assert bytes(view) == golden_store.segments[0].read_bytes()


# ---- deleting


@pytest.mark.parametrize(
    ("offset", "kept"),
    [
        (0, [0]),
        (10, [0]),
        (1023, [0]),
        (1024, [0, 1024]),
        (1025, [0, 1024]),
        (3071, [0, 1024, 2048]),
        (9999, [0, 1024, 2048]),
    ],
)
def test_truncation_ends_the_queue_where_it_is_told(
    queue: MappedFileQueue, directory: Path, offset: int, kept: list[int]
) -> None:
    for start in (0, SIZE, 2 * SIZE):
        put_file(directory, file_name_of(start), SIZE)
    queue.load()
    queue.truncate_dirty_files(offset)

    assert starts(queue) == names(directory) == kept
    assert queue.max_offset == min(offset, 3 * SIZE)


def test_truncation_deletes_the_last_file_first(queue: MappedFileQueue, disk: FaultyFileSystem) -> None:
    append(queue, b"x" * 4 * SIZE)
    disk.fail("remove", errno.EIO, after=1)
    with pytest.raises(OSError, match="Input/output error"):
        queue.truncate_dirty_files(10)

    assert [name for call, name in disk.calls if call == "remove"] == [file_name_of(3 * SIZE), file_name_of(2 * SIZE)]
    assert starts(queue) == [0, SIZE, 2 * SIZE]


def test_the_last_file_can_be_deleted(queue: MappedFileQueue, directory: Path) -> None:
    append(queue, b"x" * 2 * SIZE)
    queue.delete_last_mapped_file()

    assert starts(queue) == names(directory) == [0]
    queue.delete_last_mapped_file()
    queue.delete_last_mapped_file()
    assert starts(queue) == []


def test_a_first_file_that_could_not_be_deleted_goes_later(
    queue: MappedFileQueue, directory: Path, disk: FaultyFileSystem
) -> None:
    append(queue, b"x" * 2 * SIZE)
    queue.retry_delete_first_file()
    assert starts(queue) == [0, SIZE]
    disk.fail("remove", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        queue.mapped_files[0].destroy()
    queue.retry_delete_first_file()

    assert starts(queue) == names(directory) == [SIZE]


def test_destroying_a_queue_leaves_nothing(queue: MappedFileQueue, directory: Path) -> None:
    append(queue, b"x" * 3 * SIZE)
    queue.flush(0)
    queue.destroy()

    assert not directory.exists()
    assert (queue.max_offset, queue.flushed_where) == (0, 0)


def test_destroying_a_queue_leaves_what_is_not_its_own(queue: MappedFileQueue, directory: Path) -> None:
    append(queue, b"x")
    (directory / "notes").write_text("mine")
    queue.destroy()

    assert [path.name for path in directory.iterdir()] == ["notes"]


@pytest.mark.parametrize("size", [0, -1])
def test_a_file_size_is_positive(directory: Path, disk: FaultyFileSystem, size: int) -> None:
    with pytest.raises(ValueError, match="file_size must be positive"):
        MappedFileQueue(SegmentPaths((directory,)), size, disk)


def test_files_of_a_queue_that_must_not_be_written_stay_on_disk(
    queue: MappedFileQueue, directory: Path, disk: FaultyFileSystem
) -> None:
    append(queue, bytes(index % 251 + 1 for index in range(2 * SIZE + 10)))
    reader = MappedFileQueue(SegmentPaths((directory,)), SIZE, disk, writable=False)
    reader.load()

    reader.truncate_dirty_files(SIZE + 7)
    assert [0, SIZE] == starts(reader)
    assert SIZE + 7 == reader.max_offset
    reader.destroy()
    assert [] == starts(reader)
    assert [0, SIZE, 2 * SIZE] == names(directory)


def _segments_open(directory: Path) -> int:
    """Count this process's descriptors of files in a directory, also of those that had no name when they were made."""
    made = {path.stat().st_ino for path in directory.iterdir()}
    return sum(
        descriptor.stat().st_ino in made for descriptor in Path("/proc/self/fd").iterdir() if descriptor.exists()
    )


def test_few_segments_stay_open_and_those_that_are_not_synced_do(directory: Path) -> None:
    queue = MappedFileQueue(SegmentPaths((directory,)), SIZE, OsFileSystem(), max_open=3)
    append(queue, bytes(range(250)) * 4 * 20)
    unsynced = len(queue.mapped_files)

    assert _segments_open(directory) == unsynced

    while not queue.flush(0):
        pass

    assert _segments_open(directory) == 3

    read = b"".join(bytes(file.select(0, file.wrote_position) or b"") for file in queue.mapped_files)

    assert read == bytes(range(250)) * 4 * 20
    assert _segments_open(directory) <= 6  # each with its mapping's

    append(queue, b"more")
    while not queue.flush(0):
        pass

    assert bytes(last(queue).select(last(queue).wrote_position - 4, 4) or b"") == b"more"

    queue.close()

    assert _segments_open(directory) == 0


HOUR_MS = 3_600_000
RULE = ExpiryRule(72 * HOUR_MS, 0.1, 10)


@pytest.fixture
def aged_queue(tmp_path: Path, disk: FaultyFileSystem, clock: FakeClock) -> MappedFileQueue:
    """Five full files and a begun one, changed 6, 5, ... 1 hours ago."""
    made = MappedFileQueue(SegmentPaths((tmp_path,)), SIZE, disk)
    for index in range(6):
        file = made.get_last_mapped_file()
        assert file is not None
        file.append(b"x" * (SIZE if index < 5 else 10))
        set_age(made, index, 6 - index, clock)
    return made


def set_age(aged_queue: MappedFileQueue, index: int, hours: int, clock: FakeClock) -> None:
    changed = (clock.now_ms() - hours * HOUR_MS) * 1_000_000
    os.utime(aged_queue.mapped_files[index].path, ns=(changed, changed))


def rule(hours: int, batch_max: int = 10) -> ExpiryRule:
    return replace(RULE, reserved_ms=hours * HOUR_MS, batch_max=batch_max)


def left(aged_queue: MappedFileQueue) -> list[int]:
    return [file.file_from_offset // SIZE for file in aged_queue.mapped_files]


def on_disk(aged_queue: MappedFileQueue) -> list[int]:
    return sorted(int(path.name) // SIZE for path in aged_queue.paths.paths[0].iterdir())


@pytest.mark.parametrize(
    ("asked", "young", "at_once", "expected"),
    [
        (rule(7), None, False, [0, 1, 2, 3, 4, 5]),
        (replace(RULE, reserved_ms=6 * HOUR_MS + 1), None, False, [0, 1, 2, 3, 4, 5]),
        (rule(6), None, False, [1, 2, 3, 4, 5]),
        (rule(4), None, False, [3, 4, 5]),
        (rule(0), None, False, [5]),  # the last file stays however old
        (rule(2), 1, False, [1, 2, 3, 4, 5]),  # a young file protects the old ones behind it
        (RULE, None, True, [5]),  # at once means whatever the age
        (rule(0, batch_max=2), None, False, [2, 3, 4, 5]),
    ],
)
def test_files_go_from_the_age_on(
    aged_queue: MappedFileQueue,
    clock: FakeClock,
    asked: ExpiryRule,
    young: int | None,
    at_once: bool,
    expected: list[int],
) -> None:
    if young is not None:
        set_age(aged_queue, young, 0, clock)
    deleted = delete_expired_file_by_time(aged_queue, asked, clock, clean_at_once=at_once)

    assert expected == left(aged_queue) == on_disk(aged_queue)
    assert 6 - len(expected) == deleted


def test_there_is_a_pause_between_two_deletions(aged_queue: MappedFileQueue, clock: FakeClock) -> None:
    delete_expired_file_by_time(aged_queue, rule(0), clock)

    assert [0.1] * 4 == clock.slept


def test_what_the_system_refuses_to_delete_is_tried_again(
    aged_queue: MappedFileQueue, disk: FaultyFileSystem, clock: FakeClock
) -> None:
    disk.fail("remove", errno.EIO, after=1)
    with pytest.raises(OSError, match="Input/output"):
        delete_expired_file_by_time(aged_queue, rule(0), clock)
    after_failure = left(aged_queue)

    assert [1, 2, 3, 4, 5] == after_failure
    assert 4 == delete_expired_file_by_time(aged_queue, rule(0), clock)
    assert [5] == on_disk(aged_queue)


def test_flushing_goes_on_behind_files_deleted_unflushed(aged_queue: MappedFileQueue, clock: FakeClock) -> None:
    aged_queue.flush(0)
    behind = aged_queue.flushed_where
    delete_expired_file_by_time(aged_queue, rule(0), clock)
    unchanged = aged_queue.flush(0)

    assert SIZE == behind
    assert not unchanged
    assert aged_queue.flushed_where == aged_queue.max_offset


def test_committing_goes_on_behind_files_deleted_uncommitted(aged_queue: MappedFileQueue, clock: FakeClock) -> None:
    aged_queue.commit(0)
    delete_expired_file_by_time(aged_queue, rule(0), clock)

    assert not aged_queue.commit(0)
    assert aged_queue.committed_where == aged_queue.max_offset
