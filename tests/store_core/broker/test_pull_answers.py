# SPDX-License-Identifier: Apache-2.0
"""Pulls that RocketMQ answered, and our answers to them.

``pull_requests.jsonl.xz`` was written by a Java program that asked the ``PullMessageProcessor`` of a broker
(``BrokerController``) without network, of RocketMQ 4.3.0, 4.9.7 and 5.3.3, on 2026-11-21: for each release eleven
configurations, and for each of these 130 random requests (with a fixed seed) on a copy of a golden store. One line per
configuration: ``topics``, ``groups`` and ``consumers`` at the start, ``steps`` in order (a request with its answer, or
a reset of an offset by the server), and the state at the end: ``offsets`` that were committed, and ``events``, the
first records of OFFSET_MOVED_EVENT.

``heldNow`` is how many requests wait after a step, ``reject`` the result of ``rejectRequest``, ``body`` the SHA-256 of
the body. The numbers of messages and of bytes that a get returns were not limited.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from store_core.broker.pull_checks import PullMessageRequest, PullMessageResponse
from store_core.snapshot.config import Permission
from store_core.store.message_store import DefaultMessageStore
from store_core.store.message_store_config import BrokerConfig, MessageStoreConfig, snake_case
from tests.store_core.broker.pull_broker import PullBroker
from tests.store_core.fakes import FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.golden_stores import UnpackedStore

ANSWERS = Path(__file__).parents[2] / "golden" / "answers" / "pull_requests.jsonl.xz"
NAME = "lab-broker"
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 131072,
    "mapped_file_size_consume_queue": 800,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "max_transfer_bytes_on_message_in_memory": 1 << 30,
    "max_transfer_count_on_message_in_memory": 1 << 20,
    "max_transfer_bytes_on_message_in_disk": 1 << 30,
    "max_transfer_count_on_message_in_disk": 1 << 20,
}
BORN_TIME, STORE_TIME = slice(40, 48), slice(56, 64)


def lines() -> list[dict[str, Any]]:
    with lzma.open(ANSWERS, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def name_of(line: dict[str, Any]) -> str:
    settings = ",".join(f"{key}={value}" for key, value in line["config"].items())
    return f"{line['store']} {settings or 'default'}"


LINES = lines()


def split(config: dict[str, str], release: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split settings into those of the store and those of the broker."""
    store: dict[str, Any] = SIZES | {"release": release}
    broker: dict[str, Any] = {"broker_name": NAME}
    for key, text in config.items():
        value = text if text.isalpha() and text.isupper() else json.loads(text)
        if key == "role":
            store["broker_role"] = value
        elif snake_case(key) in BrokerConfig.__dataclass_fields__:
            broker[snake_case(key)] = value
        else:
            store[snake_case(key)] = value
    return store, broker


def set_up(broker: PullBroker, line: dict[str, Any]) -> None:
    for topic in line["topics"]:
        fields = {snake_case(key): value for key, value in topic.items()}
        broker.topic(fields.pop("topic_name"), **fields)
    for group in line["groups"]:
        fields = {snake_case(key): value for key, value in group.items() if key != "forbidden"}
        broker.group(fields.pop("group_name"), **fields)
        if group["forbidden"] is not None:
            table = {group["groupName"]: {group["forbidden"]: int(Permission.READ)}}
            broker.groups.decode({"forbiddenTable": table, "subscriptionGroupTable": {}}, "file")
    for consumer in line["consumers"]:
        group, topic, text, kind = (consumer[key] for key in ("group", "topic", "subString", "expressionType"))
        version = consumer["subVersion"]
        broker.connect(group, topic, text, kind, version=version, model=consumer["messageModel"])
        if kind != "TAG":
            broker.register(group, topic, text, version)


def shown(response: PullMessageResponse | None, broker: PullBroker) -> dict[str, Any]:
    """Convert an answer to the form of the file."""
    answer: dict[str, Any] = {"heldNow": len(broker.hold)}
    if broker.release == "5.3":
        answer["reject"] = broker.processor.rejects_requests
    if response is None:
        return answer | {"held": True}
    answer["code"] = int(response.code)
    if broker.release == "5.3" and (response.result is not None or response.forbidden_type is not None):
        answer["forbidden"] = response.forbidden_type
    if response.result is None:
        return answer
    if broker.release == "5.3":
        answer |= {"topicSysFlag": response.topic_sys_flag, "groupSysFlag": response.group_sys_flag}
    if response.body:
        answer["body"] = hashlib.sha256(response.body).hexdigest()
    return answer | {
        "remark": response.remark,
        "next": response.next_begin_offset,
        "min": response.min_offset,
        "max": response.max_offset,
        "suggest": response.suggest_which_broker_id,
    }


def without_times(record: bytes | memoryview) -> bytes:
    data = bytearray(record)
    data[BORN_TIME] = data[STORE_TIME] = bytes(8)
    return bytes(data)


@pytest.mark.golden
@pytest.mark.parametrize("line", LINES, ids=name_of)
def test_pulls_are_answered_as_rocketmq_answers_them(
    line: dict[str, Any], golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    root = tmp_path / "store"
    unpacked = golden(line["store"])
    shutil.copytree(unpacked.root, root)
    of_store, of_broker = split(line["config"], unpacked.golden.release)
    config = MessageStoreConfig(**of_store)
    with DefaultMessageStore.open(
        root, config, broker=BrokerConfig(**of_broker), file_system=FaultyFileSystem()
    ) as store:
        broker = PullBroker(store, tmp_path, **({"auto_create_subscription_group": True} | of_broker))
        set_up(broker, line)
        for step in line["steps"]:
            if "reset" in step:
                broker.offsets.assign_reset_offset(*step["reset"])
                continue
            request = PullMessageRequest(**step["request"])
            response = broker.processor.process_request(request, on_response=broker.answers.append)

            assert step["answer"] == shown(response, broker), request
        kept = {
            key: {str(queue): at for queue, at in queues.items()}
            for key, queues in broker.offsets.offset_table().items()
        }
        assert line["offsets"] == kept
        store.dispatch_now()
        events = store.get_message("g", "OFFSET_MOVED_EVENT", 0, 0, 32)
        assert events is not None
        expected = [without_times(base64.b64decode(record)) for record in line.get("events", ())]
        assert expected == [without_times(record) for record in events.message_buffers]
