# SPDX-License-Identifier: Apache-2.0
"""How a group consumes a topic, as their names and the broker's configuration tell."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from store_core.broker.topic_kind import TopicKind, kind_of_topic
from store_core.format.record.delayed import RETRY_PREFIX
from store_core.queue.dispatch.lmq_units import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["GroupKind", "is_system_group", "kind_of"]

_REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
_SYSTEM_GROUPS: Final = frozenset(
    (
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
    )
)
"""Groups that every broker configures (RocketMQ: ``SubscriptionGroupManager.init``)."""

_SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"
_POP_SEPARATORS: Final = ("_", "+")
"""Between group and topic in the name of a retry topic of POP consumers (RocketMQ: ``KeyBuilder``)."""


class GroupKind(Enum):
    """How a group consumes a topic; its value is the kind in words."""

    NORMAL = "each message goes to one consumer of the group"
    POP = "the broker hands out messages, and takes an acknowledgement for each (5.x)"
    RETRY = "messages that the group could not process, to be delivered again"
    POP_RETRY = "the same, of consumers that pop"
    DEAD_LETTER = "messages whose deliveries all failed, consumed by a group"
    LIGHT = "a light message queue (%LMQ%)"
    BROADCAST = "each consumer gets every message; the offset is that of the slowest consumer behind a proxy (5.x)"
    REVIVE = "the broker itself, which puts popped messages again that nobody acknowledged"
    SYSTEM = "the broker itself, or its tools"


def is_system_group(group: str) -> bool:
    """Return whether a group is the broker's own."""
    return group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_PREFIX)


def kind_of(topic: str, group: str, pop: Collection[tuple[str, str]] = ()) -> GroupKind:
    """Return how a group consumes a topic.

    Parameters
    ----------
    topic, group : str
    pop : collection of (str, str)
        Topics and groups whose consumers pop, as the broker's configuration says.

    Examples
    --------
    >>> [kind_of(topic, "g").name for topic in ("t", "%RETRY%g", "%RETRY%g+t", "%DLQ%g", "%LMQ%x")]
    ['NORMAL', 'RETRY', 'POP_RETRY', 'DEAD_LETTER', 'LIGHT']
    """
    if topic.startswith(_REVIVE_PREFIX):
        return GroupKind.REVIVE
    if topic.startswith(LMQ_PREFIX) or group.startswith(LMQ_PREFIX):
        return GroupKind.LIGHT
    named = kind_of_topic(topic)
    if named is TopicKind.RETRY:
        rest = topic.removeprefix(RETRY_PREFIX).removeprefix(group)
        return GroupKind.POP_RETRY if rest.startswith(_POP_SEPARATORS) else GroupKind.RETRY
    if named is TopicKind.DEAD_LETTER:
        return GroupKind.DEAD_LETTER
    if is_system_group(group) or named not in (TopicKind.APPLICATION, TopicKind.TRACE):
        return GroupKind.SYSTEM
    return GroupKind.POP if (topic, group) in pop else GroupKind.NORMAL
