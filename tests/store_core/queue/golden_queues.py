# SPDX-License-Identifier: Apache-2.0
"""The queues of a golden store: its rules, what RocketMQ dispatched, and RocketMQ's report of their contents."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, cast

from store_core.files.file_system import OsFileSystem
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue, QueueServices
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt, is_ext_address
from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from store_core.queue.queue_path import QueueRules
from tests.store_core.fakes import FakeClock
from tests.store_core.queue.consume_queues import units_in

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.format.release import Release
    from store_core.queue.consume_queue.consume_queue_store import Queue
    from tests.golden_stores import UnpackedStore


FOLDERS: Final = ("consumequeue", "consumequeue_ext", "batchconsumequeue")


def golden_rules(store: UnpackedStore) -> QueueRules:
    """Return the rules with which the store was made."""
    conf = store.conf
    return QueueRules(
        release=cast("Release", store.golden.release),
        consume_queue_file_size=int(conf["cq-size"]),
        batch_consume_queue_file_size=int(conf.get("bcq-size", 460)),
        batch_topics=frozenset(filter(None, conf.get("bcq-topics", "").split(","))),
        ext_file_size=int(conf.get("ext-size", 4096)),
        is_ext_enabled="ext" in conf,
        is_multi_dispatch_enabled=conf.get("set.enableMultiDispatch") == "true",
        is_lmq_enabled=conf.get("set.enableLmq") == "true",
    )


def queue_store(root: Path, rules: QueueRules) -> ConsumeQueueStore:
    """Make the table of the queues below a directory, which has not read anything yet."""
    return ConsumeQueueStore(root, QueueServices(rules, OsFileSystem(), FakeClock()), lambda *_: None)


def golden_answers(store: UnpackedStore) -> list[dict[str, Any]]:
    """Return RocketMQ's report of each queue, by topic and id."""
    return sorted(store.lines("queue"), key=lambda line: (line["topic"], line["queueId"]))


def golden_requests(store: UnpackedStore) -> list[DispatchRequest]:
    """Return RocketMQ's dispatch request for every record, in log order, with the bit maps of its queues."""
    bit_maps = {
        unit["pos"]: base64.b64decode(unit["ext"]["filterBitMap"])
        for queue in golden_answers(store)
        for unit in queue["units"]
        if unit.get("ext", {}).get("filterBitMap")
    }
    return [_request(line, bit_maps) for line in store.lines("record")]


def _request(line: dict[str, Any], bit_maps: dict[int, bytes]) -> DispatchRequest:
    dispatch = line["dispatch"]
    return DispatchRequest(
        topic=line["topic"],
        queue_id=line["queueId"],
        physical_offset=line["physicalOffset"],
        message_size=line["storeSize"],
        tags_code=dispatch["tagsCode"],
        store_timestamp=line["storeTimestamp"],
        consume_queue_offset=dispatch["consumeQueueOffset"],
        sys_flag=dispatch["sysFlag"],
        properties=line["properties"],
        message_base_offset=dispatch.get("msgBaseOffset", dispatch["consumeQueueOffset"]),
        batch_size=dispatch.get("batchSize", 1),
        bit_map=bit_maps.get(line["physicalOffset"], b""),
    )


def file_bytes(root: Path) -> dict[str, bytes]:
    """Return the files of all queues below a store's root."""
    paths = (path for folder in FOLDERS for path in sorted(root.joinpath(folder).rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def answers_of(queues: ConsumeQueueStore) -> list[dict[str, Any]]:
    """Return our report of each queue in the form of RocketMQ's."""
    return [
        {
            "type": "queue",
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "minOffset": queue.min_offset_in_queue,
            "maxOffset": queue.max_offset_in_queue,
            "maxPhysicOffset": queue.max_physical_offset,
            "units": _units(queue),
        }
        for queue in queues.queues()
    ]


def _units(queue: Queue) -> list[dict[str, Any]]:
    if isinstance(queue, BatchConsumeQueue):
        return [
            {
                "offset": unit.queue_offset,
                "pos": unit.physical_offset,
                "size": unit.store_size,
                "tagsCode": unit.tags_code,
                "batchNum": unit.batch_size,
                "compactedOffset": unit.compacted_offset,
            }
            for unit in units_in(queue, queue.min_offset_in_queue)
        ]
    return [
        {"offset": unit.queue_offset, "pos": unit.physical_offset, "size": unit.store_size, "tagsCode": unit.tags_code}
        | _ext(queue, unit.tags_code)
        for unit in units_in(queue, queue.min_offset_in_queue)
    ]


def _ext(queue: ConsumeQueue, tags_code: int) -> dict[str, Any]:
    if not is_ext_address(tags_code) or not isinstance(queue.ext, ConsumeQueueExt):
        return {}
    unit = queue.ext.get(tags_code)
    if unit is None:
        return {"ext": None}
    bit_map = base64.b64encode(unit.bit_map).decode() if unit.bit_map else None
    return {
        "ext": {
            "size": unit.size,
            "tagsCode": unit.tags_code,
            "msgStoreTime": unit.msg_store_time,
            "filterBitMap": bit_map,
        }
    }
