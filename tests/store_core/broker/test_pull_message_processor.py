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

    from store_core.queue.queue_path import Release

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


def test_every_status_has_a_code() -> None:
    assert set(GetMessageStatus) == {status for status, _, _ in CODES}


def test_the_body_is_the_records_one_behind_the_other(tmp_path: Path) -> None:
    store = FakeStore(result(GetMessageStatus.FOUND))
    answer = PullBroker(store, tmp_path).pull(queue_offset=5, max_msg_nums=2)

    assert (b"onetwo", [b"one", b"two"]) == (answer.body, [bytes(record) for record in answer.message_buffers])
    assert [("billing", "orders", 0, 5, 2)] == store.asked


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


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("request_", "code", "forbidden"), REFUSED)
def test_each_refusal_has_its_code(
    request_: dict[str, Any], code: int, forbidden: ForbiddenType | None, release: Release, tmp_path: Path
) -> None:
    broker = known(release, tmp_path)
    answer = broker.pull(**request_)

    assert (code, forbidden if release == "5.3" else None) == (answer.code, answer.forbidden_type)
    assert (b"", None, 0) == (answer.body, answer.result, answer.next_begin_offset)
    assert answer.remark


@pytest.mark.parametrize(("release", "code"), [("4.3", 1), ("4.9", 1), ("5.3", 29)])
@pytest.mark.parametrize("queue_id", [-1, 4, 1 << 31])
def test_a_queue_that_the_topic_has_not_is_refused(release: Release, code: int, queue_id: int, tmp_path: Path) -> None:
    assert code == known(release, tmp_path).pull(queue_id=queue_id).code


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"consumer_group": "nobody", "topic": "nowhere"}, 26),
        ({"consumer_group": "stopped", "topic": "nowhere"}, 16),
        ({"topic": "nowhere", "queue_id": 9}, 17),
        ({"topic": "write_only", "queue_id": 9}, 16),
        ({"queue_id": 9, "subscription": "||"}, 29),
    ],
)
def test_the_first_reason_counts(wrong: dict[str, Any], code: int, tmp_path: Path) -> None:
    assert code == known("5.3", tmp_path).pull(**wrong).code


def test_a_broker_that_may_not_be_read_refuses_first(tmp_path: Path) -> None:
    broker = PullBroker(FakeStore(), tmp_path, broker_permission=int(Permission.WRITE))
    answer = broker.pull(consumer_group="nobody")

    assert (16, ForbiddenType.BROKER_FORBIDDEN) == (answer.code, answer.forbidden_type)


@pytest.mark.parametrize(("release", "code"), [("4.3", 0), ("4.9", 0), ("5.3", 16)])
def test_a_group_may_be_forbidden_a_topic_in_5(release: Release, code: int, tmp_path: Path) -> None:
    broker = known(release, tmp_path)
    broker.groups.decode(
        {"forbiddenTable": {"billing": {"orders": int(Permission.READ)}}, "subscriptionGroupTable": {}}, "file"
    )

    assert code == broker.pull(sys_flag=0, sub_version=10).code


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


def test_a_carried_expression_that_does_not_compile_filters_nothing(tmp_path: Path) -> None:
    """In RocketMQ only a Java assert prevents it."""
    store = FakeStore(result(GetMessageStatus.FOUND))
    broker = PullBroker(store, tmp_path, enable_property_filter=True)

    assert 0 == broker.pull(subscription="a >", expression_type="SQL92").code
    (given,) = store.filters
    assert given is not None
    assert given.is_matched_by_consume_queue(1)
    assert given.is_matched_by_commit_log(memoryview(b""))


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


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"])
@pytest.mark.parametrize("flags", [CARRIED, CARRIED | COMMIT])
def test_offsets_are_committed_if_the_flag_says_so_in_4_by_masters_only(
    release: Release, role: str, flags: int, tmp_path: Path
) -> None:
    store = FakeStore(result(GetMessageStatus.FOUND), release=release, broker_role=role)
    broker = PullBroker(store, tmp_path)
    broker.pull(sys_flag=flags, commit_offset=4)
    is_kept = bool(flags & COMMIT) and (release == "5.3" or role != "SLAVE")

    assert (4 if is_kept else -1) == broker.offsets.query_offset("billing", "orders", 0)


def test_going_back_is_committed_too(tmp_path: Path) -> None:
    broker = PullBroker(FakeStore(), tmp_path)
    for offset in (8, 3):
        broker.pull(sys_flag=CARRIED | COMMIT, commit_offset=offset)

    assert 3 == broker.offsets.query_offset("billing", "orders", 0)


def test_a_refused_pull_commits_nothing(tmp_path: Path) -> None:
    broker = PullBroker(FakeStore(), tmp_path)
    broker.pull(sys_flag=CARRIED | COMMIT, commit_offset=8, queue_id=9)

    assert {} == broker.offsets.offset_table()


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


@pytest.mark.parametrize(("release", "settings"), [("4.9", {}), ("5.3", {"use_server_side_reset_offset": False})])
def test_resets_are_not_served_in_4_and_if_switched_off(
    release: Release, settings: dict[str, Any], tmp_path: Path
) -> None:
    broker = PullBroker(FakeStore(result(GetMessageStatus.FOUND), release=release), tmp_path, **settings)
    broker.offsets.assign_reset_offset("orders", "billing", 0, 12)

    assert 0 == broker.pull(queue_offset=20).code


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


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("reads_slaves", "is_behind", "suggested"), [(False, False, 0), (False, True, 0), (True, False, 5), (True, True, 6)]
)
def test_suggests_a_broker_as_the_group_is_configured_where_slaves_may_be_read(
    release: Release, reads_slaves: bool, is_behind: bool, suggested: int, tmp_path: Path
) -> None:
    store = FakeStore(result(GetMessageStatus.FOUND, is_behind=is_behind), release=release)
    broker = PullBroker(store, tmp_path, slave_read_enable=reads_slaves)
    broker.group("billing", broker_id=5, which_broker_when_consume_slowly=6)

    assert suggested == broker.pull().suggest_which_broker_id


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("status", [GetMessageStatus.FOUND, GetMessageStatus.OFFSET_OVERFLOW_ONE])
def test_a_slave_by_itself_answers_as_a_master_does(release: Release, status: GetMessageStatus, tmp_path: Path) -> None:
    """Whatever `slaveReadEnable` says: 4.x overwrites its PULL_RETRY_IMMEDIATELY, 5.x refuses earlier."""
    store = FakeStore(result(status), release=release, broker_role="SLAVE")
    broker = PullBroker(store, tmp_path, broker_id=1)

    assert ResponseCode.of_status(status, 5) is broker.pull(queue_offset=5).code


@pytest.mark.parametrize("release", ["4.3", "4.9"])
@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("reads_slaves", [False, True])
@pytest.mark.parametrize(
    "status", [status for status in GetMessageStatus if status is not GetMessageStatus.OFFSET_RESET]
)
def test_4_slave_answers_by_the_status_and_suggests_the_master_unless_it_may_be_read(
    release: Release, status: GetMessageStatus, reads_slaves: bool, is_behind: bool, tmp_path: Path
) -> None:
    """PULL_RETRY_IMMEDIATELY of a slave that may not be read lasts only until the status is evaluated."""
    store = FakeStore(
        result(status, is_behind=is_behind), release=release, broker_role="SLAVE", offset_check_in_slave=True
    )
    broker = PullBroker(store, tmp_path, broker_id=1, slave_read_enable=reads_slaves)
    broker.group("billing", broker_id=5, which_broker_when_consume_slowly=6)
    answer = broker.pull(queue_offset=5)

    suggested = (6 if is_behind else 5) if reads_slaves else 0
    assert (ResponseCode.of_status(status, 5), suggested) == (answer.code, answer.suggest_which_broker_id)


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


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("moves", [False, True])
def test_a_slave_lets_retry_unless_it_moves_offsets(release: Release, moves: bool, tmp_path: Path) -> None:
    store = FakeStore(
        result(GetMessageStatus.OFFSET_TOO_SMALL),
        release=release, broker_role="SLAVE", offset_check_in_slave=moves,
    )  # fmt: skip
    broker = PullBroker(store, tmp_path, broker_id=1)
    broker.group("billing", broker_id=5)
    answer = broker.pull()

    assert ((21, 0) if moves else (20, 5)) == (answer.code, answer.suggest_which_broker_id)


# ---- events


@pytest.mark.parametrize("release", RELEASES)
def test_4_stores_an_event_where_an_offset_is_moved(
    release: Release, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FakeStore(result(GetMessageStatus.OFFSET_OVERFLOW_BADLY), release=release)
    broker = PullBroker(store, tmp_path, broker_name="b-1", broker_ip1="10.0.0.9", listen_port=10911)
    with caplog.at_level(logging.WARNING, "store_core"):
        broker.pull(queue_offset=99, queue_id=2)

    assert "offset_request=99, offset_new=7" in caplog.text
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


def test_other_answers_store_no_event(tmp_path: Path) -> None:
    store = FakeStore(release="4.9")
    for status in set(GetMessageStatus) - {
        GetMessageStatus.OFFSET_OVERFLOW_BADLY, GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_RESET
    }:  # fmt: skip
        store.result = result(status)
        PullBroker(store, tmp_path).pull()

    assert [] == store.put
