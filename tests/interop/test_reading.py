# SPDX-License-Identifier: Apache-2.0
"""We read what RocketMQ writes as RocketMQ does: records, queues, and a store that it appends to meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from store_core.format.columns import TIME_RANGE
from tests.golden_stores import assert_same_rows
from tests.interop.answers import answer_queues, answer_rows, queues_of, read_rows, read_rows_one_by_one
from tests.interop.puts import Put, RandomPuts
from tests.interop.scenarios import SEGMENT_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from tests.golden_stores import Row
    from tests.interop.judge import Judge
    from tests.interop.written import WrittenStore


def in_table(rows: list[Row]) -> list[Row]:
    """Leave out producers' times, which can be any number, where a table has none."""
    return [row if row["born_timestamp"] in TIME_RANGE else {**row, "born_timestamp": None} for row in rows]


def test_every_kind_of_message_reads_as_rocketmq_reads_it(written: WrittenStore) -> None:
    assert written.rows
    assert_same_rows(in_table(written.rows), read_rows(written.path, written.release))
    assert_same_rows(written.rows, read_rows_one_by_one(written.path, written.release))


@pytest.mark.interop
def test_random_messages_read_as_rocketmq_reads_them(judge: Judge, tmp_path: Path) -> None:
    seeds = range(100, 120)
    puts = {seed: RandomPuts(seed, judge.release, SEGMENT_SIZE).take(400) for seed in seeds}
    answers = {seed: judge.put(tmp_path / str(seed), puts[seed]) for seed in seeds}

    for seed in seeds:
        answer = answers[seed].result()

        assert [put["status"] for put in answer["puts"]] == ["PUT_OK"] * len(puts[seed])
        expected = in_table(answer_rows(answer, SEGMENT_SIZE))
        assert_same_rows(expected, read_rows(tmp_path / str(seed), judge.release))


def test_consumers_get_the_messages_that_the_log_says(written: WrittenStore) -> None:
    light = "enableLmq" in written.scenario.settings

    assert written.answer["dispatchBehindBytes"] == 0
    assert written.answer["chainEnd"] == written.answer["bounds"]["max"]
    if written.scenario.plain_queues:
        assert answer_queues(written.answer) == queues_of(written.rows, written.release, light=light)


@dataclass(frozen=True)
class Rhythm:
    """How fast RocketMQ puts: with a pause after every burst."""

    segment_size: int
    count: int
    burst: int
    pause_ms: int


SLOW = Rhythm(segment_size=4096, count=1000, burst=3, pause_ms=3)
FAST = Rhythm(segment_size=65536, count=100_000, burst=1000, pause_ms=3)


def read(store: Path) -> pa.Table:
    return read_messages(
        store, columns=["physical_offset", "queue_offset", "store_timestamp", "topic", "body"]
    ).read_all()


@pytest.mark.interop
@pytest.mark.parametrize("rhythm", [SLOW, FAST], ids=["slow", "fast"])
def test_reads_of_a_growing_store_are_prefixes_of_one_another(judge: Judge, tmp_path: Path, rhythm: Rhythm) -> None:
    store, put = tmp_path / "store", Put("grows", bytes(range(200)), 0, (("KEYS", "k"), ("TAGS", "t")))
    sizes = {"mappedFileSizeCommitLog": rhythm.segment_size}
    judge.put(store, [put], **sizes).result()
    growing = judge.live(store, put, count=rhythm.count, burst=rhythm.burst, pause_ms=rhythm.pause_ms, **sizes)

    sizes_seen, last = set[int](), read(store)
    while not growing.done():
        table = read(store)
        assert table.slice(0, last.num_rows) == last
        sizes_seen.add(table.num_rows)
        last = table
    whole = read(store)

    assert growing.exception() is None
    assert list(range(rhythm.count + 1)) == whole["queue_offset"].to_pylist()
    assert whole.slice(0, last.num_rows) == last
    assert len(sizes_seen) > 5
