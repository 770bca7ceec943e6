# SPDX-License-Identifier: Apache-2.0
"""Messages as they are sent again: without what a broker added on their way, and with where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from store_core.answers.life.provenance import (
    REPLAY_ID,
    REPLAY_ORIGIN_MESSAGE_ID,
    REPLAY_ORIGIN_TOPIC,
)
from store_core.format.properties import PROPERTY_CRC
from store_core.format.property_string import DELAY, REAL_QID, REAL_TOPIC, RETRY_TOPIC, TIMER_OUT_MS
from store_core.format.record.delayed import TIMERS
from store_core.format.sys_flag import TRANSACTION_MASK, MessageSysFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OF_DELIVERY", "REPLAYED_COLUMNS", "replayed_batch"]

OF_DELIVERY: Final = (DELAY, RETRY_TOPIC, REAL_TOPIC, REAL_QID, "TRAN_MSG", "PGROUP", TIMER_OUT_MS, *TIMERS)
"""Properties by which a broker delivers a message elsewhere; a message that is sent again has none of them."""

REPLAYED_COLUMNS: Final = ("topic", "body", "flag", "sys_flag", "born_timestamp", "born_host", "msg_id", "properties")
_OF_RECORD: Final = (
    TRANSACTION_MASK | int(MessageSysFlag.BORNHOST_V6_FLAG) | int(MessageSysFlag.STOREHOSTADDRESS_V6_FLAG)
)
"""Bits of ``sys_flag`` that say what a record was and how wide its hosts are, which the new record says for itself."""

_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("body", pa.binary()),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("born_timestamp", pa.timestamp("us", tz="UTC")),
        ("born_host", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


def replayed_batch(
    batch: pa.RecordBatch, replay_id: str, to_topic: str | None, queues: Iterator[int]
) -> pa.RecordBatch:
    """Return messages, read with `REPLAYED_COLUMNS`, as new ones: never failed, and not part of a transaction.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
    replay_id : str
    to_topic : str or None
        If None, they go to the topic that they were sent to at first.
    queues : iterator of int
        Queues, one for each message.
    """
    at = batch.schema.get_field_index("born_timestamp")
    micros = batch["born_timestamp"].cast(pa.int64())  # a record's time may be none that Python's datetime has
    batch = batch.set_column(at, "born_timestamp", micros)
    return pa.RecordBatch.from_pylist(
        [_replayed(row, replay_id, to_topic, queues) for row in batch.to_pylist()], _SCHEMA
    )


def _replayed(row: dict[str, Any], replay_id: str, to_topic: str | None, queues: Iterator[int]) -> dict[str, Any]:
    properties = dict(row["properties"] or ())
    kept = {name: value for name, value in properties.items() if name not in OF_DELIVERY and name != PROPERTY_CRC}
    kept |= {REPLAY_ID: replay_id, REPLAY_ORIGIN_MESSAGE_ID: row["msg_id"], REPLAY_ORIGIN_TOPIC: row["topic"]}
    return {
        "topic": to_topic or properties.get(RETRY_TOPIC) or row["topic"],
        "queue_id": next(queues),
        "body": row["body"],
        "flag": row["flag"],
        "sys_flag": row["sys_flag"] & ~_OF_RECORD,
        "born_timestamp": row["born_timestamp"],
        "born_host": row["born_host"],
        "properties": list(kept.items()),
    }
