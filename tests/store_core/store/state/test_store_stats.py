# SPDX-License-Identifier: Apache-2.0
"""Counters and flags of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.store.store_state import RunningFlag, RunningFlags, StoreStats
from tests.store_core.fakes import FakeClock
from tests.store_core.store.asked_stores import open_golden

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.format.filter.message_selector import MessageFilter
    from store_core.store.message_store_config import Release
    from tests.golden_stores import UnpackedStore


@pytest.mark.parametrize(
    ("elapsed", "label"),
    [
        (-5, "[<=0ms]"),
        (0, "[<=0ms]"),
        (1, "[0~10ms]"),
        (9, "[0~10ms]"),
        (10, "[10~50ms]"),
        (199, "[100~200ms]"),
        (500, "[500ms~1s]"),
        (1000, "[1~2s]"),
        (9999, "[5~10s]"),
        (10_000, "[10s~]"),
    ],
)
def test_put_times_are_counted_where_rocketmq_counts_them(elapsed: int, label: str) -> None:
    stats = StoreStats()
    stats.add_put_time(elapsed, is_ok=True)

    assert [label] == [name for name, count in stats.put_message_distribute_time.items() if count]


def test_failures_and_the_longest_time_are_kept() -> None:
    stats = StoreStats()
    for elapsed, is_ok in [(3, True), (70, False), (5, True)]:
        stats.add_put_time(elapsed, is_ok=is_ok)

    assert (1, 70) == (stats.put_message_failed_times, stats.put_message_entire_time_max)


def test_messages_and_bytes_are_counted_by_topic() -> None:
    stats = StoreStats()
    stats.add_put("a", 1, 100)
    stats.add_put("b", 5, 700)
    stats.add_put("a", 2, 50)

    assert ({"a": 3, "b": 5}, {"a": 150, "b": 700}) == (stats.put_message_topic_times, stats.put_message_topic_size)
    assert (8, 850) == (stats.put_message_times_total, stats.put_message_size_total)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0.0), (0.5, 1.5), (0.9, 1.9), (1.0, 2.0)])
def test_shares_are_estimated_within_their_bucket(share: float, expected: float) -> None:
    stats = StoreStats()
    for _ in range(100):
        stats.add_put_time(2, is_ok=True)

    assert expected == stats.find_put_message_entire_time(share)


def test_share_beyond_all_buckets_is_the_longest_time() -> None:
    stats = StoreStats()
    stats.add_put_time(60_000, is_ok=True)

    assert 60_000 == stats.find_put_message_entire_time(1.0)
    assert 0.0 == StoreStats().find_put_message_entire_time(0.99)


class NoMessage:
    """A slow filter that leaves out everything, by the queue or by the record."""

    def __init__(self, *, by_queue: bool, takes: Callable[[], object] = int) -> None:
        self._by_queue = by_queue
        self._takes = takes

    def is_matched_by_consume_queue(self, _tags_code: int | None, _unit: object = None) -> bool:
        self._takes()
        return not self._by_queue

    def is_matched_by_commit_log(self, _record: memoryview) -> bool:
        return False


GETS: Final[list[tuple[str, int, int, MessageFilter | None, tuple[int, int, int]]]] = [
    ("orders", 0, 10, None, (1, 0, 10)),
    ("orders", 140, 32, None, (2, 0, 20)),
    ("orders", 0, 32, NoMessage(by_queue=True), (2, 1, 20)),
    ("orders", 0, 32, NoMessage(by_queue=False), (2, 2, 20)),
    ("orders", 150, 32, None, (2, 3, 20)),
    ("orders", 151, 32, None, (2, 4, 20)),
    ("orders", -1, 32, None, (2, 5, 20)),
    ("unseen", 0, 32, None, (2, 6, 20)),
]
"""Gets of a queue of 150 messages, and the counts of 4.3.0, 4.9.7 and 5.3.3 alike: found, missed, messages."""


def counted(store: DefaultMessageStore) -> tuple[int, int, int]:
    stats = store.stats
    return (
        stats.get_message_times_total_found,
        stats.get_message_times_total_miss,
        stats.get_message_transferred_msg_count,
    )


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_gets_are_counted_as_rocketmq_counts_them(tmp_path: Path, release: Release) -> None:
    config = MessageStoreConfig(release=release, mapped_file_size_commit_log=1 << 16)
    with DefaultMessageStore.open(tmp_path, config) as store:
        for _ in range(150):
            store.put_message(Message("orders", b"x" * 200, tags="TagA"))
        found = []
        for topic, offset, most, wanted, _ in GETS:
            store.get_message("g", topic, 0, offset, most, wanted)
            found.append(counted(store))

    assert [expected for *_, expected in GETS] == found


def test_get_that_is_refused_is_not_counted(tmp_path: Path) -> None:
    with DefaultMessageStore.open(tmp_path, MessageStoreConfig(mapped_file_size_commit_log=1 << 16)) as store:
        store.running_flags.set(RunningFlag.NOT_READABLE)
        assert store.get_message("g", "orders", 0, 0, 32) is None

        assert (0, 0, 0) == counted(store)


@pytest.mark.golden
def test_inner_batch_counts_with_all_its_messages(golden: Callable[[str], UnpackedStore]) -> None:
    with open_golden(golden("5.3.3/bcq")) as store:
        queue = next(iter(store.consume_queue_store.queues()))
        result = store.get_message("g", queue.topic, queue.queue_id, queue.min_offset_in_queue, 32)

        assert result is not None
        assert len(result.message_buffers) < result.message_count
        assert (1, 0, result.message_count) == counted(store)


def test_slowest_get_is_kept(tmp_path: Path) -> None:
    clock, times = FakeClock(), [0.005, 0.07, 0.003]
    slow = NoMessage(by_queue=True, takes=lambda: clock.advance(times.pop()))
    with DefaultMessageStore.open(tmp_path, MessageStoreConfig(mapped_file_size_commit_log=1 << 16)) as store:
        store.put_message(Message("orders", b"x"))
        store.dispatch_now()
        store._clock = clock
        while times:
            store.get_message("g", "orders", 0, 0, 32, slow)

        assert 70 == store.stats.get_message_entire_time_max


@pytest.mark.parametrize("flag", list(RunningFlag))
def test_each_flag_forbids_what_it_forbids_in_rocketmq(flag: RunningFlag) -> None:
    flags = RunningFlags()
    assert flags.set(flag)
    assert not flags.set(flag)

    of_queues = flag in (RunningFlag.DISK_FULL, RunningFlag.FENCED)
    is_reading = flag is RunningFlag.NOT_READABLE
    assert (not is_reading, is_reading, is_reading or of_queues) == (
        flags.is_readable,
        flags.is_writeable,
        flags.is_cq_writeable,
    )
    assert [flag] == [each for each in RunningFlag if flags.has(each)]
    assert flags.clear(flag)
    assert not flags.clear(flag)
    assert flags.is_writeable


def test_flags_have_the_bits_of_rocketmq() -> None:
    assert [1, 2, 4, 8, 16, 32, 64] == [int(flag) for flag in RunningFlag]
