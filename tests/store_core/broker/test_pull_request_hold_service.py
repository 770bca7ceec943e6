# SPDX-License-Identifier: Apache-2.0
"""Pulls that wait for messages."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from store_core.broker.consumer_filter import ExpressionMessageFilter
from store_core.broker.pull_checks import PullSysFlag
from store_core.broker.pull_message_processor import PullRequestHoldService
from store_core.files.clock import SystemClock
from store_core.format.java import hash_code
from store_core.format.message import Message
from store_core.store.broker_config import BrokerConfig
from store_core.store.get_message import GetMessageResult, GetMessageStatus
from store_core.store.message_store import DefaultMessageStore
from tests.store_core.broker.pull_broker import CARRIED, FakeStore, PullBroker, a_pull
from tests.store_core.fakes import FakeClock
from tests.store_core.store.logs import config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SUSPEND, COMMIT = PullSysFlag.SUSPEND, PullSysFlag.COMMIT_OFFSET


def found() -> GetMessageResult:
    result = GetMessageResult(GetMessageStatus.FOUND, 1, 0, 1)
    result.add(memoryview(b"one"), 0, 1)
    return result


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def broker(store: FakeStore, tmp_path: Path) -> PullBroker:
    return PullBroker(store, tmp_path)


def arrive(broker: PullBroker, store: FakeStore, **more: Any) -> None:  # noqa: ANN401 -- those of an arrival
    """Let the first message come."""
    store.result, store.max_offset = found(), 1
    broker.hold.notify_message_arriving("orders", more.pop("queue_id", 0), 1, **({"tags_code": 0} | more))


def test_a_message_wakes_a_pull_up(broker: PullBroker, store: FakeStore) -> None:
    broker.wait()
    arrive(broker, store)

    assert ([b"one"], 0) == ([answer.body for answer in broker.answers], len(broker.hold))


def test_a_pull_commits_when_it_comes_and_not_when_it_wakes_up(broker: PullBroker, store: FakeStore) -> None:
    broker.wait(sys_flag=CARRIED | SUSPEND | COMMIT, commit_offset=4)
    assert 4 == broker.offsets.query_offset("billing", "orders", 0)

    broker.offsets.commit_offset("other", "billing", "orders", 0, 9)
    arrive(broker, store)
    assert 9 == broker.offsets.query_offset("billing", "orders", 0)


# ---- time


def test_a_message_that_nobody_told_of_is_noticed(broker: PullBroker, store: FakeStore) -> None:
    broker.wait()
    store.result, store.max_offset = found(), 1
    broker.hold.run_once()

    assert [b"one"] == [answer.body for answer in broker.answers]


@pytest.mark.parametrize(
    ("settings", "pause", "patience"),
    [({}, 5.0, 15.0), ({"long_polling_enable": False}, 1.0, 1.0),
     ({"long_polling_enable": False, "short_polling_time_mills": 200}, 0.2, 0.2)],
)  # fmt: skip
def test_long_and_short_polling_differ_in_pause_and_patience(
    settings: dict[str, Any], pause: float, patience: float, store: FakeStore, tmp_path: Path
) -> None:
    broker = PullBroker(store, tmp_path, **settings)
    broker.wait(suspend_timeout_millis=15_000)
    before = broker.clock.monotonic()
    broker.hold.pause()
    assert pytest.approx(pause) == broker.clock.monotonic() - before

    broker.clock.seconds = before + patience - 0.001
    broker.hold.run_once()
    assert [] == broker.answers
    broker.clock.seconds = before + patience
    broker.hold.run_once()
    assert 1 == len(broker.answers)


# ---- filters


def test_tags_of_others_wake_nobody_up(broker: PullBroker, store: FakeStore) -> None:
    broker.wait(subscription="TagA")
    arrive(broker, store, tags_code=hash_code("TagB"))
    assert (1, []) == (len(broker.hold), broker.answers)

    arrive(broker, store, tags_code=hash_code("TagA"))
    assert 1 == len(broker.answers)


@pytest.mark.parametrize(("properties", "woken"), [({"a": "6"}, 1), ({"a": "5"}, 0), ({}, 0), (None, 1)])
@pytest.mark.parametrize("retries", [False, True])
def test_expressions_are_asked_with_the_properties(
    properties: dict[str, str] | None, woken: int, retries: bool, store: FakeStore, tmp_path: Path
) -> None:
    broker = PullBroker(store, tmp_path, enable_property_filter=True, filter_support_retry=retries)
    broker.wait(subscription="a > 5", expression_type="SQL92")
    arrive(broker, store, properties=properties)

    assert woken == len(broker.answers)


# ---- the rest


def test_all_wake_up_when_the_master_is_back(broker: PullBroker) -> None:
    broker.wait()
    broker.wait(queue_id=1)
    broker.hold.notify_master_online()

    assert (2, 0) == (len(broker.answers), len(broker.hold))


def test_the_mistake_of_one_consumer_keeps_no_other_waiting(
    broker: PullBroker, store: FakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("no more memory here")

    broker.processor.process_request(a_pull(sys_flag=CARRIED | SUSPEND), on_response=fail)
    broker.wait()
    with caplog.at_level(logging.ERROR, "store_core"):
        arrive(broker, store)

    assert 1 == len(broker.answers)
    assert "no more memory here" in caplog.text


def test_an_executor_gets_what_is_to_be_done(store: FakeStore) -> None:
    tasks: list[Callable[[], object]] = []
    hold = PullRequestHoldService(store, BrokerConfig(), FakeClock(), execute=tasks.append)
    done: list[bool] = []
    hold.suspend_pull_request(a_pull(), ExpressionMessageFilter(None), 1000, lambda: done.append(True))
    hold.notify_message_arriving("orders", 0, 1)
    assert [] == done
    for task in tasks:
        task()

    assert [True] == done


def test_a_message_put_into_a_store_wakes_a_pull_up(tmp_path: Path) -> None:
    with DefaultMessageStore.open(tmp_path, config(), clock=SystemClock()) as real:
        broker = PullBroker(real, tmp_path)
        real.reput_message_service.listeners.append(broker.hold)
        assert broker.wait() is None
        real.put_message(Message("orders", b"body"))
        real.dispatch_now()

        assert [[b"body"]] == [[message.body for message in answer.messages] for answer in broker.answers]
