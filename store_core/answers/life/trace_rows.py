# SPDX-License-Identifier: Apache-2.0
"""The records that one message leaves in a log, as rows of few columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.life.provenance import ORIGIN_MESSAGE_ID, REPLAY_ID, REPLAY_ORIGIN_MESSAGE_ID
from store_core.broker.transaction_rows import operation_rows, with_ms
from store_core.format.columnar.map_values import with_properties
from store_core.format.property_string import RETRY_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TRACE_COLUMNS", "copies_of", "operations_on", "trace_rows"]

TRACE_COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_timestamp",
    "reconsume_times",
    "sys_flag",
    "prepared_transaction_offset",
    "msg_id",
    "unique_key",
    "uniq_msg_id",
    "properties",
)

_NAMES: Final = {
    "keys": "KEYS",
    "real_topic": "REAL_TOPIC",
    "retry_topic": RETRY_TOPIC,
    "origin_id": ORIGIN_MESSAGE_ID,
    "delay_level": "DELAY",
    "timer_due": "TIMER_OUT_MS",
    "roll_times": "TIMER_ROLL_TIMES",
    "group": "PGROUP",
    "check_times": "TRANSACTION_CHECK_TIMES",
    "replay_id": REPLAY_ID,
    "replay_origin_id": REPLAY_ORIGIN_MESSAGE_ID,
}


def trace_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records, read with `TRACE_COLUMNS`, with the properties that matter as columns of strings."""
    return with_ms(with_properties(batch, _NAMES))


def copies_of(batch: pa.RecordBatch, *, message_id: str) -> pa.RecordBatch:
    """Return the records that name a message by its offset id, as those without a unique key do; and its own record."""
    rows = trace_rows(batch)
    columns = (rows[name] for name in ("msg_id", "origin_id", "replay_origin_id"))
    named, *others = (pc.fill_null(pc.equal(column, message_id), False) for column in columns)  # noqa: FBT003 -- a value
    for other in others:
        named = pc.or_(named, other)
    return rows.filter(named)


def operations_on(batch: pa.RecordBatch, *, indexes: Sequence[int], offsets: Sequence[int]) -> pa.RecordBatch:
    """Return the operations, read with `OP_COLUMNS`, on half messages with some queue offsets or physical offsets."""
    rows = operation_rows(batch)
    pattern = f"(^|,)({'|'.join(map(str, indexes)) or '-'})(,|$)"
    texts = pa.array(
        [body if body is None else body.decode("latin-1") for body in rows["body"].to_pylist()], pa.string()
    )
    is_index = pc.fill_null(pc.match_substring_regex(texts, pattern), False)  # noqa: FBT003 -- a value
    is_offset = pc.is_in(rows["half_physical_offset"], pa.array(list(map(str, offsets)), pa.string()))
    is_named = pc.is_valid(rows["half_physical_offset"])
    return rows.filter(pc.if_else(is_named, is_offset, is_index))
