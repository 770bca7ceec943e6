# SPDX-License-Identifier: Apache-2.0
"""Names of the files in which a broker keeps its configuration (RocketMQ: ``BrokerPathConfigHelper``)."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CONFIG_DIRECTORY",
    "CONSUMER_FILTER_FILE",
    "CONSUMER_OFFSET_FILE",
    "DELAY_OFFSET_FILE",
    "LMQ_CONSUMER_OFFSET_FILE",
    "REQUEST_MODE_FILE",
    "SUBSCRIPTION_GROUP_FILE",
    "TIMER_CHECK_FILE",
    "TOPICS_FILE",
]

CONFIG_DIRECTORY: Final = "config"
"""Below the store's root."""

TOPICS_FILE: Final = "topics.json"
CONSUMER_OFFSET_FILE: Final = "consumerOffset.json"
LMQ_CONSUMER_OFFSET_FILE: Final = "lmqConsumerOffset.json"
"""Kept in place of consumerOffset.json by a broker of 4.9.3 and later with ``enableLmq``, with offsets of light message
queues."""
SUBSCRIPTION_GROUP_FILE: Final = "subscriptionGroup.json"
DELAY_OFFSET_FILE: Final = "delayOffset.json"
TIMER_CHECK_FILE: Final = "timercheck"
CONSUMER_FILTER_FILE: Final = "consumerFilter.json"
REQUEST_MODE_FILE: Final = "messageRequestMode.json"
"""Which groups pop (5.x)."""
