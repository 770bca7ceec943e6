# SPDX-License-Identifier: Apache-2.0
"""Which messages are sends: what producers sent, as opposed to copies that a broker made of it later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.broker.topic_kind import TopicKind, kind_of_topic
from store_core.format.columnar.property_columns import PropertyColumns
from store_core.format.properties import UNIQ_KEY
from store_core.format.property_string import REAL_TOPIC
from store_core.format.sys_flag import MessageSysFlag

if TYPE_CHECKING:
    from typing import Self

    from store_core.format.properties import PropertyParser

__all__ = ["SEND_COLUMNS", "Sends"]

SEND_COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "store_timestamp",
    "born_timestamp",
    "born_host",
    "reconsume_times",
    "sys_flag",
    "properties_string",
)
"""Columns that batches need."""

_END: Final = pa.scalar(int(MessageSysFlag.TRANSACTION_COMMIT_TYPE), pa.int32())
"""The bit that commits and rollbacks have: records that end a transaction, and are copies of its half message."""

_CHECKED: Final = "TRANSACTION_CHECK_TIMES"
_SHARDING_KEY: Final = "__SHARDINGKEY"
_WAITING: Final = frozenset((TopicKind.SCHEDULE, TopicKind.TIMER, TopicKind.HALF))
"""Topics where a message that a producer sent waits first, with its own topic in REAL_TOPIC."""

_SENT: Final = frozenset((TopicKind.APPLICATION, TopicKind.TRACE, *_WAITING))


@dataclass(frozen=True, slots=True)
class Sends:
    """The sends of a batch.

    A copy has its original's times and keys, so it would look like a late or a second send: a retry or dead letter, a
    delayed message that was delivered, a transactional one that was committed or asked about.

    Attributes
    ----------
    rows : pyarrow.Table
        Columns of `SEND_COLUMNS`.
    unique_keys, sharding_keys : pyarrow.StringArray
        Of each row; null without. The unique keys are those that producers got, as of column ``uniq_msg_id``: the
        messages of a batch have the batch's in common.
    """

    rows: pa.Table
    unique_keys: pa.StringArray
    sharding_keys: pa.StringArray

    @classmethod
    def of(cls, batch: pa.RecordBatch, parser: PropertyParser) -> Self:
        """Select the sends of a batch."""
        properties = PropertyColumns(batch.column("properties_string"), parser)
        topics = batch.column("topic").dictionary_encode()
        kinds = [kind_of_topic(topic) for topic in topics.dictionary.to_pylist()]
        is_copied = pc.or_(properties.value(REAL_TOPIC).is_valid(), properties.value(_CHECKED).is_valid())
        is_waiting = pc.and_(_of_kinds(topics, kinds, _WAITING), properties.value(_CHECKED).is_null())
        is_first = pc.and_(pc.or_(is_waiting, pc.invert(is_copied)), pc.equal(batch.column("reconsume_times"), 0))
        ends = pc.equal(pc.bit_wise_and(batch.column("sys_flag"), _END), _END)  # 5.5: without REAL_TOPIC
        mask = pc.and_(pc.and_(is_first, pc.invert(ends)), _of_kinds(topics, kinds, _SENT))
        keys = (properties.first(UNIQ_KEY), properties.value(_SHARDING_KEY))
        rows = pa.table([batch.column(name) for name in SEND_COLUMNS], list(SEND_COLUMNS))
        if not pc.all(mask).as_py():
            return cls(rows.filter(mask), *(each.filter(mask) for each in keys))
        return cls(rows, *keys)


def _of_kinds(topics: pa.DictionaryArray, kinds: list[TopicKind], wanted: frozenset[TopicKind]) -> pa.BooleanArray:
    is_wanted = np.array([kind in wanted for kind in kinds], np.bool_)
    return pa.array(is_wanted[topics.indices.to_numpy()])
