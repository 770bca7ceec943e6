# SPDX-License-Identifier: Apache-2.0
"""The records that transactions leave in a log, as rows of few columns."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.format.columnar.map_values import with_properties
from store_core.format.sys_flag import TRANSACTION_MASK

__all__ = [
    "CHECK_MAX_TIME_TOPIC",
    "HALF_COLUMNS",
    "HALF_TOPIC",
    "HALF_TOPICS",
    "OP_COLUMNS",
    "OP_TOPIC",
    "OP_TOPICS",
    "SETTLED_COLUMNS",
    "half_rows",
    "operation_rows",
    "settled_rows",
    "with_ms",
]

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Topic where half messages wait (RocketMQ 4.3 and later)."""
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Topic of the records that say which half messages are settled."""
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Topic of half messages that nobody settled, after ``transactionCheckMax`` questions to their producers."""

HALF_TOPICS: Final = (HALF_TOPIC, "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
"""Also that of brokers with ``transRocksDBEnable`` and without ``transWriteOriginTransHalfEnable`` (5.4 and later)."""
OP_TOPICS: Final = (OP_TOPIC, "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
"""The records of the second name a half message by its physical offset, in a property."""

_PLACE: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")
HALF_COLUMNS: Final = (*_PLACE, "properties")
SETTLED_COLUMNS: Final = (*_PLACE, "sys_flag", "prepared_transaction_offset", "unique_key")
OP_COLUMNS: Final = (*_PLACE, "tags", "properties", "body")

_OF_HALF: Final = {
    "real_topic": "REAL_TOPIC",
    "real_queue_id": "REAL_QID",
    "group": "PGROUP",
    "unique_key": "UNIQ_KEY",
    "check_times": "TRANSACTION_CHECK_TIMES",
}
_OF_OPERATION: Final = {"half_physical_offset": "TRANS_OFFSET"}


def half_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return half messages, read with `HALF_COLUMNS`, with the properties that matter as columns of strings."""
    return with_ms(with_properties(batch, _OF_HALF))


def operation_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records of `OP_TOPICS`, read with `OP_COLUMNS`, with the property that matters as a column."""
    return with_ms(with_properties(batch, _OF_OPERATION))


def settled_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records, read with `SETTLED_COLUMNS`, whose system flag has bits of a transaction."""
    kinds: pa.Array = pc.bit_wise_and(batch["sys_flag"], TRANSACTION_MASK)
    return with_ms(batch.filter(pc.not_equal(kinds, 0)))


def with_ms(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with its store times in ms, whatever a damaged record claims."""
    at = batch.schema.get_field_index("store_timestamp")
    return batch.set_column(at, "store_timestamp", pc.divide(batch.column(at).cast(pa.int64()), 1000))
