# SPDX-License-Identifier: Apache-2.0
"""Further queues that one record is indexed in, as its properties say (light message queues)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.format.java_number import LONG_BITS, parse_java_int
from store_core.format.property_string import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from store_core.format.record.delayed import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from store_core.format.releases.release_rules import ReleaseRules
    from store_core.queue.dispatch.dispatch_request import DispatchRequest
    from store_core.queue.queue_rules import QueueRules

__all__ = ["LMQ_PREFIX", "LmqUnit", "UnfitListsError", "has_lists", "is_light", "lmq_units", "split_names"]

LMQ_PREFIX: Final = "%LMQ%"
"""Names of light queues begin with it (RocketMQ: ``MixAll.LMQ_PREFIX``); their queue id is 0."""

_SEPARATOR: Final = ","
_NOT_LIGHT: Final = ("%RETRY%", "rmq_sys_")


class UnfitListsError(ValueError):
    """The two lists of a record don't belong together, or hold what is no number; `lmq_units` tells why."""


class LmqUnit(NamedTuple):
    """A further queue of a record, and the record's index in it."""

    topic: str
    queue_id: int
    queue_offset: int


def is_light(name: str) -> bool:
    """Return whether a queue of this name is a light one (``MixAll.isLmq``)."""
    return name.startswith(LMQ_PREFIX)


def has_lists(topic: str, features: ReleaseRules) -> bool:
    """Return whether a release looks at the lists of a topic's records.

    4.9 does for every topic, 5.3 not for retry and system topics; 4.3 knows nothing of them.
    """
    is_system_topic = topic.startswith(_NOT_LIGHT) or topic == SCHEDULE_TOPIC
    return features.has_light_queues and not (is_system_topic and features.keeps_light_queues_from_system_topics)


def split_names(text: str) -> list[str]:
    """Split a list as Java does: empty names at the end vanish.

    >>> split_names("%LMQ%a,,%LMQ%b,,")
    ['%LMQ%a', '', '%LMQ%b']
    """
    names = text.split(_SEPARATOR)
    while len(names) > 1 and not names[-1]:
        names.pop()
    return [] if names == [""] and text else names


def lmq_units(request: DispatchRequest, rules: QueueRules) -> list[LmqUnit]:
    """Return the further queues of a record (RocketMQ: ``ConsumeQueue.multiDispatchLmqQueue``).

    They are named in property INNER_MULTI_DISPATCH, and the record's indexes in them in INNER_MULTI_QUEUE_OFFSET. A
    light queue has id 0 if light queues are enabled, any other the record's. Of which topics a release does this says
    `has_lists`; 5.3 passes over names with a '/'.

    Raises
    ------
    UnfitListsError
        If the lists are of different length, or an index is no number: then no queue gets the record. So it is in
        RocketMQ for different lengths, as when a plain name comes last in a list of light ones. If a plain name comes
        before a light one there is an empty index, which RocketMQ can't read: 5.3.3 goes no further in the log from
        there on, whatever is put, and 4.9.7 does not load after a crash.
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
        raise UnfitListsError(f"{INNER_MULTI_QUEUE_OFFSET}: {error}") from None
    return [
        LmqUnit(name, 0 if rules.is_lmq_enabled and is_light(name) else request.queue_id, number)
        for name, number in zip(names, numbers, strict=True)
        if "/" not in name or not rules.features.passes_over_light_names_with_slash
    ]
