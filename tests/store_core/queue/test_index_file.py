# SPDX-License-Identifier: Apache-2.0
"""One index file: its bytes, look-ups and walks of chains, when it is flushed to disk, and broken files."""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import SegmentLayoutError
from store_core.files.file_system import OsFileSystem
from store_core.format.columnar.java_hashes import positive_hashes
from store_core.format.java import hash_code, positive_hash
from store_core.queue import index_file
from store_core.queue.index_file import IndexFile, IndexQuery, walk_chain
from store_core.queue.index_format import (
    INDEX_DTYPE,
    INDEX_HEADER_SIZE,
    IndexEntries,
    IndexHeader,
    IndexSlots,
    build_entries,
    time_diff,
)
from tests.store_core.fakes import FaultyFileSystem
from tests.store_core.queue.index_builders import ALWAYS, rules

if TYPE_CHECKING:
    from store_core.queue.queue_path import QueueRules


_BEGIN: Final = 1_000_000


def _new(directory: Path, of: QueueRules, disk: FaultyFileSystem | None = None) -> IndexFile:
    return IndexFile.create(directory / "20240101000000000", of, disk or FaultyFileSystem())


def _entries(file: IndexFile, of: QueueRules) -> list[tuple[int, ...]]:
    data = file.path.read_bytes()[INDEX_HEADER_SIZE + 4 * of.max_hash_slot_num :]
    return list(struct.iter_unpack(">iqii", data))


@pytest.mark.parametrize(("release", "count"), [("4.3", 12), ("4.9", 3), ("5.3", 3)])
def test_hash_slot_count_counts_entries_or_slots_by_release(release: str, count: int, tmp_path: Path) -> None:
    of = rules(100, 50, release=release)
    one, many = _new(tmp_path / "one", of), _new(tmp_path / "many", of)
    keys = ["T#a", "T#b", "T#c"] * 4
    for key in keys:
        one.put_key(key, 1, 1)
    many.put_entries(IndexEntries(np.array([hash_code(key) for key in keys], np.int32), *[np.ones(12, np.int64)] * 2))

    assert count == one.header.hash_slot_count == many.header.hash_slot_count


@pytest.mark.parametrize(
    ("store", "begin", "expected"),
    [
        (5_999, 1_000, 4),
        (999, 1_000, 0),
        (5_000, 0, 0),
        (5_000, -1, 0),
        (2**62, 1, 2**31 - 1),
        (-(2**63), 2, 2**31 - 1),  # the difference wraps
        (-(2**63), 1, 2**31 - 1),
        (2**63 - 1, 2**63 - 1, 0),
    ],
)
def test_time_differences_are_whole_seconds_in_32_bits(store: int, begin: int, expected: int) -> None:
    assert expected == time_diff(store, begin)


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_positive_hashes_equal_the_scalar(codes: list[int]) -> None:
    assert [positive_hash(code) for code in codes] == positive_hashes(np.array(codes, np.int32)).tolist()


def test_a_new_file_begins_where_the_one_before_ended_until_something_is_put(tmp_path: Path) -> None:
    of = rules(10, 6)
    file = IndexFile.create(tmp_path / "1", of, OsFileSystem(), 500, 7_000)

    assert IndexHeader(7_000, 7_000, 500, 500, 0, 1) == file.header
    assert struct.pack(">qqqqii", 7_000, 7_000, 500, 500, 0, 0) == file.path.read_bytes()[:INDEX_HEADER_SIZE]

    file.put_key("T#a", 600, 9_500)
    file.put_key("T#a", 700, 12_600)
    file.write_back()

    assert IndexHeader(9_500, 12_600, 600, 700, 1, 3) == file.header
    assert [2, 3] == [entry[2] for entry in _entries(file, of)[1:3]]  # from 7,000, then from 9,500


def test_files_are_sparse(tmp_path: Path) -> None:
    file = _new(tmp_path, rules(5_000_000, 20_000_000))
    file.put_key("T#a", 0, _BEGIN)
    file.flush()

    assert 420_000_040 == file.path.stat().st_size
    assert file.path.stat().st_blocks * 512 < 100_000


def test_times_are_known_by_the_second_from_the_files_begin(tmp_path: Path) -> None:
    file = _new(tmp_path, rules(3, 50))
    for number, time in enumerate([_BEGIN, _BEGIN + 1_500, _BEGIN + 2_100]):
        file.put_key("T#a", number, time)

    assert [1] == file.select_physical_offsets("T#a", 64, _BEGIN + 1_000, _BEGIN + 1_999)
    assert [] == file.select_physical_offsets("T#a", 64, _BEGIN + 1_200, _BEGIN + 1_700)


def test_a_write_that_fails_puts_nothing(tmp_path: Path) -> None:
    of, disk = rules(3, 50), FaultyFileSystem()
    file, untouched = _new(tmp_path / "one", of, disk), _new(tmp_path / "other", of)
    entries = IndexEntries(np.array([3, 4, 3], np.int32), np.array([1, 2, 3], np.int64), np.full(3, _BEGIN))
    disk.fail("write", errno.ENOSPC, times=2)
    with pytest.raises(OSError, match="No space"):
        file.put_entries(entries)
    with pytest.raises(OSError, match="No space"):
        file.put_key("T#a", 1, _BEGIN)
    for each in (file, untouched):
        each.put_key("T#b", 5, _BEGIN)
        each.put_entries(entries)
        each.flush()

    assert untouched.path.read_bytes() == file.path.read_bytes()


def test_a_sync_that_failed_is_not_repeated(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    file = _new(tmp_path, rules(3, 50), disk)
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.flush()
    with pytest.raises(OSError, match="earlier flush failed"):
        file.flush()
    assert 1 == disk.count("sync")


def _filled(tmp_path: Path, disk: FaultyFileSystem) -> IndexFile:
    file = _new(tmp_path, rules(3, 50), disk)
    file.put_entries(IndexEntries(np.arange(9, dtype=np.int32), np.arange(9), np.full(9, _BEGIN)))
    return file


@pytest.mark.parametrize("least_bytes", [1, 1 << 30])
def test_the_disk_takes_ahead_what_is_much_and_a_flush_the_rest(
    least_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_AHEAD_BYTES", least_bytes)
    disk = FaultyFileSystem()
    file = _filled(tmp_path, disk)
    file.sync_ahead()
    file.sync_ahead()
    ahead = disk.count("sync")
    file.flush()

    assert (1 if least_bytes == 1 else 0) == ahead
    assert ahead + 1 == disk.count("sync")


def test_a_sync_ahead_that_failed_is_told_by_the_next_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "_AHEAD_BYTES", 1)
    disk = FaultyFileSystem()
    file = _filled(tmp_path, disk)
    disk.fail("sync", errno.EIO)
    file.sync_ahead()
    disk.heal()

    with pytest.raises(OSError, match="earlier flush failed"):
        file.flush()


@pytest.mark.parametrize("size", [1, 39, 40, 199, 201, 5_000])
def test_a_file_of_another_length_is_refused_and_left_as_it_is(size: int, tmp_path: Path) -> None:
    path = tmp_path / "1"
    path.write_bytes(bytes(size))
    with pytest.raises(SegmentLayoutError, match=f"expected 200 bytes for 10 slots and 6 entries, found {size}"):
        IndexFile.load(path, rules(10, 6), OsFileSystem())
    assert bytes(size) == path.read_bytes()


def test_an_empty_file_is_one_with_nothing_in_it(tmp_path: Path) -> None:
    path = tmp_path / "1"
    path.touch()
    file = IndexFile.load(path, rules(10, 6), OsFileSystem())
    assert [] == file.select_physical_offsets("T#a", 64, *ALWAYS)
    file.put_key("T#a", 7, _BEGIN)
    file.write_back()

    assert 200 == path.stat().st_size
    assert [7] == file.select_physical_offsets("T#a", 64, *ALWAYS)


_WORDS: Final = st.one_of(st.integers(0, 8), st.sampled_from([-(2**31), -1, 2**31 - 1, 1000]))


@given(
    st.lists(st.sampled_from([-(2**63), -1, 0, 1, _BEGIN, 2**63 - 1]), min_size=4, max_size=4),
    st.lists(_WORDS, min_size=2 + 3 + 6 * 5, max_size=2 + 3 + 6 * 5),
    st.integers(0, 172),
    st.tuples(st.sampled_from([-(2**63), 0, _BEGIN]), st.sampled_from([0, _BEGIN, 2**63 - 1])),
)
def test_hostile_files_end_every_walk_and_every_put(
    times: list[int], words: list[int], cut: int, interval: tuple[int, int]
) -> None:
    of = rules(3, 6)
    with TemporaryDirectory() as directory:
        path = Path(directory) / "1"
        path.write_bytes(struct.pack(">4q35i", *times, *words))
        file = IndexFile.load(path, of, OsFileSystem())
        path.write_bytes(path.read_bytes()[:cut] if cut % 2 else path.read_bytes())  # truncated by another program
        found = [file.select_physical_offsets(key, 3, *interval) for key in ("a", "b", "c", "T#a")]
        taken = sum(file.put_key("T#a", 1, _BEGIN) for _ in range(10))
        file.flush(with_header=True)

    assert all(len(offsets) <= 3 for offsets in found)
    assert max(0, 6 - max(1, words[1])) == taken


@pytest.mark.parametrize("writes", [1, 2])
def test_a_new_file_tells_whether_its_first_write_back_was_interrupted(writes: int, tmp_path: Path) -> None:
    disk, of = FaultyFileSystem(), rules(5_000, 12)
    file = IndexFile.create(tmp_path / "20240101000000000", of, disk, 1000, _BEGIN)
    is_new = IndexFile.load(file.path, of, disk).is_half_new
    file.put_key("T#a", 1500, _BEGIN)
    disk.fail("write", errno.EIO, after=writes)
    with pytest.raises(OSError, match="Input/output"):
        file.write_back()
    is_half = IndexFile.load(file.path, of, disk).is_half_new
    disk.heal()
    file.write_back()
    is_whole = IndexFile.load(file.path, of, disk).is_half_new

    assert [False, True, False] == [is_new, is_half, is_whole]


_FIRST_TIME: Final = 1_700_000_000_000

Entry = tuple[int, int, int, int]


def _by_the_rules(query: IndexQuery, first: int, entries: list[Entry]) -> list[int]:
    """Walk a list by the rules as documented."""
    found: list[int] = []
    if query.index_count <= 1 or not 0 < first <= query.index_count:
        return found
    index = first
    while len(found) < query.max_num and index < len(entries):
        key_hash, offset, seconds, previous = entries[index]
        if seconds < 0:
            break
        time = (query.file_begin + seconds * 1000 + 2**63) % 2**64 - 2**63
        if key_hash == query.key_hash and query.begin <= time <= query.end:
            found.append(offset)
        if not 0 < previous < index or time < query.begin:
            break
        index = previous
    return found


def _walk(query: IndexQuery, first: int, entries: list[Entry], *, short: int, window: int) -> list[int]:
    data = np.array(entries, INDEX_DTYPE).tobytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_file, "_SHORT_CHAIN", short)
        patch.setattr(index_file, "_WINDOW", window)
        return walk_chain(query, first, lambda index, count: data[index * 20 : (index + count) * 20])


_SECONDS: Final = st.sampled_from([0, 0, 1, 2, 5, -1, 2**31 - 1])
_QUERIES: Final = st.builds(
    IndexQuery,
    key_hash=st.integers(0, 5),
    slot_count=st.integers(1, 3),
    max_num=st.sampled_from([0, 1, 3, 64]),
    begin=st.sampled_from([-(2**63), 0, _FIRST_TIME, _FIRST_TIME + 1_000, _FIRST_TIME + 2_500]),
    end=st.sampled_from([0, _FIRST_TIME, _FIRST_TIME + 1_500, 2**63 - 1]),
    file_begin=st.sampled_from([0, _FIRST_TIME, 2**63 - 1, -(2**63)]),
    index_count=st.integers(-1, 40),
)
_SHAPES: Final = st.tuples(st.integers(0, 3), st.integers(1, 9))


@given(
    _QUERIES,
    st.integers(-1, 40),
    st.lists(
        st.tuples(st.integers(-1, 5), st.integers(0, 2**63 - 1), _SECONDS, st.integers(-1, 40)), min_size=1, max_size=40
    ),
    _SHAPES,
)
def test_walks_of_any_bytes_follow_the_rules(
    query: IndexQuery, first: int, entries: list[Entry], shape: tuple[int, int]
) -> None:
    actual = _walk(query, first, entries, short=shape[0], window=shape[1])

    assert _by_the_rules(query, first, entries) == actual


@given(
    _QUERIES,
    st.lists(st.integers(0, 5), min_size=1, max_size=60),
    st.lists(st.integers(0, 4_000), min_size=60, max_size=60),
    st.integers(0, 60),
    _SHAPES,
)
def test_walks_of_sound_files_follow_the_rules(
    query: IndexQuery, hashes: list[int], times: list[int], damaged: int, shape: tuple[int, int]
) -> None:
    count = len(hashes)
    header, slots = IndexHeader(index_count=1), IndexSlots(query.slot_count)
    stamps = np.array(times[:count], np.int64) + _FIRST_TIME
    put = IndexEntries(np.array(hashes, np.int32), np.arange(count, dtype=np.int64), stamps)
    built = build_entries(put, header, slots, query.slot_count, counts_puts=False)
    entries: list[Entry] = [(0, 0, 0, 0), *built.tolist()]
    if damaged < count:
        entries[damaged] = (entries[damaged][0] + 1, *entries[damaged][1:])
    sound = IndexQuery(
        query.key_hash, query.slot_count, query.max_num, query.begin, query.end, header.begin_timestamp, count + 1
    )
    first = slots[query.key_hash % query.slot_count]

    expected = _by_the_rules(sound, first, entries)

    assert expected == _walk(sound, first, entries, short=shape[0], window=shape[1])


def test_a_long_chain_is_read_in_windows() -> None:
    count, reads = 200_000, 0
    entries = np.zeros(count + 1, INDEX_DTYPE)
    entries["key_hash"], entries["previous_index"] = 7, np.arange(-1, count)
    entries["physical_offset"] = np.arange(count + 1)
    entries["key_hash"][5] = 8
    data = entries.tobytes()

    def read(index: int, some: int) -> bytes:
        nonlocal reads
        reads += 1
        return data[index * 20 : (index + some) * 20]

    query = IndexQuery(8, 1, 64, *ALWAYS, _FIRST_TIME, count + 1)

    assert [5] == walk_chain(query, count, read)
    assert reads < 100


@pytest.mark.parametrize("previous", [3, 4, 5, 40])
def test_a_link_that_does_not_lead_back_ends_the_walk(previous: int) -> None:
    entries = [(0, 0, 0, 0), (1, 10, 0, 0), (1, 20, 0, 1), (1, 30, 0, previous), (1, 40, 0, 3), (1, 50, 0, 4)]
    query = IndexQuery(1, 1, 64, *ALWAYS, _FIRST_TIME, 6)

    assert [50, 40, 30] == _walk(query, 5, entries, short=64, window=4)
    assert [50, 40, 30] == _walk(query, 5, entries, short=1, window=4)
