# SPDX-License-Identifier: Apache-2.0
"""A store's answers, compared with RocketMQ's for the same store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import DefaultMessageStore, InvalidOptionError, MessageSelector
from store_core.queue.consume_queue.queue_search import BoundaryType
from tests.store_core.store.asked_stores import AskedStores, answers, open_golden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store_core.store.get_message import GetMessageResult
    from tests.golden_stores import UnpackedStore

_EVER: Final = 2**63 - 1

some = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])

_FOREIGN: Final = {
    ("derived/4.9.7/rmcl5", "orders", 2, 0),
    ("derived/5.3.3/rmcl5", "orders", 2, 0),
}
"""Gets of a log that lost its first files, at a unit with physical offset 0: RocketMQ treats the bytes at the start of
the oldest remaining file as that record. Here there is no record at such an offset."""


@pytest.fixture
def asked(golden: Callable[[str], UnpackedStore], tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskedStores]:
    stores = AskedStores(golden, tmp_path_factory.mktemp("derived"))
    yield stores
    stores.close()


def _selector(line: dict[str, Any], release: str) -> MessageSelector | None:
    if line["filterType"] in (None, "SQLNODATA"):
        return None
    return MessageSelector.of(line["filterType"], line["filter"], release)


def _shown(result: GetMessageResult) -> dict[str, Any]:
    messages = result.message_buffers
    return {
        "status": result.status.name,
        "nextBeginOffset": result.next_begin_offset,
        "minOffset": result.min_offset,
        "maxOffset": result.max_offset,
        "messageCount": result.message_count,
        "bufferTotalSize": result.buffer_total_size,
        "suggestPullingFromSlave": result.suggest_pulling_from_slave,
        "queueOffsets": [int.from_bytes(record[20:28], signed=True) for record in messages],
        "physicalOffsets": [int.from_bytes(record[28:36], signed=True) for record in messages],
    }


def _get(store: DefaultMessageStore, line: dict[str, Any]) -> dict[str, Any]:
    selector = _selector(line, store.config.release)
    try:
        result = store.get_message("g", line["topic"], line["queueId"], line["offset"], line["maxMsgNums"], selector)
    except InvalidOptionError:
        return {"error": True}
    assert result is not None
    return _shown(result)


@some
def test_gets_as_rocketmq_does(asked: AskedStores, every: int) -> None:
    _compare_gets(asked, list(answers("getmessage_matrix", every)))


def test_gets_at_gaps_as_rocketmq_does(asked: AskedStores) -> None:
    """For stores of three releases without some segments of the log, or files of the queues."""
    lines = list(answers("gets_at_gaps"))
    statuses = {(line["store"].split("/")[1], line["answer"]["status"]) for line in lines}
    rare = ("OFFSET_FOUND_NULL", "MESSAGE_WAS_REMOVING")

    assert {(version, status) for version in ("4.3.0", "4.9.7", "5.3.3") for status in rare} <= statuses
    _compare_gets(asked, lines)


def _compare_gets(asked: AskedStores, lines: list[dict[str, Any]]) -> None:
    wrong = []
    for line in lines:
        expected = {"error": True} if "error" in line["answer"] else line["answer"]
        found = _get(asked.of(line), line)
        if found == expected:
            continue
        if (line["store"], line["topic"], line["queueId"], line["offset"]) in _FOREIGN:
            assert found["status"] == "MESSAGE_WAS_REMOVING"
            continue
        wrong.append((line, found))
    assert not wrong[:3], f"{len(wrong)} of {len(lines)}"
    assert len(lines) > 1000


@some
def test_finds_by_time_and_key_as_rocketmq_does(asked: AskedStores, every: int) -> None:
    wrong = []
    for line in answers("time_index_matrix", every):
        store = asked.of(line)
        found = _by_time(store, line) if line["op"] == "offsetByTime" else _by_key(store, line)
        if found != line["answer"]:
            wrong.append((line, found))
    assert not wrong[:3], f"{len(wrong)} differ"


def _by_time(store: DefaultMessageStore, line: dict[str, Any]) -> int:
    boundary = BoundaryType[line["boundary"] or "LOWER"]
    return store.get_offset_in_queue_by_time(line["topic"], line["queueId"], line["timestamp"], boundary)


def _by_key(store: DefaultMessageStore, line: dict[str, Any]) -> dict[str, Any]:
    found = store.query_message(line["topic"], line["key"], line["maxNum"], line["begin"], line["end"])
    return {
        "physicalOffsets": [message.physical_offset for message in found.messages],
        "indexLastUpdateTimestamp": found.index_last_update_timestamp,
        "indexLastUpdatePhyoffset": found.index_last_update_physical_offset,
    }


def _lines(unpacked: UnpackedStore, name: str) -> list[dict[str, Any]]:
    path = unpacked.path / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def test_reads_a_golden_store_through_its_queues(golden_store: UnpackedStore) -> None:
    """Everything by gets of 32, every key, and the times: the answers equal those of the release that wrote it."""
    with open_golden(golden_store) as store:
        for line in _lines(golden_store, "pull.jsonl"):
            if line["type"] == "get":
                result = store.get_message("g", line["topic"], line["queueId"], line["offset"], 32)
                assert result is not None
                found = _shown(result)
                assert {key: line[key] for key in line if key in found} == {
                    key: found[key] for key in line if key in found
                }
        for line in _lines(golden_store, "index.jsonl"):
            messages = store.query_message(line["topic"], line["key"], 64, 0, _EVER).messages
            assert [message.physical_offset for message in messages] == line["offsets"], line
        for line in _lines(golden_store, "bytime.jsonl"):
            for time, offset in line["offsets"].items():
                assert store.get_offset_in_queue_by_time(line["topic"], line["queueId"], int(time)) == offset, line
