# SPDX-License-Identifier: Apache-2.0
"""Brokers around the same store, RocketMQ's and ours, give consumers the same answers to random pulls."""

from __future__ import annotations

import hashlib
import random
import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import BrokerConfig, DefaultMessageStore
from store_core.broker.pull_checks import PullMessageRequest, PullMessageResponse
from store_core.store.message_store_config import snake_case
from tests.interop.ours import our_config
from tests.interop.scenarios import random_scenario
from tests.interop.written import WrittenStore
from tests.store_core.broker.pull_broker import PullBroker

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


BROKERS: Final[tuple[tuple[Answer, Answer], ...]] = (
    ({}, {}),
    ({"enablePropertyFilter": True}, {}),
    ({"slaveReadEnable": True, "brokerId": 1}, {"brokerRole": "SLAVE"}),
    ({"brokerId": 1, "enablePropertyFilter": True}, {"brokerRole": "SLAVE", "offsetCheckInSlave": True}),
    ({"filterSupportRetry": True, "enablePropertyFilter": True}, {}),
    ({"autoCreateSubscriptionGroup": False, "slaveReadEnable": True}, {"accessMessageInMemoryMaxRatio": 0}),
)
"""Settings of a broker, and of its store."""

_GROUPS: Final[tuple[Answer, ...]] = (
    {"groupName": "plain"},
    {"groupName": "slow", "brokerId": 2, "whichBrokerWhenConsumeSlowly": 3},
    {"groupName": "off", "consumeEnable": False},
    {"groupName": "no-broadcasting", "consumeBroadcastEnable": False},
    {"groupName": "sql"},
)
_NAMES: Final = (
    "plain",
    "plain",
    "slow",
    "slow",
    "off",
    "no-broadcasting",
    "sql",
    "new",
    "bad group!",
    "CID_RMQ_SYS_x",
)
_SUBSCRIPTIONS: Final = (
    ("*", "TAG"), ("TagA || TagB", "TAG"), ("TagA", None), ("||", "TAG"), ("", "TAG"), (None, "TAG"), (None, None),
    ("TagA", ""), ("TAGS = 'TagA'", "SQL92"), ("a >", "SQL92"), ("", "SQL92"), ("x", "FOO"), ("nobody", "TAG"),
)  # fmt: skip
_VERSION: Final = 100


@dataclass(frozen=True)
class Pulls:
    """The tables of a broker under RocketMQ's names, and the pulls to serve: fields of PullMessageRequestHeader."""

    topics: list[Answer]
    consumers: list[Answer]
    requests: list[Answer]
    groups: list[Answer] = field(default_factory=lambda: list(_GROUPS))

    @classmethod
    def draw(cls, seed: int, queues: list[Answer], count: int) -> Pulls:
        """Draw pulls for a store with these queues; two of its topics have consumers."""
        rng = random.Random(seed)  # noqa: S311 -- reproducible, not secret
        names = sorted({queue["topic"] for queue in queues if queue["queueId"] < 4 and queue["topic"].isascii()})
        first, second = rng.sample(names, 2)
        topics = [
            {"topicName": first, "readQueueNums": 4, "perm": 6, "topicSysFlag": 3},
            {"topicName": second, "readQueueNums": 3, "perm": 6},
            {"topicName": "closed", "readQueueNums": 4, "perm": 2},
            {"topicName": "void", "readQueueNums": 2, "perm": 6},
            {"topicName": "%RETRY%plain", "readQueueNums": 4, "perm": 6},
        ]
        consumers = [
            _consumer("plain", first),
            _consumer("no-broadcasting", first, model="BROADCASTING"),
            _consumer("slow", second, "TagA || TagB"),
            _consumer("sql", second, "TAGS IS NOT NULL", "SQL92"),
        ]
        ends = {(queue["topic"], queue["queueId"]): queue["max"] for queue in queues}
        served = [(consumer["group"], consumer["topic"]) for consumer in consumers]
        asked = [first, first, second, second, "closed", "void", "nowhere", "%RETRY%plain"]
        return cls(topics, consumers, [_request(rng, served, asked, ends) for _ in range(count)])

    @property
    def job(self) -> Answer:
        """Fields of the harness's job."""
        return {
            "topics": self.topics,
            "groups": self.groups,
            "consumers": self.consumers,
            "requests": self.requests,
        }


def _consumer(group: str, topic: str, text: str = "*", kind: str = "TAG", *, model: str = "CLUSTERING") -> Answer:
    return {"group": group, "topic": topic, "text": text, "type": kind, "model": model, "version": _VERSION}


def _request(
    rng: random.Random, served: list[tuple[str, str]], topics: list[str], ends: dict[tuple[str, int], int]
) -> Answer:
    group, topic = rng.choice(served) if rng.random() < 0.5 else (rng.choice(_NAMES), rng.choice(topics))
    queue_id = rng.choice((-1, 0, 0, 0, 1, 2, 3, 4))
    end = ends.get((topic, queue_id), 0)
    text, kind = rng.choice(_SUBSCRIPTIONS)
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": rng.choice((0, 0, 1, 5, end - 1, end, end, end + 1, 1_000_000, -1)),
        "maxMsgNums": rng.choice((1, 2, 32, 32)),
        "sysFlag": rng.choice((*range(8), 3, 7, 15, 31, 4, 4, 6)),
        "commitOffset": rng.randrange(100),
        "suspendTimeoutMillis": 600_000,
        "subscription": text,
        "subVersion": rng.choice((0, _VERSION, _VERSION, _VERSION + 1)),
        "expressionType": kind,
    }


def our_answers(store: DefaultMessageStore, pulls: Pulls, directory: Path, settings: Answer) -> list[Answer]:
    """Serve the pulls as the harness does."""
    broker = PullBroker(store, directory, **{"auto_create_subscription_group": True} | _snake(settings))
    for topic in pulls.topics:
        fields = _snake(topic)
        broker.topic(fields.pop("topic_name"), **fields)
    for group in pulls.groups:
        fields = _snake(group)
        broker.group(fields.pop("group_name"), **fields)
    for consumer in pulls.consumers:
        group, topic, text, kind = (consumer[name] for name in ("group", "topic", "text", "type"))
        broker.connect(group, topic, text, kind, version=_VERSION, model=consumer["model"])
        if kind != "TAG":
            broker.register(group, topic, text, _VERSION)
    answers = []
    for fields in pulls.requests:
        request = PullMessageRequest(**_snake(fields))
        response = broker.processor.process_request(request, on_response=broker.answers.append)
        answers.append({"waiting": len(broker.hold), **_shown(response)})
    return answers


def _snake(fields: Answer) -> dict[str, Any]:
    return {snake_case(name): value for name, value in fields.items()}


def _shown(response: PullMessageResponse | None) -> Answer:
    """Convert an answer with messages or offsets to the harness's form; of a refusal only the code is compared."""
    if response is None:
        return {}
    if response.result is None:
        return {"code": int(response.code)}
    body = hashlib.sha256(response.body).hexdigest() if response.body else None
    return {
        "code": int(response.code),
        "remark": response.remark,
        "body": body,
        "nextBeginOffset": response.next_begin_offset,
        "minOffset": response.min_offset,
        "maxOffset": response.max_offset,
        "suggestWhichBrokerId": response.suggest_which_broker_id,
    }
