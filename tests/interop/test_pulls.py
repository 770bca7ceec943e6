# SPDX-License-Identifier: Apache-2.0
"""Brokers around the same store, RocketMQ's and ours, give consumers the same answers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest

from store_core import BrokerConfig, DefaultMessageStore
from store_core.store.broker_config import snake_case
from tests.interop.ours import our_config
from tests.interop.pulls import BROKERS, Pulls, our_answers
from tests.interop.scenarios import random_scenario
from tests.interop.written import WrittenStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from tests.interop.judge import Judge
    from tests.interop.rocketmq import Answer

OFFSETS: Final = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")


def theirs_shown(answer: Answer) -> Answer:
    """Reduce RocketMQ's answer to what `our_answers` returns: for a refusal, only the code."""
    shown = {"waiting": answer["waiting"]}
    if "code" not in answer:
        return shown
    shown["code"] = answer["code"]
    header = answer["header"] or {}
    if OFFSETS[-1] not in header or header[OFFSETS[-1]] is None:
        return shown
    return {
        **shown, "remark": answer["remark"], "body": answer["body"], **{name: int(header[name]) for name in OFFSETS}
    }  # fmt: skip


@dataclass(frozen=True)
class Pulled:
    """Pulls submitted to RocketMQ; each side gets its own copy of a store, as pulls may put messages."""

    written: WrittenStore
    broker: Answer
    of_store: Answer
    pulls: Pulls
    directory: Path
    future: Future[Answer]

    @classmethod
    def start(cls, written: WrittenStore, judge: Judge, seed: int, count: int, directory: Path) -> Pulled:
        """Ask RocketMQ."""
        broker, of_store = BROKERS[seed % len(BROKERS)]
        pulls = Pulls.draw(seed, written.answer["queues"], count)
        directory = directory / f"{written.release}-{seed}"
        for side in ("theirs", "ours"):
            shutil.copytree(written.path, directory / side)
        future = judge.pull(directory / "theirs", broker, pulls.job, **written.scenario.job_settings | of_store)
        return cls(written, broker, of_store, pulls, directory, future)

    def check(self) -> None:
        """Ask us, and compare."""
        scenario = replace(self.written.scenario, settings=self.written.scenario.settings | self.of_store)
        config = our_config(self.written.release, scenario, self.directory / "broker.properties")
        broker = BrokerConfig(**{snake_case(name): value for name, value in self.broker.items()})
        with DefaultMessageStore.open(self.directory / "ours", config, broker=broker) as store:
            ours = our_answers(store, self.pulls, self.directory, self.broker)
        theirs = map(theirs_shown, self.future.result()["answers"])
        triples = zip(self.pulls.requests, theirs, ours, strict=True)
        wrong = [triple for triple in triples if triple[1] != triple[2]]
        assert not wrong[:3], f"{len(wrong)} of {len(ours)} differ"


def start_store(judge: Judge, seed: int, directory: Path) -> WrittenStore:
    """Start writing a store whose delayed messages are not due for a while: a master of 4.x would deliver them."""
    scenario = replace(random_scenario(seed), settings={"messageDelayLevel": " ".join(["2h"] * 18)})
    return WrittenStore.start(judge, scenario, directory / judge.release)


def test_pulls_from_a_store_of_all_kinds_of_messages(judge_of: Callable[[str], Judge], tmp_path: Path) -> None:
    judge = judge_of("5.5")

    Pulled.start(start_store(judge, 7, tmp_path), judge, 1, 500, tmp_path).check()


@pytest.mark.interop
def test_random_pulls_from_random_stores(judge: Judge, tmp_path: Path) -> None:
    written = start_store(judge, 500, tmp_path)
    pulled = [Pulled.start(written, judge, seed, 1000, tmp_path) for seed in range(500, 506)]

    for pulls in pulled:
        pulls.check()
