# SPDX-License-Identifier: Apache-2.0
"""The same messages at the same times give the same bytes and the same answers, put through RocketMQ and through us."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.format.scan import StopReason, follow_chain
from tests.interop.ours import put_all, result_json
from tests.interop.scenarios import random_scenario
from tests.interop.written import WrittenStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.judge import Judge
    from tests.interop.rocketmq import Answer

BLANK_SIZE = 8


def put_times(written: WrittenStore) -> list[int]:
    """Give the store time of each put; of one that was refused that of the put before it."""
    times = {row["physical_offset"]: row["store_timestamp"] for row in written.rows}
    given, now = [], min(times.values())
    for put in written.answer["puts"]:
        append = put.get("append")
        now = times[append["wroteOffset"]] if put.get("ok") else now
        given.append(now)
    return given


def expected_result(put: Answer, time: int) -> Answer:
    """Give RocketMQ's result, but for two things that are ours.

    A batch that is too large makes 5.3.3 throw, and us refuse it. 4.3.0 reports the time in the lock, but stores an
    earlier one in the records of a batch, and our clock stands still.
    """
    if "thrown" in put:
        assert "message body size exceeded" in put["thrown"]
        return {"status": "MESSAGE_ILLEGAL", "ok": False, "append": None}
    if put["ok"]:
        return {**put, "append": {**put["append"], "storeTimestamp": time}}
    return put


def segments(store: Path, *, stale_fill: bool) -> dict[str, bytes]:
    """Read the files of a log; with `stale_fill`, what follows the head of a blank record is set to zero."""
    files = {path.name: path.read_bytes() for path in store.joinpath("commitlog").iterdir()}
    return {name: _without_fill(data) for name, data in files.items()} if stale_fill else files


def _without_fill(data: bytes) -> bytes:
    scan = follow_chain(memoryview(data), start_offset=None)
    if scan.reason is not StopReason.END_OF_FILE:
        return data
    return data[: scan.stop + BLANK_SIZE].ljust(len(data), b"\0")


def assert_same_as_ours(written: WrittenStore, path: Path) -> None:
    times = put_times(written)
    results = put_all(path, written.release, written.scenario, written.puts, times)
    expected = [expected_result(put, time) for put, time in zip(written.answer["puts"], times, strict=True)]
    stale_fill = written.release == "4.3"

    assert expected == [result_json(result) for result in results]
    assert segments(written.path, stale_fill=stale_fill) == segments(path, stale_fill=stale_fill)


def test_every_kind_of_message_is_stored_byte_for_byte_as_by_rocketmq(written: WrittenStore, tmp_path: Path) -> None:
    assert_same_as_ours(written, tmp_path / "store")


@pytest.mark.interop
def test_random_messages_are_stored_byte_for_byte_as_by_rocketmq(judge: Judge, tmp_path: Path) -> None:
    scenarios = [random_scenario(seed) for seed in range(200, 220)]
    stores = [WrittenStore.start(judge, scenario, tmp_path / "theirs") for scenario in scenarios]

    for written in stores:
        assert_same_as_ours(written, tmp_path / written.scenario.name / "ours")
