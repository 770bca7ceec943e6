# SPDX-License-Identifier: Apache-2.0
"""The process is killed at any write: the files on disk are a valid index, and dispatching again completes it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from store_core.queue.dispatch.dispatch_batch import DispatchRequest, RequestBatch
from tests.store_core.fakes import FaultyFileSystem
from tests.store_core.queue.index_builders import index_service, request, rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.queue.index_service import IndexService

    Build = Callable[[IndexService], None]

_BEGIN: Final = 1_700_000_000_000
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


def _killed_after(writes: int, directory: Path, build: Build) -> tuple[bool, int]:
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


def _found(index: IndexService, key: str) -> list[int]:
    return index.query_offset("T", key, 64, 0, _BEGIN + 10**6).physical_offsets


@pytest.mark.parametrize("is_clean", [True, False], ids=["unnoticed", "noticed"])
@pytest.mark.parametrize("build", [_one_by_one, _in_bulk])
def test_dispatching_again_after_a_kill_finds_every_message(build: Build, is_clean: bool, tmp_path: Path) -> None:
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
