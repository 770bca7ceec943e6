# SPDX-License-Identifier: Apache-2.0
"""One segment: its positions, its page rules, the order of its writes, and what remains of a failed append."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import SegmentLayoutError
from store_core.files.mapped_file import (
    OS_PAGE_SIZE,
    RECORD_SEAL,
    MappedFile,
    TransientStorePool,
    commit_steps,
    file_name_of,
    offset_of,
)
from store_core.format.message import AppendMessageResult, AppendMessageStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.files.mapped_file import AppendCallback
    from tests.store_core.fakes import FaultyFileSystem


SIZE = 1 << 16
START = 3 * SIZE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "commitlog" / file_name_of(START)


@pytest.fixture
def make(path: Path, disk: FaultyFileSystem) -> Callable[..., MappedFile]:
    def made(pool: TransientStorePool | None = None, size: int = SIZE) -> MappedFile:
        return MappedFile.create(path, size, disk, pool)

    return made


@pytest.fixture
def file(make: Callable[..., MappedFile]) -> MappedFile:
    return make()


def writing(
    data: bytes, status: AppendMessageStatus = AppendMessageStatus.PUT_OK, wrote_bytes: int | None = None, time: int = 7
) -> AppendCallback:
    """Return a callback that puts `data` into the view and claims `wrote_bytes`."""

    def callback(file_from_offset: int, view: memoryview, room: int) -> AppendMessageResult:
        assert len(view) == room
        view[: len(data)] = data
        claimed = len(data) if wrote_bytes is None else wrote_bytes
        return AppendMessageResult(status, file_from_offset, claimed, store_timestamp=time)

    return callback


def seen(file: MappedFile, position: int = 0, size: int | None = None) -> bytes | None:
    view = file.select(position, size)
    return None if view is None else bytes(view)


def positions(file: MappedFile) -> tuple[int, int, int]:
    return file.wrote_position, file.committed_position, file.flushed_position


# ---- names


@pytest.mark.parametrize(
    ("name", "offset"), [("1024", 1024), ("+7", 7), ("-5", -5), ("000000000000000000000000001", 1)]
)
def test_a_name_need_not_be_padded(name: str, offset: int, tmp_path: Path) -> None:
    assert offset_of(tmp_path / name) == offset


@pytest.mark.parametrize(
    "name", ["", "x", "12a", " 12", "1_0", "--1", "\u0661\u0662", "9223372036854775808", "9" * 5000]
)
def test_a_name_that_is_no_64_bit_integer_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SegmentLayoutError, match="expected its start offset"):
        offset_of(tmp_path / "sub" / (name or ".."))


# ---- appending


def test_a_new_file_takes_no_blocks_of_the_disk(make: Callable[..., MappedFile], path: Path) -> None:
    make(size=1 << 30)

    assert path.stat().st_size == 1 << 30
    assert path.stat().st_blocks < 64


def test_a_refusing_callback_leaves_file_and_time_alone(file: MappedFile, path: Path) -> None:
    refusal = writing(b"half a rec", AppendMessageStatus.MESSAGE_SIZE_EXCEEDED, 0)

    assert file.append_with(refusal).status is AppendMessageStatus.MESSAGE_SIZE_EXCEEDED
    assert (file.wrote_position, file.store_timestamp) == (0, 0)
    assert path.read_bytes() == bytes(SIZE)


def test_a_callback_that_fails_leaves_nothing(file: MappedFile, path: Path) -> None:
    def callback(_: int, view: memoryview, __: int) -> AppendMessageResult:
        view[:4] = b"half"
        raise KeyError

    with pytest.raises(KeyError):
        file.append_with(callback)

    assert file.wrote_position == 0
    assert path.read_bytes() == bytes(SIZE)


@pytest.mark.parametrize("claimed", [-1, SIZE + 1])
def test_a_callback_can_not_claim_more_than_there_is(file: MappedFile, claimed: int) -> None:
    with pytest.raises(ValueError, match="claims to have written"):
        file.append_with(writing(b"x", wrote_bytes=claimed))

    assert file.wrote_position == 0


# ---- page rules


def test_page_borders_decide_and_not_how_many_bytes_there_are(file: MappedFile) -> None:
    file.append(b"x" * 4095)
    file.flush(0)
    file.append(b"x")

    assert file.flush(1) == 4096
    file.append(b"x" * 4095)
    assert file.flush(1) == 4096


def test_the_first_flush_of_a_new_file_also_syncs_its_directory(file: MappedFile, disk: FaultyFileSystem) -> None:
    disk.calls.clear()
    for data in (b"one", b"two"):
        file.append(data)
        file.flush(0)
    name = file_name_of(START)

    assert disk.calls == [
        ("write", name),
        ("sync", name),
        ("sync_directory", "commitlog"),
        ("write", name),
        ("sync", name),
    ]


def test_what_comes_during_a_flush_is_not_counted_as_flushed(file: MappedFile, disk: FaultyFileSystem) -> None:
    file.append(b"one")

    def append_meanwhile() -> None:
        file.append(b"late")

    disk.before["sync"] = append_meanwhile

    assert file.flush(0) == 3
    assert file.wrote_position == 7


# ---- write buffer


def test_of_a_blank_record_in_the_write_buffer_all_that_is_left_is_committed(
    make: Callable[..., MappedFile], path: Path
) -> None:
    file = make(TransientStorePool(1, SIZE))
    file.append_with(writing(b"roomMAGI", AppendMessageStatus.END_OF_FILE, SIZE))
    file.commit(0)

    assert path.read_bytes() == b"roomMAGI" + bytes(SIZE - 8)


def test_closing_loses_what_was_not_committed_and_says_so(make: Callable[..., MappedFile]) -> None:
    pool = TransientStorePool(1, SIZE)
    file = make(pool)
    file.append(b"one")
    file.commit(0)
    file.append(b"two")
    file.close()

    assert file.wrote_position == file.read_position == 3
    assert pool.available_buffers == 1


# ---- a disk that is full, or fails


def test_a_full_disk_is_a_status_and_leaves_nothing(file: MappedFile, disk: FaultyFileSystem, path: Path) -> None:
    file.append_with(writing(b"one"))
    disk.free_blocks = 1
    result = file.append_with(writing(b"x" * 10_000, time=99))

    assert result.status is AppendMessageStatus.UNKNOWN_ERROR
    assert file.write_error is not None
    assert file.write_error.errno == errno.ENOSPC
    assert (file.wrote_position, file.store_timestamp) == (3, 7)
    assert path.read_bytes() == b"one" + bytes(SIZE - 3)


def test_half_a_record_that_could_not_be_erased_is_erased_first_thing(
    file: MappedFile, disk: FaultyFileSystem, path: Path
) -> None:
    disk.fail("write", errno.EIO, times=2, after=1)
    disk.free_blocks = 1
    with pytest.raises(OSError, match="Input/output error"):
        file.append(b"x" * 10_000)

    assert path.read_bytes()[:4096] == b"x" * 4096

    disk.fail("write", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.append(b"one")
    disk.heal()

    assert file.append(b"one")
    assert path.read_bytes() == b"one" + bytes(SIZE - 3)


def append_in_bulk(file: MappedFile) -> None:
    file.append(b"SIZErecord", seal=RECORD_SEAL)


def append_one(file: MappedFile) -> None:
    file.append_with(writing(b"SIZErecord"))


def append_and_commit(file: MappedFile) -> None:
    file.append(b"SIZErecord")
    file.commit(0)


@pytest.mark.parametrize(("put", "buffers"), [(append_in_bulk, 0), (append_one, 0), (append_and_commit, 1)])
def test_the_first_bytes_of_a_record_are_written_last(
    make: Callable[..., MappedFile], disk: FaultyFileSystem, path: Path, put: Callable[[MappedFile], None], buffers: int
) -> None:
    file = make(TransientStorePool(buffers, SIZE) if buffers else None)
    before: list[bytes] = []
    disk.before["write"] = lambda: before.append(path.read_bytes()[:11])
    put(file)

    assert before == [bytes(11), b"\0\0\0\0record\0"]
    assert path.read_bytes()[:11] == b"SIZErecord\0"


def test_a_commit_that_failed_is_tried_again(
    make: Callable[..., MappedFile], disk: FaultyFileSystem, path: Path
) -> None:
    file = make(TransientStorePool(1, SIZE))
    file.append(b"one")
    disk.fail("write", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.commit(0)

    assert positions(file) == (3, 0, 0)
    assert file.commit(0) == 3
    assert path.read_bytes()[:4] == b"one\0"


def test_blocks_can_be_taken_ahead(path: Path, disk: FaultyFileSystem) -> None:
    file = MappedFile.create(path, SIZE, disk, reserve=True)

    assert path.stat().st_blocks * 512 >= SIZE
    assert file.append(b"one")


def test_a_file_that_finds_no_blocks_is_not_there(path: Path, disk: FaultyFileSystem) -> None:
    disk.free_blocks = 3
    with pytest.raises(OSError, match="No space left"):
        MappedFile.create(path, SIZE, disk, reserve=True)

    assert not path.exists()


def test_a_file_system_that_can_not_reserve_is_fine(path: Path, disk: FaultyFileSystem) -> None:
    disk.fail("reserve", errno.EOPNOTSUPP)

    assert MappedFile.create(path, SIZE, disk, reserve=True).append(b"one")


def test_a_file_that_is_there_is_taken_with_its_bytes(path: Path, disk: FaultyFileSystem) -> None:
    path.parent.mkdir()
    path.write_bytes(b"old bytes")
    file = MappedFile.create(path, SIZE, disk)

    assert not file.segment.is_new
    assert file.wrote_position == 0
    assert path.read_bytes() == b"old bytes" + bytes(SIZE - 9)


def test_a_longer_file_is_refused_and_stays(path: Path, disk: FaultyFileSystem) -> None:
    path.parent.mkdir()
    path.write_bytes(bytes(SIZE + 1))
    with pytest.raises(FileExistsError, match=f"expected at most {SIZE} bytes, found {SIZE + 1}"):
        MappedFile.create(path, SIZE, disk)

    assert path.stat().st_size == SIZE + 1


# ---- moving the end


def test_bytes_behind_the_end_stay_unless_they_are_cleared(file: MappedFile, path: Path) -> None:
    file.append(b"onetwothree")
    file.set_position(6)

    assert path.read_bytes()[:12] == b"onetwothree\0"
    assert seen(file) == b"onetwo"

    file.set_position(3, clear_tail=True)

    assert path.read_bytes() == b"one" + bytes(SIZE - 3)
    assert positions(file) == (3, 3, 3)


def test_clearing_a_tail_fills_no_holes(make: Callable[..., MappedFile], path: Path) -> None:
    file = make(size=1 << 30)
    file.append(b"x" * 10_000)
    file.set_position(1, clear_tail=True)

    assert path.stat().st_blocks < 64


def test_a_tail_that_can_not_be_cleared_leaves_the_end_where_it_is(file: MappedFile, disk: FaultyFileSystem) -> None:
    file.append(b"onetwo")
    disk.fail("write", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.set_position(3, clear_tail=True)

    assert file.wrote_position == 6


# ---- deleting


def test_a_deletion_that_failed_can_be_tried_again(file: MappedFile, disk: FaultyFileSystem, path: Path) -> None:
    disk.fail("remove", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.destroy()

    file.destroy()
    assert not path.exists()


def test_a_destroyed_file_is_not_synced_any_more(file: MappedFile, disk: FaultyFileSystem) -> None:
    file.append(b"one")
    file.destroy()
    syncs = disk.count("sync")

    assert file.flush(0) == 3
    assert disk.count("sync") == syncs


SIZES = st.lists(st.one_of(st.integers(8, 300), st.integers(300, 3 * OS_PAGE_SIZE)), min_size=1, max_size=40)


def records_of(sizes: list[int]) -> bytes:
    return b"".join(size.to_bytes(RECORD_SEAL, "big") + b"x" * (size - RECORD_SEAL) for size in sizes)


def writes_of(data: bytes, position: int) -> list[tuple[int, bytes]]:
    """Return the calls of ``pwrite``: where, and what."""
    calls = []
    for part, seal in commit_steps(memoryview(data), position):
        piece = data[part]
        if seal:
            calls.append((position + part.start + seal, piece[seal:]))
        calls.append((position + part.start, piece[:seal] if seal else piece))
    return calls


@given(SIZES, st.integers(0, 3 * OS_PAGE_SIZE), st.data())
def test_a_kill_at_any_page_of_any_write_leaves_whole_records_and_nothing_that_looks_like_one(
    sizes: list[int], position: int, data: st.DataObject
) -> None:
    records = records_of(sizes)
    calls = writes_of(records, position)
    last = data.draw(st.integers(0, len(calls) - 1))
    file = bytearray(position + len(records))
    for where, what in calls[:last]:
        file[where : where + len(what)] = what
    where, what = calls[last]
    pages = range(where - where % OS_PAGE_SIZE + OS_PAGE_SIZE, where + len(what), OS_PAGE_SIZE)
    done = data.draw(st.sampled_from([0, len(what), *(page - where for page in pages)]))
    file[where : where + done] = what[:done]

    at, number = position, 0
    while number < len(sizes) and file[at : at + sizes[number]] == records_of([sizes[number]]):
        at += sizes[number]
        number += 1
    begun = sizes[number] if number < len(sizes) else 0

    assert not any(file[at + begun :])
    is_split = at // OS_PAGE_SIZE != (at + RECORD_SEAL - 1) // OS_PAGE_SIZE  # of its size, a part may be there
    assert is_split or not any(file[at : at + min(begun, RECORD_SEAL)])


@given(SIZES, st.integers(0, 3 * OS_PAGE_SIZE))
def test_all_is_written_once(sizes: list[int], position: int) -> None:
    records = records_of(sizes)
    file = bytearray(position + len(records))
    calls = writes_of(records, position)
    for where, what in calls:
        file[where : where + len(what)] = what

    assert file[position:] == records
    assert len(records) == sum(len(what) for _, what in calls)


@pytest.mark.parametrize("data", [b"abc", b"\0\0\0\0rest", b"\0\0\0\x09end", b"\xff\xff\xff\xffrest", b""])
def test_what_is_no_record_is_one_write(data: bytes) -> None:
    assert [data] if data else [] == [data[part] for part, _ in commit_steps(memoryview(data), 0)]


def test_small_records_are_written_by_pages() -> None:
    calls = writes_of(records_of([100] * 1000), 0)

    assert len(calls) < 3.5 * 100_000 / OS_PAGE_SIZE
