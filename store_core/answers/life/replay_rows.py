# SPDX-License-Identifier: Apache-2.0
"""Messages as they are sent again: without what a broker added on their way, and with where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.life.message_reads import (
    REPLAY_ID,
    REPLAY_ORIGIN_MESSAGE_ID,
    REPLAY_ORIGIN_TOPIC,
)
from store_core.format.columnar.property_columns import without_names
from store_core.format.properties import PROPERTY_CRC, REAL_TOPIC, RETRY_TOPIC
from store_core.format.record.delayed import OF_WAITING, SCHEDULE_TOPIC, TIMER_TOPIC
from store_core.format.sys_flag import TRANSACTION_MASK, MessageSysFlag

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "OF_DELIVERY",
    "OF_RECORD",
    "REPLAYED_COLUMNS",
    "WAITING_TOPICS",
    "copied_batch",
    "replayed_batch",
    "undelivered",
]

OF_DELIVERY: Final = (*OF_WAITING, RETRY_TOPIC)
"""Properties by which a broker delivers a message elsewhere; a message that is sent again has none of them."""

WAITING_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Topics in which a broker keeps messages of others, which they name as ``REAL_TOPIC``, until their time."""

REPLAYED_COLUMNS: Final = (
    *("topic", "body", "flag", "sys_flag", "born_timestamp_ms", "born_host"),
    *("msg_id", "properties"),
)
OF_RECORD: Final = (
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
        ("born_timestamp", pa.int64()),
        ("born_host", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


def undelivered(batch: pa.RecordBatch, left_out: tuple[str, ...] = OF_DELIVERY) -> pa.RecordBatch:
    """Return messages as new ones: without what the delivery of the old ones, or their records, put into them.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        With `properties` and `sys_flag`; other columns stay as they are.
    left_out : tuple of str
        Names of properties.
    """
    names = batch.schema.names
    columns = dict(zip(names, batch.columns, strict=True))
    columns["properties"] = without_names(columns["properties"], (*left_out, PROPERTY_CRC))
    columns["sys_flag"] = pc.bit_wise_and(columns["sys_flag"], pa.scalar(~OF_RECORD, pa.int32()))
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names)


def copied_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages as new ones of the same topics and queues; those that wait go to their own topics, in turn.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        With `topic`, `queue_id`, `properties` and `sys_flag`; other columns stay as they are.
    """
    real = pc.map_lookup(batch["properties"], pa.scalar(REAL_TOPIC), "last")
    is_waiting = pc.and_(pc.is_in(batch["topic"], pa.array(WAITING_TOPICS)), pc.is_valid(real))
    changed = {
        "topic": pc.if_else(is_waiting, real, batch["topic"]),
        "queue_id": pc.if_else(is_waiting, pa.scalar(None, pa.int32()), batch["queue_id"]),
    }
    columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | changed
    return undelivered(pa.RecordBatch.from_pydict(columns), OF_WAITING)


def replayed_batch(
    batch: pa.RecordBatch, replay_id: str, to_topic: str | None, queue_of: Callable[[str], int]
) -> pa.RecordBatch:
    """Return messages, read with `REPLAYED_COLUMNS`, as new ones: never failed, and not part of a transaction.

    Parameters
    ----------
    to_topic : str or None
        If None, they go to the topic that they were sent to at first.
    queue_of : callable
        Returns the queue of the next message to a topic.
    """
    targets = [to_topic] * len(batch) if to_topic is not None else _first_topics(batch)
    batch = batch.rename_columns({"born_timestamp_ms": "born_timestamp"})
    rows = undelivered(batch).to_pylist()
    replayed = [_replayed(row, replay_id, topic, queue_of(topic)) for row, topic in zip(rows, targets, strict=True)]
    return pa.RecordBatch.from_pylist(replayed, _SCHEMA)


def _first_topics(batch: pa.RecordBatch) -> list[str]:
    """Return the topics that messages were sent to at first, as far as the records tell."""
    firsts, reals = (
        pc.map_lookup(batch["properties"], pa.scalar(name), "last").to_pylist() for name in (RETRY_TOPIC, REAL_TOPIC)
    )
    topics = batch["topic"].to_pylist()
    return [
        first or (real if topic in WAITING_TOPICS and real else topic)
        for first, real, topic in zip(firsts, reals, topics, strict=True)
    ]


def _replayed(row: dict[str, Any], replay_id: str, topic: str, queue_id: int) -> dict[str, Any]:
    origin = {REPLAY_ID: replay_id, REPLAY_ORIGIN_MESSAGE_ID: row["msg_id"], REPLAY_ORIGIN_TOPIC: row["topic"]}
    properties = dict(row["properties"] or ()) | origin
    return row | {"topic": topic, "queue_id": queue_id, "properties": list(properties.items())}
