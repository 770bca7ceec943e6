# SPDX-License-Identifier: Apache-2.0
"""The part of a broker that serves consumers from a store: pulls, filters, offsets and other consumer state.

Examples
--------
>>> from store_core import DefaultMessageStore
>>> from store_core.broker import follow, transaction_state
>>> with DefaultMessageStore.open("store", read_only=True) as store:  # doctest: +SKIP
...     print(sum(1 for message in follow(store, "billing", "orders", 0)))
...     print(transaction_state(store).counts())

The names are imported when they are first looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from store_core.broker.consumer_filter import SubscriptionData
    from store_core.broker.consumer_filter_manager import ConsumerFilterManager
    from store_core.broker.consumer_offset import ConsumerOffsetManager, DelayOffsetTable, FlushConsumerOffsetService
    from store_core.broker.pull_checks import (
        PullChecks,
        PullMessageRequest,
        PullMessageResponse,
        PullSysFlag,
        ResponseCode,
    )
    from store_core.broker.pull_message_processor import PullMessageProcessor, PullRequestHoldService, Waiting, follow
    from store_core.broker.schedule_message_service import ScheduleMessageService
    from store_core.broker.subscription_group import (
        ConsumerGroupInfo,
        MessageModel,
        RegisteredSubscription,
        SubscriptionGroupManager,
        TopicConfigManager,
    )
    from store_core.broker.transactions import Transaction, TransactionState, TransactionStatus, transaction_state
    from store_core.snapshot.config import Permission, SubscriptionGroupConfig, TopicConfig

__all__ = [
    "ConsumerFilterManager",
    "ConsumerGroupInfo",
    "ConsumerOffsetManager",
    "DelayOffsetTable",
    "FlushConsumerOffsetService",
    "MessageModel",
    "Permission",
    "PullChecks",
    "PullMessageProcessor",
    "PullMessageRequest",
    "PullMessageResponse",
    "PullRequestHoldService",
    "PullSysFlag",
    "RegisteredSubscription",
    "ResponseCode",
    "ScheduleMessageService",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "SubscriptionGroupManager",
    "TopicConfig",
    "TopicConfigManager",
    "Transaction",
    "TransactionState",
    "TransactionStatus",
    "Waiting",
    "follow",
    "transaction_state",
]

if not TYPE_CHECKING:  # type checkers look at the imports above, and know what is not there
    __getattr__ = lazy_names(__name__)
