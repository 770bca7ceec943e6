# SPDX-License-Identifier: Apache-2.0
"""Messages make the same log as in RocketMQ, file for file, and many at once the same as one by one."""

from __future__ import annotations

import base64
import errno
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import InvalidOptionError
from store_core.files.machine import SystemClock
from store_core.format.message import Message, PutMessageStatus
from store_core.format.record.encode import properties_bytes
from store_core.store.put import commit_log
from store_core.store.put.put_service import default_hooks
from tests.golden_replay import Put, Replay, StubState, golden_puts
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.store.logs import FILE_SIZE, Log, messages_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def batch_of(messages: list[Message]) -> pa.RecordBatch:
    columns = {
        "topic": pa.array([each.topic for each in messages], pa.string()),
        "body": pa.array([each.body for each in messages], pa.binary()),
        "queue_id": pa.array([each.queue_id for each in messages], pa.int32()),
        "tags": pa.array([each.tags for each in messages], pa.string()),
        "sys_flag": pa.array([each.sys_flag for each in messages], pa.int32()),
        "delay_level": pa.array([each.delay_level for each in messages], pa.int32()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


messages = st.lists(
    st.builds(
        Message,
        st.sampled_from(["orders", "b", "%RETRY%g"]),
        st.one_of(st.binary(max_size=20), st.binary(min_size=400, max_size=900)),
        st.integers(0, 2),
        tags=st.one_of(st.none(), st.sampled_from(["TagA", "标签"])),
        sys_flag=st.sampled_from([0, 0, 0, 4, 8, 12]),
        delay_level=st.one_of(st.none(), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(messages, st.sampled_from(["4.3", "4.9", "5.3"]), st.booleans(), st.integers(0, 40))
def test_bulk_equals_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    chosen: list[Message],
    release: str,
    crc: bool,
    cut: int,
) -> None:
    settings = {"release": release, "enabled_append_prop_crc": crc}
    bulk, single = (Log(tmp_path_factory.mktemp("log"), settings) for _ in range(2))
    results = [bulk.log.append_batch(batch_of(part)) for part in (chosen[:cut], chosen[cut:])]
    for each in chosen:
        assert single.put_message(each).is_ok

    assert single.files == bulk.files
    assert single.positions == bulk.positions
    physical = np.concatenate([result.physical_offsets for result in results])
    indexes = np.concatenate([result.queue_offsets for result in results])
    assert [stored.physical_offset for stored in single.messages] == physical.tolist()
    assert [stored.queue_offset for stored in single.messages] == indexes.tolist()
    assert single.log.stats.put_message_topic_size == bulk.log.stats.put_message_topic_size


def small(count: int, size: int = 900) -> pa.RecordBatch:
    return batch_of([Message("orders", b"x" * size) for _ in range(count)])


def test_result_tells_the_whole_stretch(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.log.append_batch(small(1))
    result = log.log.append_batch(small(5))

    assert (PutMessageStatus.PUT_OK, True, 5) == (result.status, result.is_ok, result.msg_num)
    assert (997, FILE_SIZE + 2 * 997) == (result.wrote_offset, result.next_offset)
    assert log.clock.wall_ms == result.store_timestamp


def test_messages_before_a_full_disk_stay(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.disk.free_blocks = 2
    result = log.log.append_batch(small(12))

    assert (PutMessageStatus.UNKNOWN_ERROR, False, 8) == (result.status, result.is_ok, result.msg_num)
    assert list(range(8)) == [stored.queue_offset for stored in messages_of(tmp_path)]
    assert 8 == log.log.queue_offsets.next_offset("orders", 0) == log.log.stats.put_message_times_total
    log.disk.heal()
    assert [8, 9] == log.log.append_batch(small(2)).queue_offsets.tolist()


@pytest.mark.parametrize(
    ("call", "error", "after", "status"),
    [
        ("open", errno.EACCES, 1, PutMessageStatus.CREATE_MAPPED_FILE_FAILED),
        ("write", errno.EIO, 2, PutMessageStatus.UNKNOWN_ERROR),
    ],
    ids=["the next file", "the blank record"],
)
def test_messages_before_what_can_not_be_made_stay_and_it_is_tried_again(
    call: str, error: int, after: int, status: PutMessageStatus, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.disk.fail(call, error, after=after)
    result = log.log.append_batch(small(6))

    assert (status, 4) == (result.status, result.msg_num)
    assert 2 == log.log.append_batch(small(2)).msg_num
    assert 6 == len(messages_of(tmp_path))


def test_message_larger_than_a_file_refuses_all(tmp_path: Path) -> None:
    log = Log(tmp_path)
    both = pa.Table.from_batches([small(1), small(1, FILE_SIZE)])
    result = log.log.append_batch(both)

    assert (PutMessageStatus.MESSAGE_ILLEGAL, 0) == (result.status, result.msg_num)
    assert {} == log.files


def test_illegal_message_refuses_all(tmp_path: Path) -> None:
    log = Log(tmp_path, {"max_message_size": 900})
    both = pa.Table.from_batches([small(1), small(1, 901)])

    with pytest.raises(InvalidOptionError, match="row 1: MESSAGE_ILLEGAL: a body of 901 bytes"):
        log.log.append_batch(both)
    assert {} == log.files


def test_long_tables_are_encoded_in_batches_under_one_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parted = Log(tmp_path / "whole"), Log(tmp_path / "parted")
    table = pa.Table.from_batches([small(5), small(6, 10)])
    expected = whole.log.append_batch(table)
    monkeypatch.setattr(commit_log, "_BATCH_ROWS", 4)
    result = parted.log.append_batch(table)

    assert whole.files == parted.files
    assert whole.positions == parted.positions
    assert (expected.msg_num, expected.next_offset) == (result.msg_num, result.next_offset)
    assert expected.physical_offsets.tolist() == result.physical_offsets.tolist()
    assert 3 == len(parted.log.encode_messages(table))


def test_error_in_a_later_batch_names_the_row_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "_BATCH_ROWS", 4)
    log = Log(tmp_path, {"max_message_size": 900})
    table = pa.Table.from_batches([small(6), small(1, 901)])

    with pytest.raises(InvalidOptionError, match="row 6: MESSAGE_ILLEGAL"):
        log.log.append_batch(table)
    assert {} == log.files


def test_batches_behind_one_that_fails_are_not_appended(tmp_path: Path) -> None:
    log = Log(tmp_path)
    encoded = [*log.log.encode_messages(small(2)), *log.log.encode_messages(small(2))]
    log.disk.fail("write", errno.EIO)
    result = log.log.append_batch(encoded)

    assert (PutMessageStatus.UNKNOWN_ERROR, 0) == (result.status, result.msg_num)
    assert [] == log.messages


def test_encoded_messages_may_come_from_elsewhere(tmp_path: Path) -> None:
    log = Log(tmp_path)
    encoded = [*log.log.encode_messages(small(3)), *log.log.encode_messages(small(2))]

    assert [0, 1, 2, 3, 4] == log.log.append_batch(encoded).queue_offsets.tolist()
    assert (True, 0) == (log.log.append_batch([]).is_ok, log.log.append_batch([]).msg_num)


def test_synchronous_flush_is_waited_for_once(tmp_path: Path) -> None:
    log = Log(tmp_path, {"flush_disk_type": "SYNC_FLUSH"}, real_clock=SystemClock())
    log.log.start()
    result = log.log.append_batch(small(9))
    log.log.shutdown()

    assert (PutMessageStatus.PUT_OK, result.next_offset) == (result.status, log.log.flushed_where)


_BY_THE_STORE_ALONE: Final = frozenset(
    {"basic", "batch", "compressed", "crash", "ext", "ipv6", "lmq", "v2topic", "propcrc", "bcq", "aged"}
)
"""In other stores a broker wrote its own records, or the log is damaged, or the first answers are missing."""

REPLAYED: Final = [store.name for store in golden_stores() if store.scenario in _BY_THE_STORE_ALONE]
DELAYED: Final = [store.name for store in golden_stores() if store.scenario == "delay"]


@pytest.mark.golden
@pytest.mark.parametrize("name", REPLAYED)
def test_same_inputs_make_the_same_commit_log(
    name: str, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    replay = Replay(golden(name), tmp_path)
    for put in golden_puts(replay.store):
        assert put.expected == replay.put(put)

    expected, actual = replay.expected_segments(), replay.segments()
    # Retention has deleted the first files of an aged store.
    assert [name for name in actual if name >= min(expected)] == list(expected)
    for segment, data in expected.items():
        assert data == actual[segment], segment


@pytest.mark.golden
@pytest.mark.parametrize("name", DELAYED)
def test_delayed_and_timed_messages_are_rewritten_alike(
    name: str, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    replay = Replay(golden(name), tmp_path)
    hooks = default_hooks(replay.config, StubState(replay.clock))
    rewritten = 0
    for put in golden_puts(replay.store):
        replay.clock.wall_ms = put.line.get("storeTimestamp", 0)
        message: object = put.message
        if replay.config.features.schedules_by_hook:
            for hook in hooks:
                message = hook(message) if isinstance(message, Message) else message
        else:
            message = replay.commit_log.preparation.delayed(put.message)

        assert _after(put) == _described(message, replay)
        rewritten += isinstance(message, Message) and message.topic != put.message.topic
    assert rewritten > 200


def _after(put: Put) -> tuple[object, ...]:
    """Report what RocketMQ made of the message, or how it refused it."""
    if put.line["putStatus"] != "PUT_OK":
        return (put.expected[0],)
    after = put.line["after"]
    return after["topic"], after["queueId"], base64.b64decode(after["propertiesString"] or "")


def _described(message: object, replay: Replay) -> tuple[object, ...]:
    if not isinstance(message, Message):
        return (message,)
    return message.topic, message.queue_id, properties_bytes(message, replay.config.encode_rules)
