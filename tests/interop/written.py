# SPDX-License-Identifier: Apache-2.0
"""Stores that RocketMQ wrote for a scenario, and comparisons with what this package writes and answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.format.record.scan import StopReason, follow_frames
from tests.interop.answers import answer_rows
from tests.interop.ours import append_all, put_all, result_json

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tests.golden_stores import Row
    from tests.interop.judge import Judge
    from tests.interop.puts import Put
    from tests.interop.rocketmq import Answer
    from tests.interop.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class WrittenStore:
    """A store that is being written; `answer` waits until RocketMQ has closed it.

    It is shared by the tests of a session: copy it before writing to it.
    """

    release: str
    scenario: Scenario
    puts: list[Put]
    path: Path
    future: Future[Answer]

    @classmethod
    def start(cls, judge: Judge, scenario: Scenario, directory: Path) -> WrittenStore:
        """Start writing a scenario below a directory."""
        path, puts = directory / scenario.name, scenario.puts(judge.release)
        return cls(judge.release, scenario, puts, path, judge.put(path, puts, **scenario.job_settings))

    def go_on(self, judge: Judge) -> WrittenStore:
        """Put the same messages into the store once more, after it was closed."""
        future = judge.put(self.path, self.puts, **self.scenario.job_settings)
        return replace(self, future=future)

    @property
    def answer(self) -> Answer:
        """RocketMQ's answer to each put, and its read-back at the end."""
        return self.future.result()

    @property
    def rows(self) -> list[Row]:
        """RocketMQ's read-back, in log order, converted to our columns."""
        return answer_rows(self.answer, self.scenario.segment_size)

    @property
    def statuses(self) -> list[str]:
        """What each put returned."""
        return [put.get("status", put.get("thrown")) for put in self.answer["puts"]]


_BLANK_SIZE: Final = 8


def assert_same_as_ours(written: WrittenStore, path: Path, settings: dict[str, object] | None = None) -> None:
    """Put a scenario's messages into our store at `path`, with its settings or others; compare results and files."""
    times = _put_times(written)
    ours = written.scenario if settings is None else replace(written.scenario, settings=settings)
    results = put_all(path, written.release, ours, written.puts, times)
    expected = [_expected_result(put, time) for put, time in zip(written.answer["puts"], times, strict=True)]
    stale_fill = written.release == "4.3"

    assert expected == [result_json(result) for result in results]
    theirs = _segments(written.path, written.scenario, stale_fill=stale_fill)
    assert theirs == _segments(path, ours, stale_fill=stale_fill)


def assert_same_in_bulk(written: WrittenStore, path: Path) -> None:
    """Append a scenario's messages to our store at `path` in bulk, and compare files."""
    append_all(path, written.release, written.scenario, written.puts, _put_times(written))
    stale_fill = written.release == "4.3"

    theirs = _segments(written.path, written.scenario, stale_fill=stale_fill)
    assert theirs == _segments(path, written.scenario, stale_fill=stale_fill)


def _put_times(written: WrittenStore) -> list[int]:
    """Return the store time of each put; for a refused one that of the put before it."""
    times = {row["physical_offset"]: row["store_timestamp"] for row in written.rows}
    given, now = [], min(times.values())
    for put in written.answer["puts"]:
        append = put.get("append")
        now = times[append["wroteOffset"]] if put.get("ok") else now
        given.append(now)
    return given


def _expected_result(put: Answer, time: int) -> Answer:
    """Return RocketMQ's result, except for two differences of ours.

    5.3.3 throws at a batch that is too large, and we refuse it. 4.3.0 reports the time in the lock, but stores an
    earlier one in the records of a batch, and our clock stands still.
    """
    if "thrown" in put:
        assert "message body size exceeded" in put["thrown"]
        return {"status": "MESSAGE_ILLEGAL", "ok": False, "append": None}
    if put["ok"]:
        return {**put, "append": {**put["append"], "storeTimestamp": time}}
    return put


def _segments(store: Path, scenario: Scenario, *, stale_fill: bool) -> dict[str, bytes]:
    """Read the files of a log, by directory and name.

    With `stale_fill`, bytes after the head of a blank record are set to zero.
    """
    directories = str(scenario.settings.get("storePathCommitLog", store / "commitlog")).split(",")
    paths = [path for directory in directories for path in Path(directory).iterdir()]
    files = {f"{path.parent.name}/{path.name}": path.read_bytes() for path in paths}
    return {name: _without_fill(data) for name, data in files.items()} if stale_fill else files


def _without_fill(data: bytes) -> bytes:
    scan = follow_frames(memoryview(data), start_offset=None)
    if scan.reason is not StopReason.END_OF_FILE:
        return data
    return data[: scan.stop + _BLANK_SIZE].ljust(len(data), b"\0")
