# SPDX-License-Identifier: Apache-2.0
"""Light message queues: additional queues that index a record, as named by its properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.format.java import LONG_BITS, parse_java_int
from store_core.format.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from store_core.format.record.delayed import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from store_core.format.releases.release_rules import ReleaseRules
    from store_core.queue.dispatch.dispatch_batch import DispatchRequest
    from store_core.queue.queue_path import QueueRules

__all__ = [
    "LMQ_PREFIX",
    "LmqUnit",
    "UnfitListsError",
    "UnreadableIndexError",
    "has_lists",
    "is_light",
    "lmq_units",
    "split_names",
]

LMQ_PREFIX: Final = "%LMQ%"
"""Prefix of the names of light queues (RocketMQ: ``MixAll.LMQ_PREFIX``); their queue id is 0."""

_SEPARATOR: Final = ","
_NOT_LIGHT: Final = ("%RETRY%", "rmq_sys_")


class UnfitListsError(ValueError):
    """The two lists of a record don't match, or hold something that is not a number; `lmq_units` explains."""


class UnreadableIndexError(UnfitListsError):
    """An index of a record in its light queues is no number (Java: ``NumberFormatException``)."""


class LmqUnit(NamedTuple):
    """An additional queue of a record, and the record's index in it."""

    topic: str
    queue_id: int
    queue_offset: int


def is_light(name: str) -> bool:
    """Return whether a queue of this name is a light queue (``MixAll.isLmq``)."""
    return name.startswith(LMQ_PREFIX)


def has_lists(topic: str, features: ReleaseRules) -> bool:
    """Return whether a release reads the lists of a topic's records.

    4.9 does for every topic, 5.3 for all but retry and system topics; 4.3 does not know them.
    """
    is_system_topic = topic.startswith(_NOT_LIGHT) or topic == SCHEDULE_TOPIC
    return features.has_light_queues and not (is_system_topic and features.keeps_light_queues_from_system_topics)


def split_names(text: str) -> list[str]:
    """Split a list as Java does: empty names at the end are dropped.

    >>> split_names("%LMQ%a,,%LMQ%b,,")
    ['%LMQ%a', '', '%LMQ%b']
    """
    names = text.split(_SEPARATOR)
    while len(names) > 1 and not names[-1]:
        names.pop()
    return [] if names == [""] and text else names


def lmq_units(request: DispatchRequest, rules: QueueRules) -> list[LmqUnit]:
    """Return the additional queues of a record (RocketMQ: ``ConsumeQueue.multiDispatchLmqQueue``).

    Property INNER_MULTI_DISPATCH names them, and INNER_MULTI_QUEUE_OFFSET holds the record's indexes in them. A light
    queue has id 0 if light queues are enabled; any other queue has the record's id. For which topics a release does
    this, see `has_lists`; 5.3 skips names with a '/'.
    """
    if not (rules.is_multi_dispatch_enabled and has_lists(request.topic, rules.features)):
        return []
    names_text = request.properties.get(INNER_MULTI_DISPATCH) or ""
    offsets_text = request.properties.get(INNER_MULTI_QUEUE_OFFSET) or ""
    if not names_text.strip() or not offsets_text.strip():
        return []
    names, offsets = split_names(names_text), split_names(offsets_text)
    if len(names) != len(offsets):
        raise UnfitListsError(f"{INNER_MULTI_DISPATCH} names {len(names)} queues, with {len(offsets)} indexes")
    try:
        numbers = [parse_java_int(offset, LONG_BITS) for offset in offsets]
    except ValueError as error:
        raise UnreadableIndexError(f"{INNER_MULTI_QUEUE_OFFSET}: {error}") from None
    return [
        LmqUnit(name, 0 if rules.is_lmq_enabled and is_light(name) else request.queue_id, number)
        for name, number in zip(names, numbers, strict=True)
        if "/" not in name or not rules.features.passes_over_light_names_with_slash
    ]
