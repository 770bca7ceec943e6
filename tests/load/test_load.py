# SPDX-License-Identifier: Apache-2.0
"""Memory, handles and mappings stay flat, however often a store is read, and follow its size when it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig, read_messages
from tests.load.campaign import MOST_GROWTH, peaks, run_load
from tests.load.large_store import Usage, growth, make_large, open_large

if TYPE_CHECKING:
    from pathlib import Path

_MEBIBYTE = 1 << 20


def test_two_hundred_reads_in_one_process_leave_nothing_behind(tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=10, max_index_num=2000)
    with DefaultMessageStore.open(tmp_path, config) as store:
        for number in range(400):
            store.put_message(Message(f"topic{number % 4}", bytes(600), keys=f"k{number}"))
    samples = []
    for number in range(200):
        chosen = ({}, {"topic": "topic1", "queue_id": 0}, {"key": f"k{number}"}, {"mode": "PERMISSIVE"})[number % 4]
        assert read_messages(tmp_path, columns=["topic", "body"], **chosen).read_all().num_rows > 0
        samples.append(Usage.now())
    grown = growth(samples)

    assert (0, 0) == (grown.handles, grown.mappings)
    assert grown.memory < 4 * _MEBIBYTE


@pytest.mark.slow
@pytest.mark.parametrize(("segments", "queues"), [(100, 1000), pytest.param(10_000, 100_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(0)
def test_opening_a_store_takes_little_for_each_segment_and_queue(segments: int, queues: int, tmp_path: Path) -> None:
    make_large(tmp_path / "store", segments, queues)
    found = open_large(tmp_path / "store")

    assert segments <= found["segments"] <= 1.2 * segments
    assert 1 == found["rows"]
    assert found["open_handles"] < 400  # some of the files that were used last stay open
    assert found["open_mappings"] < segments + queues + 200
    assert found["open_memory"] < 100 * _MEBIBYTE + 20_000 * (segments + queues)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_an_hour_of_load_leaves_memory_handles_and_mappings_flat(tmp_path: Path) -> None:
    load = run_load(3600, tmp_path)
    grown = growth(peaks(load.samples))

    assert [] == load.failures
    assert all(found <= most for found, most in zip(grown, MOST_GROWTH, strict=True)), grown
