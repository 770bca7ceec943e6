# SPDX-License-Identifier: Apache-2.0
"""Apache RocketMQ's message store in numpy and Arrow: no broker, no Spark.

Examples
--------
>>> import store_core
>>> for batch in store_core.read_messages("store", columns=["topic", "body"], topic="orders"):  # doctest: +SKIP
...     print(batch.num_rows)
"""

from typing import Final

from store_core.answers.rebuild import plan_rebuild, rebuild_consume_queue, rebuild_index
from store_core.errors import (
    CorruptRecordError,
    FilterError,
    InvalidOptionError,
    LostWorkerError,
    SegmentLayoutError,
    SegmentVanishedError,
    StoreAccessError,
    StoreError,
    StoreLockedError,
    StoreNotFoundError,
    UnsafeSizeError,
    UnsupportedStoreError,
)
from store_core.format.append_result import AppendMessageResult, AppendMessageStatus, PutMessageStatus
from store_core.format.filter.message_selector import MessageSelector
from store_core.format.message import Message, MessageExt
from store_core.format.record.inner_batch import InnerMessage, unwrap_inner_batch
from store_core.former_names import FORMER_NAMES, find_former_names
from store_core.queue.consume_queue.time_search import BoundaryType
from store_core.store.config.broker_config import BrokerConfig
from store_core.store.config.message_store_config import MessageStoreConfig
from store_core.store.message_store import DefaultMessageStore
from store_core.store.put.bulk_append import AppendBatchResult
from store_core.store.put.put_result import PutMessageResult
from store_core.store.query.get_result import GetMessageResult, GetMessageStatus, QueryMessageResult
from store_core.store.read.message_reader import read_range
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_messages import read_messages
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import ReadPlan, ReadRange, plan_ranges
from store_core.store.rebuild.options import RebuildOptions
from store_core.store.rebuild.plan import RebuildPlan
from store_core.store.rebuild.report import RebuildReport
from store_core.store.rebuild.result import RebuildOutcome, RebuildResult
from store_core.store.recovery.recovery_report import RecoveryDecision, RecoveryReport

__all__ = [
    "AppendBatchResult",
    "AppendMessageResult",
    "AppendMessageStatus",
    "BoundaryType",
    "BrokerConfig",
    "CorruptRecordError",
    "DefaultMessageStore",
    "FilterError",
    "GetMessageResult",
    "GetMessageStatus",
    "InnerMessage",
    "InvalidOptionError",
    "LostWorkerError",
    "Message",
    "MessageExt",
    "MessageSelector",
    "MessageStoreConfig",
    "PutMessageResult",
    "PutMessageStatus",
    "QueryMessageResult",
    "ReadMode",
    "ReadOptions",
    "ReadPlan",
    "ReadRange",
    "RebuildOptions",
    "RebuildOutcome",
    "RebuildPlan",
    "RebuildReport",
    "RebuildResult",
    "RecoveryDecision",
    "RecoveryReport",
    "SegmentLayoutError",
    "SegmentVanishedError",
    "StoreAccessError",
    "StoreError",
    "StoreLockedError",
    "StoreNotFoundError",
    "UnsafeSizeError",
    "UnsupportedStoreError",
    "__version__",
    "plan_ranges",
    "plan_rebuild",
    "read_messages",
    "read_range",
    "rebuild_consume_queue",
    "rebuild_index",
    "unwrap_inner_batch",
]

__version__: Final = "0.1.0"
"""Version of the distribution, whose metadata reads it from here."""

find_former_names(FORMER_NAMES)
