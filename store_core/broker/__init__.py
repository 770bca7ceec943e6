# SPDX-License-Identifier: Apache-2.0
"""The part of a broker that serves consumers from a store: pulls, filters, offsets and other consumer state.

Examples
--------
>>> from store_core import DefaultMessageStore
>>> from store_core.broker import follow, transaction_state
>>> with DefaultMessageStore.open("store", read_only=True) as store:  # doctest: +SKIP
...     print(sum(1 for message in follow(store, "billing", "orders", 0)))
...     print(transaction_state(store).counts())
"""

from store_core.broker.consumer_filter_manager import ConsumerFilterManager
from store_core.broker.consumer_group import ConsumerGroupInfo, MessageModel, RegisteredSubscription
from store_core.broker.consumer_loop import Waiting, follow
from store_core.broker.consumer_offset import ConsumerOffsetManager
from store_core.broker.delay_offset import DelayOffsetTable
from store_core.broker.expression_message_filter import SubscriptionData
from store_core.broker.flush_consumer_offset import FlushConsumerOffsetService
from store_core.broker.pull_checks import PullChecks
from store_core.broker.pull_message_processor import PullMessageProcessor
from store_core.broker.pull_request import PullMessageRequest, PullMessageResponse, PullSysFlag
from store_core.broker.pull_request_hold_service import PullRequestHoldService
from store_core.broker.response_code import ResponseCode
from store_core.broker.schedule_message_service import ScheduleMessageService
from store_core.broker.subscription_group import SubscriptionGroupConfig, SubscriptionGroupManager
from store_core.broker.topic_config import Permission, TopicConfig, TopicConfigManager
from store_core.broker.transaction_state import (
    Transaction,
    TransactionState,
    TransactionStatus,
    transaction_state,
)

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
