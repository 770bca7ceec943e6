# SPDX-License-Identifier: Apache-2.0
"""Light queues and inner batches: what the lock adds to a message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from store_core.format.message import AppendMessageStatus, PutMessageStatus
from store_core.format.record.decode import client_batch
from tests.store_core.store.logs import FILE_SIZE, Log, message

if TYPE_CHECKING:
    from pathlib import Path

LMQ_53: dict[str, Any] = {"enable_lmq": True}
LMQ_49: dict[str, Any] = {"enable_lmq": True, "enable_multi_dispatch": True, "release": "4.9"}
DISPATCH = "INNER_MULTI_DISPATCH"
OFFSETS = "INNER_MULTI_QUEUE_OFFSET"


def put(log: Log, names: str, **more: Any) -> str | None:  # noqa: ANN401 -- any argument of Message
    """Put a message to light queues, and return the indexes that its record holds."""
    properties = {DISPATCH: names} | more.pop("properties", {})
    assert log.log.put_message(message(properties=properties, **more)).is_ok
    return log.messages[-1].properties.get(OFFSETS)


@pytest.mark.parametrize("settings", [LMQ_49, LMQ_53])
def test_record_holds_the_index_in_each_queue(tmp_path: Path, settings: dict[str, Any]) -> None:
    log = Log(tmp_path, settings)
    indexes = [put(log, names, queue_id=5) for names in ("%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%b,%LMQ%a")]

    assert ["0", "1,0", "1,2"] == indexes
    assert {"%LMQ%a": 3, "%LMQ%b": 2} == log.log.queue_offsets.lmq_queues()


def test_other_names_are_queues_of_their_own_in_4_9(tmp_path: Path) -> None:
    log = Log(tmp_path, LMQ_49)

    assert ["0,0", "1,1"] == [put(log, "%LMQ%a,plain", queue_id=5) for _ in range(2)]
    assert 2 == log.log.queue_offsets.next_offset("plain", 5)


def test_other_names_have_no_index_in_5_3(tmp_path: Path) -> None:
    log = Log(tmp_path, LMQ_53)

    assert ["0,", "1,"] == [put(log, "%LMQ%a,plain") for _ in range(2)]
    assert 0 == log.log.queue_offsets.next_offset("plain", 0)


@pytest.mark.parametrize(("settings", "next_offset"), [(LMQ_49, 1), (LMQ_53, 2)])
def test_name_that_comes_twice_counts_as_the_release_has_it(
    tmp_path: Path, settings: dict[str, Any], next_offset: int
) -> None:
    log = Log(tmp_path, settings)

    assert "0,0" == put(log, "%LMQ%a,%LMQ%a")
    assert {"%LMQ%a": next_offset} == log.log.queue_offsets.lmq_queues()


@pytest.mark.parametrize(("settings", "is_kept"), [(LMQ_49, False), (LMQ_53, True)])
def test_waiting_is_left_out_of_the_record_in_4_9(tmp_path: Path, settings: dict[str, Any], is_kept: bool) -> None:
    log = Log(tmp_path, settings)
    put(log, "%LMQ%a", properties={"WAIT": "true"})

    assert is_kept is ("WAIT" in log.messages[0].properties)


@pytest.mark.parametrize("settings", [{}, {"enable_lmq": True, "release": "4.9"}, {"enable_multi_dispatch": True}])
def test_property_means_nothing_unless_enabled(tmp_path: Path, settings: dict[str, Any]) -> None:
    log = Log(tmp_path, settings)

    assert put(log, "%LMQ%a") is None
    assert {} == log.log.queue_offsets.lmq_queues()


@pytest.mark.parametrize("topic", ["%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"])
@pytest.mark.parametrize(("settings", "indexes"), [(LMQ_49, "0"), (LMQ_53, None)])
def test_system_topics_have_no_light_queues_in_5_3(
    tmp_path: Path, topic: str, settings: dict[str, Any], indexes: str | None
) -> None:
    assert indexes == put(Log(tmp_path, settings), "%LMQ%a", topic=topic)


def test_blank_list_is_no_list(tmp_path: Path) -> None:
    assert put(Log(tmp_path, LMQ_53), " ") is None


@pytest.mark.parametrize(("settings", "next_offset"), [(LMQ_49, 0), (LMQ_53, 1)])
def test_prepared_messages_move_light_queues_in_5_3_only(
    tmp_path: Path, settings: dict[str, Any], next_offset: int
) -> None:
    log = Log(tmp_path, settings)
    put(log, "%LMQ%a", sys_flag=4)

    assert next_offset == log.log.queue_offsets.next_light_offset("%LMQ%a")


@pytest.mark.parametrize(
    ("settings", "status", "append_status"),
    [
        (LMQ_49, PutMessageStatus.UNKNOWN_ERROR, AppendMessageStatus.UNKNOWN_ERROR),
        (LMQ_53, PutMessageStatus.MESSAGE_ILLEGAL, AppendMessageStatus.PROPERTIES_SIZE_EXCEEDED),
    ],
)
def test_properties_that_grow_too_long_under_the_lock_leave_no_trace(
    tmp_path: Path, settings: dict[str, Any], status: PutMessageStatus, append_status: AppendMessageStatus
) -> None:
    log = Log(tmp_path, settings | {"mapped_file_size_commit_log": 1 << 16})
    put(log, "%LMQ%a")
    before = log.positions
    result = log.log.put_message(message(properties={DISPATCH: "%LMQ%a", "long": "x" * 32720}))

    assert result.append_message_result is not None
    assert (status, append_status) == (result.status, result.append_message_result.status)
    assert before == log.positions


def test_record_for_light_queues_is_limited_as_a_whole_in_5_3(tmp_path: Path) -> None:
    log = Log(tmp_path, LMQ_53 | {"max_message_size": 200})
    result = log.log.put_message(message(b"x" * 150, properties={DISPATCH: "%LMQ%a"}))

    assert result.append_message_result is not None
    assert AppendMessageStatus.MESSAGE_SIZE_EXCEEDED is result.append_message_result.status
    assert PutMessageStatus.MESSAGE_ILLEGAL is result.status
    assert {} == log.log.queue_offsets.lmq_queues()


def test_record_that_moves_to_the_next_file_keeps_its_indexes(tmp_path: Path) -> None:
    log = Log(tmp_path, LMQ_53)

    assert ["0", "1"] == [put(log, "%LMQ%a", body=b"x" * 2500) for _ in range(2)]
    assert [0, FILE_SIZE] == [stored.physical_offset for stored in log.messages]


# ---- inner batches


def inner_batch(count: int, number: str | None = None) -> Any:  # noqa: ANN401 -- a Message
    batch = client_batch([message(topic="bq") for _ in range(count)])
    return replace(batch, sys_flag=0xC0, properties={"INNER_NUM": number or str(count)})


def test_inner_batch_is_one_record_that_takes_several_indexes(tmp_path: Path) -> None:
    log = Log(tmp_path)
    results = [log.log.put_message(inner_batch(count)) for count in (2, 3)]

    assert [("0", "2"), ("2", "3")] == [
        (stored.properties["INNER_BASE"], stored.properties["INNER_NUM"]) for stored in log.messages
    ]
    assert [0, 2] == [stored.queue_offset for stored in log.messages]
    assert [2, 3] == [result.append_message_result and result.append_message_result.msg_num for result in results]
    assert 5 == log.log.queue_offsets.next_offset("bq", 0)


@pytest.mark.parametrize("number", ["0", "-3"])
def test_inner_batch_takes_one_index_at_least(tmp_path: Path, number: str) -> None:
    log = Log(tmp_path)
    log.log.put_message(inner_batch(1, number))

    assert 1 == log.log.queue_offsets.next_offset("bq", 0)


def test_inner_batch_means_nothing_in_4_9(tmp_path: Path) -> None:
    log = Log(tmp_path, {"release": "4.9"})
    log.log.put_message(inner_batch(2))

    assert "INNER_BASE" not in log.messages[0].properties
    assert 1 == log.log.queue_offsets.next_offset("bq", 0)


def test_number_of_a_plain_message_to_a_batch_topic_counts(tmp_path: Path) -> None:
    log = Log(tmp_path, services={"is_batch_topic": lambda topic: topic == "bq"})
    log.log.put_message(message(topic="bq", properties={"INNER_NUM": "3"}))

    assert 3 == log.log.queue_offsets.next_offset("bq", 0)
