# SPDX-License-Identifier: Apache-2.0
"""Counters and switches of a store."""

from __future__ import annotations

import pytest

from store_core.store.running_flags import RunningFlag, RunningFlags
from store_core.store.store_stats import StoreStats


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
    assert (int(flag), True) == (flags.flag_bits, flags.has(flag))
    assert flags.clear(flag)
    assert not flags.clear(flag)
    assert flags.is_writeable


def test_flags_have_the_bits_of_rocketmq() -> None:
    assert [1, 2, 4, 8, 16, 32, 64] == [int(flag) for flag in RunningFlag]
