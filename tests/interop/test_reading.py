# SPDX-License-Identifier: Apache-2.0
"""We read what RocketMQ writes as RocketMQ does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.format.times import TIME_RANGE
from tests.interop.answers import answer_rows
from tests.interop.random_puts import RandomPuts
from tests.interop.reading import read_rows, read_rows_one_by_one
from tests.interop.scenarios import SEGMENT_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Row
    from tests.interop.judge import Judge
    from tests.interop.written import WrittenStore


def in_table(rows: list[Row]) -> list[Row]:
    """Leave out producers' times, which can be any number, where a table has none."""
    return [row if row["born_timestamp"] in TIME_RANGE else {**row, "born_timestamp": None} for row in rows]


def assert_same_rows(expected: list[Row], actual: list[Row]) -> None:
    for row, other in zip(expected, actual, strict=False):
        assert row == other
    assert len(expected) == len(actual)


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
