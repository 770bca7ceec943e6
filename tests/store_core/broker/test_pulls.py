# SPDX-License-Identifier: Apache-2.0
"""Pulls: codes, suggestions, commits and events of their answers, and how they wait for messages."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core.broker.consumer_filter import ExpressionMessageFilter
from store_core.broker.pull_checks import PullMessageRequest, PullSysFlag, ResponseCode
from store_core.broker.pull_message_processor import PullRequestHoldService, offset_moved_event
from store_core.files.machine import SystemClock
from store_core.format.java import hash_code
from store_core.format.message import Message
from store_core.store.get_message import GetMessageResult, GetMessageStatus
from store_core.store.message_store import DefaultMessageStore
from store_core.store.message_store_config import BrokerConfig
from tests.store_core.broker.pull_broker import CARRIED, FakeStore, PullBroker, a_pull
from tests.store_core.fakes import FakeClock
from tests.store_core.store.logs import config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.format.release import Release


RELEASES: tuple[Release, ...] = ("4.3", "4.9", "5.3")
COMMIT, SUSPEND = PullSysFlag.COMMIT_OFFSET, PullSysFlag.SUSPEND


def result(status: GetMessageStatus, *, is_behind: bool = False) -> GetMessageResult:
    found = GetMessageResult(status, 7, 3, 9, suggest_pulling_from_slave=is_behind)
    if status is GetMessageStatus.FOUND:
        found.add(memoryview(b"one"), 5, 1)
        found.add(memoryview(b"two"), 6, 1)
    return found


CODES = [
    (GetMessageStatus.FOUND, 5, 0),
    (GetMessageStatus.MESSAGE_WAS_REMOVING, 5, 20),
    (GetMessageStatus.NO_MATCHED_MESSAGE, 5, 20),
    (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 19),
    (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 5, 21),
    (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 19),
    (GetMessageStatus.NO_MESSAGE_IN_QUEUE, -1, 21),
    (GetMessageStatus.OFFSET_FOUND_NULL, 5, 19),
    (GetMessageStatus.OFFSET_OVERFLOW_ONE, 5, 19),
    (GetMessageStatus.OFFSET_OVERFLOW_BADLY, 5, 21),
    (GetMessageStatus.OFFSET_TOO_SMALL, 0, 21),
    (GetMessageStatus.OFFSET_RESET, 5, 21),
]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("status", "offset", "code"), CODES)
def test_each_status_has_its_code(
    status: GetMessageStatus, offset: int, code: int, release: Release, tmp_path: Path
) -> None:
    broker = PullBroker(FakeStore(result(status), release=release), tmp_path)
    answer = broker.pull(queue_offset=offset)

    assert (code, status.name, 7, 3, 9) == (
        answer.code, answer.remark, answer.next_begin_offset, answer.min_offset, answer.max_offset
    )  # fmt: skip
    assert status is answer.status


@pytest.mark.parametrize(("release", "commits"), [("4.3", 1), ("4.9", 1), ("5.3", -1)])
def test_a_store_that_gives_nothing_is_a_system_error(release: Release, commits: int, tmp_path: Path) -> None:
    """4.x keeps the committed offset even then."""
    store = FakeStore(release=release)
    store.result = None
    broker = PullBroker(store, tmp_path)

    assert ResponseCode.SYSTEM_ERROR is broker.pull(sys_flag=CARRIED | COMMIT, commit_offset=1).code
    assert commits == broker.offsets.query_offset("billing", "orders", 0)


# ---- refusals


@pytest.mark.parametrize(
    ("registered", "version", "code"), [(None, 10, 27), (9, 10, 28), (10, 10, 0), (11, 10, 0), (10, 11, 25)]
)
def test_a_registered_expression_has_to_be_there_and_new_enough(
    registered: int | None, version: int, code: int, tmp_path: Path
) -> None:
    store = FakeStore(result(GetMessageStatus.FOUND), release="5.3")
    broker = PullBroker(store, tmp_path, enable_property_filter=True)
    broker.group("sql")
    broker.connect("sql", "orders", "a > 5", "SQL92", version=10)
    if registered is not None:
        broker.register("sql", "orders", "a > 5", registered)

    assert code == broker.pull(sys_flag=0, consumer_group="sql", sub_version=version).code


@pytest.mark.parametrize(
    ("release", "name", "creates", "code"),
    [
        ("5.3", "new", True, 0),
        ("5.3", "new group!", True, 26),
        ("5.3", "n" * 256, True, 26),
        ("4.9", "new group!", True, 0),
        ("5.3", "new", False, 26),
        ("5.3", "CID_RMQ_SYS_TRANS", False, 0),
    ],
)
def test_unknown_groups_may_be_made_by_a_pull(
    release: Release, name: str, creates: bool, code: int, tmp_path: Path
) -> None:
    store = FakeStore(result(GetMessageStatus.FOUND), release=release)
    broker = PullBroker(store, tmp_path, auto_create_subscription_group=creates)

    assert code == broker.pull(consumer_group=name).code
    assert (code == 0) == (name in broker.groups.groups())


# ---- committing


def test_the_pulled_offset_is_remembered_in_5(tmp_path: Path) -> None:
    broker = PullBroker(FakeStore(result(GetMessageStatus.FOUND)), tmp_path)
    broker.pull()

    assert (7, -1) == (
        broker.offsets.query_pull_offset("billing", "orders", 0),
        broker.offsets.query_offset("billing", "orders", 0),
    )


def test_a_reset_is_served_once_instead_of_messages(tmp_path: Path) -> None:
    store = FakeStore(result(GetMessageStatus.FOUND))
    store.min_offset, store.max_offset = 2, 30
    broker = PullBroker(store, tmp_path)
    broker.offsets.assign_reset_offset("orders", "billing", 0, 12)
    first, second = broker.pull(queue_offset=20), broker.pull(queue_offset=20)

    assert (21, "OFFSET_RESET", 12, 2, 30) == (
        first.code, first.remark, first.next_begin_offset, first.min_offset, first.max_offset
    )  # fmt: skip
    assert (0, 1) == (second.code, len(store.asked))


# ---- retries


@pytest.mark.parametrize(("supports_retry", "expected"), [(True, [False, True]), (False, [True, True])])
def test_retries_are_filtered_by_what_the_group_registered_for_their_topic_if_configured(
    supports_retry: bool, expected: list[bool], tmp_path: Path
) -> None:
    store = FakeStore(release="4.9")
    broker = PullBroker(store, tmp_path, enable_property_filter=True, filter_support_retry=supports_retry)
    broker.topic("%RETRY%billing")
    broker.register("billing", "orders", "a > 5")
    broker.pull(topic="%RETRY%billing")
    wanted = store.filters[-1]

    assert isinstance(wanted, ExpressionMessageFilter)
    assert expected == [wanted.is_matched_by_properties({"RETRY_TOPIC": "orders", "a": number}) for number in "56"]


# ---- slaves and suggestions


@pytest.mark.parametrize(
    ("status", "is_behind", "first_id", "code"),
    [
        (GetMessageStatus.FOUND, False, 0, 0),
        (GetMessageStatus.OFFSET_OVERFLOW_ONE, False, 0, 20),
        (GetMessageStatus.OFFSET_OVERFLOW_BADLY, False, 0, 20),
        (GetMessageStatus.OFFSET_OVERFLOW_ONE, True, 0, 19),
        (GetMessageStatus.OFFSET_OVERFLOW_ONE, False, 1, 19),
    ],
)
def test_a_slave_in_a_container_sends_consumers_back_to_a_living_master(
    status: GetMessageStatus, is_behind: bool, first_id: int, code: int, tmp_path: Path
) -> None:
    store = FakeStore(result(status, is_behind=is_behind), broker_role="SLAVE")
    broker = PullBroker(store, tmp_path, broker_id=1, slave_read_enable=True, min_broker_id=first_id)
    broker.group("billing", broker_id=5, which_broker_when_consume_slowly=6)
    answer = broker.pull(queue_offset=5)

    assert (code, 0) == (answer.code, answer.suggest_which_broker_id)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
@pytest.mark.parametrize("reads_slaves", [False, True])
def test_only_5_rejects_pulls_from_slaves_that_are_not_to_be_read(
    release: Release, role: str, reads_slaves: bool, tmp_path: Path
) -> None:
    store = FakeStore(release=release, broker_role=role)
    broker = PullBroker(store, tmp_path, slave_read_enable=reads_slaves)
    is_rejected = release == "5.3" and role == "SLAVE" and not reads_slaves

    assert is_rejected is broker.processor.rejects_requests


# ---- events


@pytest.mark.parametrize("release", RELEASES)
def test_4_stores_an_event_where_an_offset_is_moved(
    release: Release, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FakeStore(result(GetMessageStatus.OFFSET_OVERFLOW_BADLY), release=release)
    broker = PullBroker(store, tmp_path, broker_name="b-1", broker_ip1="10.0.0.9", listen_port=10911)
    with caplog.at_level(logging.WARNING, "store_core"):
        broker.pull(queue_offset=99, queue_id=2)

    assert '"offsetNew":7,"offsetRequest":99' in caplog.text
    if release == "5.3":
        assert [] == store.put
        return
    (event,) = store.put
    assert ("OFFSET_MOVED_EVENT", 0, ("10.0.0.9", 10911), ("10.0.0.9", 10911)) == (
        event.topic, event.queue_id, event.born_host, event.store_host
    )  # fmt: skip
    assert {"TAGS": "billing", "KEYS": "billing", "DELAY": "0"} == event.properties
    assert {
        "consumerGroup": "billing",
        "messageQueue": {"brokerName": "b-1", "queueId": 2, "topic": "orders"},
        "offsetNew": 7,
        "offsetRequest": 99,
    } == json.loads(event.body or b"")


NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)


def event(group: str = "g", topic: str = "orders", broker: str = "b", request: int = 9, new: int = 5) -> bytes:
    asked = PullMessageRequest(consumer_group=group, topic=topic, queue_id=1, queue_offset=request)
    return offset_moved_event(asked, new, broker)


def test_members_come_in_the_order_of_their_names() -> None:
    expected = (
        b'{"consumerGroup":"g","messageQueue":{"brokerName":"b","queueId":1,"topic":"orders"},'
        b'"offsetNew":5,"offsetRequest":9}'
    )

    assert expected == event()


@given(NAMES, NAMES, NAMES, OFFSETS, OFFSETS)
@example('a"b', "a\\b", "a\nb", 9, 5)
def test_any_event_can_be_read_as_json(group: str, topic: str, broker: str, request: int, new: int) -> None:
    encoded = event(group, topic, broker, request, new)

    assert {
        "consumerGroup": group,
        "messageQueue": {"brokerName": broker, "queueId": 1, "topic": topic},
        "offsetNew": new,
        "offsetRequest": request,
    } == json.loads(encoded)


# ---- waiting


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def broker(store: FakeStore, tmp_path: Path) -> PullBroker:
    return PullBroker(store, tmp_path)


def arrive(broker: PullBroker, store: FakeStore, **more: Any) -> None:  # noqa: ANN401 -- those of an arrival
    """Let the first message come."""
    store.result, store.max_offset = result(GetMessageStatus.FOUND), 1
    broker.hold.notify_message_arriving("orders", more.pop("queue_id", 0), 1, **({"tags_code": 0} | more))


def test_a_message_wakes_a_pull_up(broker: PullBroker, store: FakeStore) -> None:
    broker.wait()
    arrive(broker, store)

    assert ([b"onetwo"], 0) == ([answer.body for answer in broker.answers], len(broker.hold))


def test_a_pull_commits_when_it_comes_and_not_when_it_wakes_up(broker: PullBroker, store: FakeStore) -> None:
    broker.wait(sys_flag=CARRIED | SUSPEND | COMMIT, commit_offset=4)
    assert 4 == broker.offsets.query_offset("billing", "orders", 0)

    broker.offsets.commit_offset("other", "billing", "orders", 0, 9)
    arrive(broker, store)
    assert 9 == broker.offsets.query_offset("billing", "orders", 0)


# ---- time


def test_a_message_that_nobody_told_of_is_noticed(broker: PullBroker, store: FakeStore) -> None:
    broker.wait()
    store.result, store.max_offset = result(GetMessageStatus.FOUND), 1
    broker.hold.run_once()

    assert [b"onetwo"] == [answer.body for answer in broker.answers]


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
