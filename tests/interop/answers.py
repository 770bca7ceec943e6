# SPDX-License-Identifier: Apache-2.0
"""Records and queues of a store, as RocketMQ answers them and as we read them, in one form to compare."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from store_core import read_messages
from store_core.format.columns import COLUMNS, CORRUPT_RECORD, STORE
from store_core.format.properties import PropertyParser
from store_core.format.record.decode import decode_message
from store_core.format.record.scan import follow_frames
from tests.golden_stores import Row, message_rows, table_rows

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.interop.rocketmq import Answer


_TRANSACTION_TYPES: Final = {0: "NOT_TYPE", 4: "PREPARED_TYPE", 8: "COMMIT_TYPE", 12: "ROLLBACK_TYPE"}
_COMPRESSION_TYPES: Final = {0: "ZLIB", 1: "LZ4", 2: "ZSTD", 3: "ZLIB"}


def answer_rows(answer: Answer, segment_size: int) -> list[Row]:
    """Turn the records of an answer into rows."""
    return [_row(record, segment_size) for record in answer["records"]]


def _row(record: dict[str, Any], segment_size: int) -> Row:
    properties: dict[str, str] = record["properties"] or {}
    keys = properties.get("KEYS")
    sys_flag = record["sysFlag"]
    return {
        "topic": record["topic"],
        "queue_id": record["queueId"],
        "queue_offset": record["queueOffset"],
        "physical_offset": record["physicalOffset"],
        "store_size": record["storeSize"],
        "store_timestamp": record["storeTimestamp"],
        "born_timestamp": record["bornTimestamp"],
        "store_timestamp_ms": record["storeTimestamp"],
        "born_timestamp_ms": record["bornTimestamp"],
        "store_host": _host(*record["storeHost"]),
        "born_host": _host(*record["bornHost"]),
        "tags": properties.get("TAGS"),
        "keys": None if keys is None else [key for key in keys.split(" ") if key],
        "properties": properties,
        "body_length": record["bodyLength"],
        "body_sha256": record["bodySha256"],
        "body_crc": record["bodyCrc"],
        "flag": record["flag"],
        "sys_flag": sys_flag,
        "reconsume_times": record["reconsumeTimes"],
        "prepared_transaction_offset": record["preparedTransactionOffset"],
        "magic_code": record["magicCode"],
        "msg_id": record["msgId"],
        "unique_key": record["uniqueKey"],
        "tags_code": record["tagsHash"],
        "segment": f"{record['physicalOffset'] // segment_size * segment_size:020d}",
        "transaction_type": _TRANSACTION_TYPES[sys_flag & 0x0C],
        "compression": _COMPRESSION_TYPES[sys_flag >> 8 & 7] if sys_flag & 1 else "NONE",
    }


def _host(address: str, port: int) -> str:
    """Convert Java's address to the form of RFC 5952."""
    parsed = ipaddress.ip_address(address)
    return f"{parsed}:{port}" if parsed.version == 4 else f"[{parsed}]:{port}"


_QUEUED: Final = ("NOT_TYPE", "COMMIT_TYPE")
_INNER_BATCH: Final = 0x80
_NO_LIGHT_QUEUES: Final = ("%RETRY%", "rmq_sys_", "SCHEDULE_TOPIC_XXXX")


@dataclass(slots=True)
class Queue:
    """What a consumer finds: the queue's end, and the physical offsets of its records in order."""

    max_offset: int = 0
    offsets: list[int] = field(default_factory=list)

    def add(self, physical_offset: int, end: int) -> None:
        self.offsets.append(physical_offset)
        self.max_offset = end


Queues = dict[tuple[str, int], Queue]


def queues_of(rows: Iterable[Row], release: str, *, light: bool = False) -> Queues:
    """Build the queues of a log: without prepared and rolled-back messages; inner batches take several indexes.

    The rows are in log order. With `light` the store has light queues, which release 4.9 makes for system topics, too.
    """
    queues: Queues = {}
    for row in rows:
        if row["transaction_type"] not in _QUEUED:
            continue
        properties = row["properties"]
        places = int(properties["INNER_NUM"]) if row["sys_flag"] & _INNER_BATCH else 1
        own = queues.setdefault((row["topic"], row["queue_id"]), Queue())
        own.add(row["physical_offset"], row["queue_offset"] + places)
        if light and (release == "4.9" or not row["topic"].startswith(_NO_LIGHT_QUEUES)):
            for name, offset in _light_places(properties):
                queues.setdefault((name, 0), Queue()).add(row["physical_offset"], offset + 1)
    return queues


def _light_places(properties: dict[str, str]) -> list[tuple[str, int]]:
    names = properties.get("INNER_MULTI_DISPATCH", "")
    offsets = properties.get("INNER_MULTI_QUEUE_OFFSET", "")
    return [(name, int(offset)) for name, offset in zip(names.split(","), offsets.split(","), strict=True) if name]


def answer_queues(answer: Answer) -> Queues:
    """Return RocketMQ's queues, without the empty ones that 4.9 makes for delays."""
    found: list[dict[str, Any]] = [queue for queue in answer["queues"] if queue["max"] > 0]
    return {(queue["topic"], queue["queueId"]): Queue(queue["max"], queue["messages"]) for queue in found}


_ALL_COLUMNS: Final = [column.name for column in COLUMNS if column.name not in {CORRUPT_RECORD, STORE}]


def read_rows(store: Path | list[Path], release: str) -> list[Row]:
    """Read through Arrow, with all columns."""
    return table_rows(read_messages(store, columns=_ALL_COLUMNS, release=release).read_all())


def read_rows_one_by_one(store: Path, release: str) -> list[Row]:
    """Read with the scalar decoder."""
    rows, parser = [], PropertyParser.of_release(release)
    for segment in sorted(store.joinpath("commitlog").iterdir()):
        data, start_offset = memoryview(segment.read_bytes()), int(segment.name)
        starts = follow_frames(data, start_offset=start_offset, verify_crc=True).starts.tolist()
        messages = (decode_message(data, start, start_offset, parser=parser) for start in starts)
        rows += message_rows(messages, segment.name)
    return rows
