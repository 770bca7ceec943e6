# SPDX-License-Identifier: Apache-2.0
"""Converts RocketMQ's records to `tests.golden_stores.Row`, to compare them with ours."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.golden_stores import Row
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
