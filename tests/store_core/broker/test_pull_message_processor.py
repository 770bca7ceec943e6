# SPDX-License-Identifier: Apache-2.0
"""Answers to pulls: codes, suggestions, commits, events."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from store_core.broker.consumer_filter import ExpressionMessageFilter
from store_core.broker.pull_checks import ForbiddenType, PullSysFlag, ResponseCode
from store_core.snapshot.config import Permission
from store_core.store.get_message import GetMessageResult, GetMessageStatus
from tests.store_core.broker.pull_broker import CARRIED, FakeStore, PullBroker

if TYPE_CHECKING:
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


REFUSED: list[tuple[dict[str, Any], int, ForbiddenType | None]] = [
    ({"consumer_group": "nobody"}, 26, None),
    ({"consumer_group": "stopped"}, 16, ForbiddenType.GROUP_FORBIDDEN),
    ({"topic": "nowhere"}, 17, None),
    ({"topic": "write_only"}, 16, ForbiddenType.TOPIC_FORBIDDEN),
    ({"subscription": "||"}, 23, None),
    ({"subscription": "", "expression_type": "SQL92"}, 23, None),
    ({"subscription": "a > 5", "expression_type": "SQL92"}, 1, None),
    ({"subscription": "x", "expression_type": "XPATH"}, 1, None),
    ({"sys_flag": 0, "consumer_group": "away"}, 24, None),
    ({"sys_flag": 0, "topic": "other"}, 24, None),
    ({"sys_flag": 0, "consumer_group": "loud"}, 16, ForbiddenType.BROADCASTING_DISABLE_FORBIDDEN),
    ({"sys_flag": 0, "sub_version": 11}, 25, None),
]


def known(release: Release, root: Path, **settings: Any) -> PullBroker:  # noqa: ANN401 -- those of a broker
    broker = PullBroker(FakeStore(result(GetMessageStatus.FOUND), release=release), root, **settings)
    broker.topic("write_only", perm=Permission.WRITE)
    broker.topic("other")
    broker.group("stopped", consume_enable=False)
    broker.group("away")
    broker.group("loud", consume_broadcast_enable=False)
    broker.group("sql")
    broker.connect("billing", "orders", version=10)
    broker.connect("loud", "orders", model="BROADCASTING")
    broker.connect("sql", "orders", "a > 5", "SQL92", version=10)
    return broker


@pytest.mark.parametrize(
    ("registered", "version", "code"), [(None, 10, 27), (9, 10, 28), (10, 10, 0), (11, 10, 0), (10, 11, 25)]
)
def test_a_registered_expression_has_to_be_there_and_new_enough(
    registered: int | None, version: int, code: int, tmp_path: Path
) -> None:
    broker = known("5.3", tmp_path, enable_property_filter=True)
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
