# SPDX-License-Identifier: Apache-2.0
"""The index as a whole: puts in bulk and one by one, its files, look-ups, and a kill at any write."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import replace
from datetime import timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import InvalidOptionError
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, RequestBatch
from store_core.queue.index_service import IndexService, QueryOffsetResult, index_file_name, next_index_file_name
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.queue.index_builders import ALWAYS, contents, index_service, request, requests, rules

if TYPE_CHECKING:
    from collections.abc import Callable


_BEGIN = 1_700_000_000_000


def _fill(index: IndexService, count: int, keys: str = "k", start: int = 0) -> None:
    for number in range(start, start + count):
        index.build_index(request(number * 100, keys, _BEGIN + number))


def _found(index: IndexService, key: str = "k", **asked: Any) -> list[int]:  # noqa: ANN401 -- arguments of query_offset
    begin, end = asked.get("begin", 0), asked.get("end", 2**63 - 1)
    return index.query_offset("T", key, asked.get("max_num", 64), begin, end).physical_offsets


_SIZES = st.tuples(st.integers(1, 5), st.integers(2, 12))


@given(requests, _SIZES, st.lists(st.integers(0, 8), max_size=8), st.sampled_from(["4.3", "4.9", "5.3"]), st.booleans())
def test_building_in_bulk_makes_the_files_of_building_one_by_one(
    dispatched: list[DispatchRequest], sizes: tuple[int, int], cuts: list[int], release: str, write_back: bool
) -> None:
    of = rules(*sizes, release=release)
    with TemporaryDirectory() as directory:
        one, bulk = index_service(Path(directory, "one"), of), index_service(Path(directory, "bulk"), of)
        for each in dispatched:
            one.build_index(each)
        rest = dispatched
        for cut in [*cuts, len(dispatched)]:
            bulk.build_indexes(RequestBatch(rest[:cut]))
            if write_back:
                bulk.write_back()
            rest = rest[cut:]
        queries = [(index.query_offset("T", key, 64, *ALWAYS)) for index in (one, bulk) for key in ("a", "b", "u1")]
        one.close()
        bulk.close()

        assert contents(one) == contents(bulk)
        assert queries[:3] == queries[3:]


@given(requests, _SIZES)
def test_every_key_of_every_message_that_comes_in_order_is_found(
    dispatched: list[DispatchRequest], sizes: tuple[int, int]
) -> None:
    expected: dict[str, list[int]] = {}
    end = 0
    for each in dispatched:
        keys = [*([] if each.unique_key is None else [each.unique_key]), *filter(None, (each.keys or "").split(" "))]
        if each.physical_offset >= end and each.sys_flag != 12:
            end = each.physical_offset if keys else end
            for key in keys:
                expected.setdefault(key, []).insert(0, end)
    with TemporaryDirectory() as directory:
        index = index_service(Path(directory), rules(*sizes, max_msgs_num_batch=1000))
        for number, each in enumerate(dispatched):
            index.build_index(replace(each, store_timestamp=_BEGIN + number))

        for key in ("a", "b", "é", "😀", "k1", "k2", "u1", "u2", "u3", ""):
            assert expected.get(key, []) == _found(index, key, max_num=1000)


def test_a_message_without_keys_makes_the_first_file_and_the_next_after_a_full_one(tmp_path: Path) -> None:
    index = index_service(tmp_path, rules(10, 3))
    counts = []
    for keys in ("", "a b", "", "c"):
        index.build_index(request(0, keys))
        counts.append([file.header.index_count for file in index.files])

    assert [[1], [3], [3, 1], [3, 2]] == counts


def test_an_index_that_is_switched_off_makes_no_file_and_hashes_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[object] = []
    monkeypatch.setattr(RequestBatch, "index_hashes", hashed.append)
    index = index_service(tmp_path / "index", rules(10, 50, is_index_enabled=False))
    index.build_index(request(0, "k"))
    index.build_indexes(RequestBatch([request(0, "k")]))

    assert not index.directory.exists()
    assert hashed == []
    assert QueryOffsetResult([], 0, 0) == index.query_offset("T", "k", 64, *ALWAYS)


def test_queries_go_from_new_to_old_and_stop_when_they_have_enough(tmp_path: Path) -> None:
    index = index_service(tmp_path, rules(10, 4, max_msgs_num_batch=5))
    _fill(index, 9)

    assert [800, 700, 600, 500, 400] == _found(index)
    assert [800, 700] == _found(index, max_num=2)
    assert [] == _found(index, max_num=0) == _found(index, max_num=-1)
    answer = index.query_offset("T", "k", 64, *ALWAYS)
    assert (_BEGIN + 8, 800) == (answer.index_last_update_timestamp, answer.index_last_update_physical_offset)


def test_a_query_stops_behind_the_file_that_begins_before_it(tmp_path: Path) -> None:
    index = index_service(tmp_path, rules(10, 4))
    _fill(index, 9)

    assert [800, 700, 600] == _found(index, begin=_BEGIN + 6)
    assert [] == _found(index, begin=_BEGIN + 7)  # entries know the second, and it began with the file's begin
    assert [200, 100, 0] == _found(index, end=_BEGIN + 2)


# Files: names, loading, full ones, deletion


def test_files_are_named_by_local_time() -> None:
    assert "20231115034320007" == index_file_name(1_700_000_000_007, timezone(timedelta(hours=5, minutes=30)))


@pytest.mark.parametrize(
    ("name", "later"),
    [
        ("20240229235959999", "20240301000000000"),
        ("99991231235959999", "99991231235960000"),
        ("00000000000000007", "00000000000000008"),
    ],
)
def test_the_next_name_is_a_millisecond_later(name: str, later: str) -> None:
    assert later == next_index_file_name(name)


def test_files_of_one_millisecond_and_of_a_clock_set_back_keep_their_order(tmp_path: Path) -> None:
    clock = FakeClock()
    index = index_service(tmp_path, rules(10, 2), clock=clock)
    _fill(index, 3)
    clock.wall_ms -= 3_600_000
    _fill(index, 1, start=3)
    names = [file.path.name for file in index.files]

    assert ["20231114221320000", "20231114221320001", "20231114221320002", "20231114221320003"] == names


def test_a_new_file_takes_no_name_that_is_there(tmp_path: Path) -> None:
    tmp_path.joinpath("20231114221320000").write_bytes(b"not ours")
    index = index_service(tmp_path, rules(10, 2))
    _fill(index, 1)

    assert "20231114221320001" == index.files[0].path.name
    assert b"not ours" == tmp_path.joinpath("20231114221320000").read_bytes()


def test_after_an_abnormal_exit_files_later_than_the_checkpoint_are_deleted(tmp_path: Path) -> None:
    full: list[int] = []
    index = index_service(tmp_path, rules(10, 4), on_full=full.append)
    _fill(index, 8)
    loaded = index_service(tmp_path, rules(10, 4))
    notes = loaded.load(last_exit_ok=False, index_msg_timestamp=full[-1])

    assert [_BEGIN + 2, _BEGIN + 5] == full
    assert ["is not used, and has to be rebuilt" in note for note in notes] == [True]
    assert [file.path for file in index.files[:2]] == [file.path for file in loaded.files]
    assert not index.files[2].path.exists()


def test_files_of_another_length_are_told_of_and_left_alone(tmp_path: Path) -> None:
    index = index_service(tmp_path, rules(10, 4))
    _fill(index, 2)
    index.close()
    before = contents(index)
    other = index_service(tmp_path, rules(10, 5))
    notes = other.load(last_exit_ok=False, index_msg_timestamp=0)
    _fill(other, 1)

    assert ["expected 180 bytes for 10 slots and 5 entries, found 160" in note for note in notes] == [True]
    assert before[0] in contents(other)
    assert [0] == _found(other)


@pytest.mark.parametrize(("release", "is_load_ok"), [("4.3", True), ("4.9", True), ("5.3", False)])
def test_a_directory_ends_the_list_and_fails_the_load_of_5(release: str, is_load_ok: bool, tmp_path: Path) -> None:
    index = index_service(tmp_path, rules(10, 4, release=release))
    _fill(index, 1)
    tmp_path.joinpath("1").mkdir()
    loaded = index_service(tmp_path, rules(10, 4, release=release))
    (note,) = loaded.load(last_exit_ok=True, index_msg_timestamp=0)

    assert "is a directory" in note
    assert ((), is_load_ok) == (loaded.files, loaded.is_load_ok)


def test_names_that_are_no_numbers_are_passed_over(tmp_path: Path) -> None:
    tmp_path.joinpath("README").write_text("hello")
    tmp_path.joinpath("old").mkdir()
    index = index_service(tmp_path, rules(10, 4))

    assert 2 == len(index.load(last_exit_ok=False, index_msg_timestamp=0))
    assert ((), True) == (index.files, index.is_load_ok)


def test_leading_files_behind_the_logs_begin_are_deleted_but_never_the_last(tmp_path: Path) -> None:
    index = index_service(tmp_path, rules(10, 3))
    _fill(index, 8)  # ends at 100, 300, 500, 700

    assert 0 == index.delete_expired_file(100)
    assert 2 == index.delete_expired_file(301)
    assert [500, 700] == [file.end_physical_offset for file in index.files]
    assert 1 == index.delete_expired_file(10**9)
    assert [700] == [file.end_physical_offset for file in index.files]
    assert [700, 600] == _found(index)


@pytest.mark.parametrize(("release", "count"), [("4.3", 0), ("4.9", 0), ("5.3", 1)])
def test_a_file_with_nothing_in_it_is_closed_with_the_count_of_its_release(
    release: str, count: int, tmp_path: Path
) -> None:
    index = index_service(tmp_path, rules(10, 3, release=release))
    index.build_index(request(0))
    index.close()

    assert count == int.from_bytes(contents(index)[0][1][36:40])


def test_a_full_file_is_on_disk_before_the_checkpoint_hears_of_it(tmp_path: Path) -> None:
    disk, told = FaultyFileSystem(), list[int]()
    index = index_service(
        tmp_path, rules(10, 3), disk, on_full=lambda time: told.append(disk.count("sync") * 10 + time)
    )
    _fill(index, 2)
    assert (0, []) == (disk.count("sync"), told)
    _fill(index, 1, start=2)

    assert [10 + _BEGIN + 1] == told


def test_a_full_file_that_can_not_be_synced_is_not_told_of(tmp_path: Path) -> None:
    disk, told = FaultyFileSystem(), list[int]()
    index = index_service(tmp_path, rules(10, 3), disk, on_full=told.append)
    disk.fail("sync", errno.EIO)
    _fill(index, 3)

    assert ([], None) == (told, index.failure)


# What fails


def test_a_file_is_tried_to_be_made_three_times(tmp_path: Path) -> None:
    disk, clock, errors = FaultyFileSystem(), FakeClock(), []
    index = index_service(tmp_path, rules(10, 3), disk, clock=clock, on_error=lambda: errors.append(1))
    disk.fail("grow", errno.ENOSPC, times=2)
    _fill(index, 1)
    assert ([0], [1.0, 1.0], []) == (_found(index), clock.slept, errors)
    disk.fail("grow", errno.ENOSPC, times=3)
    _fill(index, 4, start=1)

    assert [1] == errors
    assert 1 == len(contents(index))
    disk.heal()
    _fill(index, 1, start=9)
    assert [100, 0] == _found(index)  # no hole: the index ends before the first message that is missing


@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_write_that_fails_ends_the_index_before_the_message(is_bulk: bool, tmp_path: Path) -> None:
    disk, errors = FaultyFileSystem(), []
    index = index_service(tmp_path, rules(10, 50), disk, on_error=lambda: errors.append(1))
    _fill(index, 3)
    disk.fail("write", errno.ENOSPC)
    if is_bulk:
        index.build_indexes(RequestBatch([request(300, "k"), request(400, "k")]))
    else:
        _fill(index, 2, start=3)
    _fill(index, 5, start=5)
    index.close()
    again = index_service(tmp_path, rules(10, 50))
    again.load(last_exit_ok=True, index_msg_timestamp=0)

    assert [1] == errors
    assert isinstance(index.failure, OSError)
    assert [200, 100, 0] == _found(index) == _found(again)


@pytest.mark.parametrize(("slots", "entries"), [(10, 1), (2**29, 2), (1, 2**27)])
def test_sizes_that_make_no_file_are_refused(slots: int, entries: int, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="make no index file"):
        index_service(tmp_path, rules(slots, entries))


_KEYS: Final = ("a", "b", "c", "d", "e")
_RULES: Final = rules(5_000, 12)  # slots on several pages, and several files
_REQUESTS: Final = [
    request(number * 100, f"{_KEYS[number % 5]} {_KEYS[number % 3]}", _BEGIN + number) for number in range(20)
]


class _KilledError(BaseException):
    """The process was killed."""


def _one_by_one(index: IndexService) -> None:
    for each in _REQUESTS:
        index.build_index(each)


def _in_bulk(index: IndexService) -> None:
    for start in range(0, len(_REQUESTS), 6):
        index.build_indexes(RequestBatch(_REQUESTS[start : start + 6]))
        if start % 4 == 0:
            index.write_back()


def _killed_after(writes: int, directory: Path, build: Callable[[IndexService], None]) -> tuple[bool, int]:
    """Build an index, and die before that write; return whether it died, and what the checkpoint holds then."""
    disk, checkpoint = FaultyFileSystem(), [0]

    def die() -> None:
        if disk.count("write") > writes:
            raise _KilledError

    disk.before["write"] = die
    index = index_service(directory, _RULES, disk, on_full=checkpoint.append)
    try:
        build(index)
    except _KilledError:
        return True, checkpoint[-1]
    return False, checkpoint[-1]


def _offsets(key: str, requests: list[DispatchRequest]) -> Counter[int]:
    return Counter(each.physical_offset for each in requests for other in (each.keys or "").split(" ") if key == other)


@pytest.mark.parametrize("is_clean", [True, False], ids=["unnoticed", "noticed"])
@pytest.mark.parametrize("build", [_one_by_one, _in_bulk])
def test_dispatching_again_after_a_kill_finds_every_message(
    build: Callable[[IndexService], None], is_clean: bool, tmp_path: Path
) -> None:
    writes, is_killed = 0, True
    while is_killed:
        directory = tmp_path / str(writes)
        is_killed, checkpoint = _killed_after(writes, directory, build)
        index = index_service(directory, _RULES)
        index.load(is_clean, checkpoint)
        _one_by_one(index)

        for key in _KEYS:
            assert _offsets(key, _REQUESTS).keys() == set(_found(index, key)), (writes, key)
        entries = sum(file.header.index_count - 1 for file in index.files)
        assert 40 <= entries <= 40 + 12 + 2, writes  # there twice: what one write-back was about, and one message
        writes += 1
    assert writes > 15


def test_nothing_that_was_put_before_is_lost_by_a_kill(tmp_path: Path) -> None:
    writes, is_killed = 0, True
    while is_killed:
        directory = tmp_path / str(writes)
        done: list[DispatchRequest] = []

        def build(index: IndexService, done: list[DispatchRequest] = done) -> None:
            for each in _REQUESTS:
                index.build_index(each)
                done.append(each)

        is_killed, _ = _killed_after(writes, directory, build)
        index = index_service(directory, _RULES)
        index.load(last_exit_ok=True, index_msg_timestamp=0)  # deletes nothing

        for key in _KEYS:
            assert not _offsets(key, done) - Counter(_found(index, key)), (writes, key)
        writes += 1
    assert writes > 60
