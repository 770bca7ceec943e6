# SPDX-License-Identifier: Apache-2.0
"""Apache RocketMQ's message store in numpy and Arrow: no broker, no Spark.

The names are imported when they are first looked up, so that a program pays only for those that it uses.

Examples
--------
>>> import store_core
>>> store = store_core.Store("store")  # doctest: +SKIP
>>> store.topics  # doctest: +SKIP
>>> for batch in store.messages(columns=["topic", "body"], topic="orders"):  # doctest: +SKIP
...     print(batch.num_rows)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.lazy_names import lazy_names
from store_core.version import __version__

if TYPE_CHECKING:
    from store_core.answers.rebuild import RebuildResult, plan_rebuild, rebuild_consume_queue, rebuild_index
    from store_core.errors import (
        CorruptRecordError,
        FilterError,
        InvalidOptionError,
        LostWorkerError,
        RepairRefusedError,
        SegmentLayoutError,
        SegmentVanishedError,
        StoreAccessError,
        StoreError,
        StoreLockedError,
        StoreNotFoundError,
        UnsafeSizeError,
        UnsupportedStoreError,
    )
    from store_core.files.storage import Moved
    from store_core.format.filter.message_selector import MessageSelector
    from store_core.format.message import (
        AppendMessageResult,
        AppendMessageStatus,
        Message,
        MessageExt,
        PutMessageStatus,
    )
    from store_core.format.record.decode import InnerMessage, unwrap_inner_batch
    from store_core.queue.consume_queue.queue_search import BoundaryType
    from store_core.snapshot.store import Store, StoreKind, store_at, stores_of
    from store_core.store.get_message import GetMessageResult, GetMessageStatus, QueryMessageResult
    from store_core.store.message_store import DefaultMessageStore
    from store_core.store.message_store_config import BrokerConfig, MessageStoreConfig
    from store_core.store.put.put_preparation import AppendBatchResult, PutMessageResult
    from store_core.store.read.lookup.explanation import ReadExplanation
    from store_core.store.read.message_reader import read_range
    from store_core.store.read.option_values import ReadMode
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_messages import explain, read_messages
    from store_core.store.read.read_options import ReadOptions
    from store_core.store.read.read_plan import ReadPlan, plan_ranges
    from store_core.store.rebuild.plan import RebuildOptions, RebuildPlan
    from store_core.store.rebuild.report import RebuildReport
    from store_core.store.recovery.log_recovery import RecoveryDecision, RecoveryReport
    from store_core.views.sql import sql
    from store_core.views.view import read_view

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
    "Moved",
    "PutMessageResult",
    "PutMessageStatus",
    "QueryMessageResult",
    "ReadExplanation",
    "ReadMode",
    "ReadOptions",
    "ReadPlan",
    "ReadRange",
    "RebuildOptions",
    "RebuildPlan",
    "RebuildReport",
    "RebuildResult",
    "RecoveryDecision",
    "RecoveryReport",
    "RepairRefusedError",
    "SegmentLayoutError",
    "SegmentVanishedError",
    "Store",
    "StoreAccessError",
    "StoreError",
    "StoreKind",
    "StoreLockedError",
    "StoreNotFoundError",
    "UnsafeSizeError",
    "UnsupportedStoreError",
    "__version__",
    "explain",
    "plan_ranges",
    "plan_rebuild",
    "read_messages",
    "read_range",
    "read_view",
    "rebuild_consume_queue",
    "rebuild_index",
    "sql",
    "store_at",
    "stores_of",
    "unwrap_inner_batch",
]

if not TYPE_CHECKING:  # type checkers look at the imports above, and know what is not there
    __getattr__ = lazy_names(__name__)
