# SPDX-License-Identifier: Apache-2.0
"""Converts our messages to `tests.golden_stores.Row`, to compare them with RocketMQ's read-back."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.format.message import MessageExt
    from tests.golden_stores import Row

__all__ = ["message_rows", "table_rows"]

_OF_RECORDS = (
    "body_text",
    "_corrupt_record",
    "properties_string",
    "uniq_msg_id",
    "dledger_index",
    "dledger_term",
    "dledger_committed",
)
"""What a decoded message does not have: bytes, and what an entry of a DLedger log says."""

_PLAIN_COLUMNS = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "store_timestamp",
    "born_timestamp",
    "store_host",
    "born_host",
    "tags",
    "keys",
    "properties",
    "body_crc",
    "flag",
    "sys_flag",
    "reconsume_times",
    "prepared_transaction_offset",
    "magic_code",
    "msg_id",
    "unique_key",
    "tags_code",
)


def message_rows(messages: Iterable[MessageExt], segment: str) -> list[Row]:
    """Turn messages of one segment into rows."""
    return [_message_row(message, segment) for message in messages]


def _message_row(message: MessageExt, segment: str) -> Row:
    row = {name: getattr(message, name) for name in _PLAIN_COLUMNS}
    row |= _body(message.body)
    row |= {f"{name}_ms": row[name] for name in ("store_timestamp", "born_timestamp")}
    row["segment"] = segment
    row["transaction_type"] = message.transaction_type.name
    row["compression"] = message.compression.name
    return row


def table_rows(table: pa.Table | pa.RecordBatch) -> list[Row]:
    """Turn a table or batch into rows, without the columns that a decoded message does not have."""
    columns = {name: _values(table.column(name)) for name in table.schema.names if name not in _OF_RECORDS}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for row in rows:
        row.update(_body(row.pop("body")))
    return rows


def _values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    if pa.types.is_timestamp(column.type):
        in_ms = column.cast(pa.timestamp("ms", "UTC"))  # refuses to lose a fraction of a millisecond
        values: list[object] = in_ms.cast(pa.int64()).to_pylist()
        return values
    if pa.types.is_map(column.type):
        return [_properties(pairs) for pairs in column.to_pylist()]
    listed: list[object] = column.to_pylist()
    return listed


def _properties(pairs: list[tuple[str, str]]) -> dict[str, str]:
    properties = dict(pairs)
    if len(properties) != len(pairs):
        message = f"a name comes twice in {pairs}"
        raise AssertionError(message)
    return properties


def _body(body: bytes) -> Row:
    return {"body_length": len(body), "body_sha256": hashlib.sha256(body).hexdigest()}
