# SPDX-License-Identifier: Apache-2.0
"""RocketMQ and we give the same answers to the same questions about the same store."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from tests.interop.answers import answer_rows
from tests.interop.ours import our_config
from tests.interop.questions import NEW_QUEUE, RandomQuestions, our_answers
from tests.interop.scenarios import SLICE_RELEASES, random_scenario
from tests.interop.written import WrittenStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from tests.interop.judge import Judge
    from tests.interop.rocketmq import Answer

AS_SLAVE = {"brokerRole": "SLAVE", "offsetCheckInSlave": True}
"""A master of 4.x delivers due messages while it is asked; with the check a slave answers like a master."""


def is_thrown_at_no_file(question: Answer, answer: object) -> bool:
    """Return whether RocketMQ failed at a batch queue without files when asked for messages; we find no message."""
    is_about_messages = question["kind"] in ("earliest", "place", "time") and question["queueId"] == NEW_QUEUE
    return is_about_messages and answer == {"thrown": "NullPointerException"}


@dataclass(frozen=True)
class Asked:
    """Questions to RocketMQ about a store that it wrote; it gets a copy, which it may change."""

    written: WrittenStore
    questions: list[Answer]
    future: Future[Answer]

    @classmethod
    def start(cls, written: WrittenStore, judge: Judge, seed: int, count: int, directory: Path) -> Asked:
        """Ask RocketMQ."""
        rows = answer_rows(written.answer, written.scenario.segment_size)
        questions = RandomQuestions(seed, rows, written.answer["queues"]).take(count)
        copy = directory / f"{written.release}-{written.scenario.name}"
        shutil.copytree(written.path, copy)
        settings = written.scenario.job_settings | AS_SLAVE
        return cls(written, questions, judge.ask(copy, questions, **settings))

    def check(self, directory: Path) -> None:
        """Ask us, and compare."""
        scenario = replace(self.written.scenario, settings=self.written.scenario.settings | AS_SLAVE)
        config = our_config(self.written.release, scenario, directory / "broker.properties")
        ours = our_answers(self.written.path, config, self.questions, scenario.batch_topics)
        triples = zip(self.questions, self.future.result()["answers"], ours, strict=True)
        wrong = [
            triple for triple in triples if triple[1] != triple[2] and not is_thrown_at_no_file(triple[0], triple[1])
        ]
        assert not wrong[:3], f"{len(wrong)} of {len(ours)} differ"


def test_questions_about_a_store_of_all_kinds_of_messages(
    judge_of: Callable[[str], Judge], written_by: Callable[[str], dict[str, WrittenStore]], tmp_path: Path
) -> None:
    stores = [written_by(release)["singles"] for release in SLICE_RELEASES]
    asked = [Asked.start(written, judge_of(written.release), 1, 2000, tmp_path) for written in stores]

    for questions in asked:
        questions.check(tmp_path)


@pytest.mark.interop
def test_random_questions_about_random_stores(judge: Judge, tmp_path: Path) -> None:
    stores = [WrittenStore.start(judge, random_scenario(seed), tmp_path / "theirs") for seed in range(300, 306)]
    asked = [Asked.start(written, judge, seed, 4000, tmp_path) for seed, written in enumerate(stores)]

    for questions in asked:
        questions.check(tmp_path)


@pytest.mark.interop
def test_random_questions_about_every_kind_of_store(
    judge: Judge, written_by: Callable[[str], dict[str, WrittenStore]], tmp_path: Path
) -> None:
    kinds = ("batches", "delayed", "inner-batches", "light-queues", "rolls", "transactions")
    stores = [written for name, written in written_by(judge.release).items() if name in kinds]
    asked = [Asked.start(written, judge, 2, 4000, tmp_path) for written in stores]

    for questions in asked:
        questions.check(tmp_path)
    assert len(asked) == {"4.3": 4, "4.9": 5}.get(judge.release, 6)
