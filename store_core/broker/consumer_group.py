# SPDX-License-Identifier: Apache-2.0
"""The connected consumers of a broker, as far as a pull depends on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.broker.expression_message_filter import SubscriptionData

__all__ = ["ConsumerGroupInfo", "MessageModel", "RegisteredSubscription"]


class MessageModel(Enum):
    """How the consumers of a group share a topic (RocketMQ: ``MessageModel``)."""

    BROADCASTING = "each consumer gets every message"
    CLUSTERING = "each message goes to one consumer"


@dataclass(frozen=True, slots=True)
class RegisteredSubscription:
    """A group's subscription to a topic, as reported by its consumers' heartbeats.

    Attributes
    ----------
    data : SubscriptionData
    sub_version : int
        Version; usually its creation time.
    """

    data: SubscriptionData
    sub_version: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupInfo:
    """A group with connected consumers (RocketMQ: ``ConsumerGroupInfo``).

    Attributes
    ----------
    group_name : str
    message_model : MessageModel
    subscriptions : mapping of str to RegisteredSubscription
        By topic.
    """

    group_name: str
    message_model: MessageModel = MessageModel.CLUSTERING
    subscriptions: Mapping[str, RegisteredSubscription] = field(default_factory=dict)
