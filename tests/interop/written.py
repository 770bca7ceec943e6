# SPDX-License-Identifier: Apache-2.0
"""Stores that RocketMQ wrote for a scenario."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.interop.answers import answer_rows

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

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
