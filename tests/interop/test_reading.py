# SPDX-License-Identifier: Apache-2.0
"""What RocketMQ writes, we read as RocketMQ does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.format.decode import decode_message
from store_core.format.properties import PropertyParser
from store_core.format.scan import follow_chain
from tests.golden_rows import message_rows
from tests.interop.answers import answer_rows
from tests.interop.random_puts import RandomPuts
from tests.interop.scenarios import SEGMENT_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Row
    from tests.interop.judge import Judge
    from tests.interop.written import WrittenStore


def read_rows(store: Path, release: str) -> list[Row]:
    rows, parser = [], PropertyParser.of_release(release)
    for segment in sorted(store.joinpath("commitlog").iterdir()):
        data, start_offset = memoryview(segment.read_bytes()), int(segment.name)
        starts = follow_chain(data, start_offset=start_offset, verify_crc=True).starts.tolist()
        messages = (decode_message(data, start, start_offset, parser=parser) for start in starts)
        rows += message_rows(messages, segment.name)
    return rows


def assert_same_rows(expected: list[Row], actual: list[Row]) -> None:
    for row, other in zip(expected, actual, strict=False):
        assert row == other
    assert len(expected) == len(actual)


def test_every_kind_of_message_reads_as_rocketmq_reads_it(written: WrittenStore) -> None:
    assert written.rows
    assert_same_rows(written.rows, read_rows(written.path, written.release))


@pytest.mark.interop
def test_random_messages_read_as_rocketmq_reads_them(judge: Judge, tmp_path: Path) -> None:
    seeds = range(100, 120)
    puts = {seed: RandomPuts(seed, judge.release, SEGMENT_SIZE).take(400) for seed in seeds}
    answers = {seed: judge.put(tmp_path / str(seed), puts[seed]) for seed in seeds}

    for seed in seeds:
        answer = answers[seed].result()

        assert [put["status"] for put in answer["puts"]] == ["PUT_OK"] * len(puts[seed])
        assert_same_rows(answer_rows(answer, SEGMENT_SIZE), read_rows(tmp_path / str(seed), judge.release))
