# SPDX-License-Identifier: Apache-2.0
"""Delayed messages: a property names a level, and the message waits in a system topic with one queue per level.

RocketMQ 4.x: ``CommitLog.asyncPutMessage``; 5.x: ``HookUtils.transformDelayLevelMessage``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.format.layout import TRANSACTION_MASK, TransactionType
from store_core.format.properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    PropertyMap,
    format_properties,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.format.message import Message


RETRY_PREFIX: Final = "%RETRY%"
"""Of a topic with messages that a consumer group sent back; they wait before they are delivered again."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
TIMERS: Final = (TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)
"""Properties that state when a message is due, other than by a level (5.0 and later)."""

OF_WAITING: Final = (DELAY, REAL_TOPIC, REAL_QID, "TRAN_MSG", "PGROUP", TIMER_OUT_MS, *TIMERS)
"""Properties of a message that waits in a topic of the broker for its time or its transaction.

A broker leaves most of them in what it delivers; which of a record that has ``REAL_TOPIC`` ask for nothing any more.
"""

_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_JAVA_INT: Final = re.compile(r"[+-]?\d+")
_I32_LIMIT: Final = 1 << 31
_QUEUED: Final = frozenset(kind.value for kind in TransactionType if kind.is_queued)


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Parse ``messageDelayLevel``; return delays in ms, level 1 first.

    >>> parse_delay_levels("1s 5s 2h")
    (1000, 5000, 7200000)
    """
    delays = []
    for item in text.split(" "):
        number, unit = item[:-1], item[-1:]
        if unit not in _UNITS_MS or not _JAVA_INT.fullmatch(number):
            raise InvalidOptionError(f"a delay level is a number and s, m, h or d, found {item!r} in {text!r}")
        delays.append(int(number) * _UNITS_MS[unit])
    return tuple(delays)


def delay_level(properties: Mapping[str, str | None]) -> int:
    """Return property DELAY, 0 without it (``Message.getDelayTimeLevel``)."""
    text = properties.get(DELAY)
    if text is None:
        return 0
    level = int(text) if _JAVA_INT.fullmatch(text) else _I32_LIMIT
    if not -_I32_LIMIT <= level < _I32_LIMIT:
        raise ValueError(f"property DELAY is not a 32-bit integer: {text!r}")
    return level


def may_be_delayed(sys_flag: int) -> bool:
    """Return whether messages of this kind are delayed: prepared and rolled-back transaction messages never are."""
    return sys_flag & TRANSACTION_MASK in _QUEUED


def is_timed(topic: str, properties: PropertyMap) -> bool:
    """Return whether a message without a delay level goes to the timer (``HookUtils.checkIfTimerMessage``)."""
    if topic == TIMER_TOPIC or properties.get(TIMER_OUT_MS) is not None:
        return False
    return any(properties.get(name) is not None for name in TIMERS)


def without_timers(properties: PropertyMap) -> PropertyMap:
    """Return a map without the timer's properties: a delay level takes precedence over them."""
    for name in TIMERS:
        properties = properties.without(name) if name in properties else properties
    return properties


def to_real_topic_map(properties: PropertyMap, topic: str, queue_id: int) -> PropertyMap:
    """Return a copy of a map that also holds the message's real topic and queue."""
    noted = PropertyMap(properties, properties.capacity)
    noted[REAL_TOPIC] = topic
    noted[REAL_QID] = str(queue_id)
    return noted


def to_schedule_topic(message: Message, properties: PropertyMap, max_level: int, release: str) -> Message:
    """Redirect a message to the queue of its delay level; its properties string is rebuilt from the map.

    * `properties`: The message's, with property DELAY above 0.
    * `max_level`: The highest level; a higher one is lowered to it, in the property too.
    """
    level = delay_level(properties)
    noted = PropertyMap(properties, properties.capacity)
    if level > max_level:
        level = max_level
        noted[DELAY] = str(level)
    noted = to_real_topic_map(noted, message.topic, message.queue_id)
    return with_properties(replace(message, topic=SCHEDULE_TOPIC, queue_id=level - 1), noted, release)


def with_properties(message: Message, properties: PropertyMap, release: str) -> Message:
    """Return a message with other properties, as a map and as the string that is stored."""
    return replace(
        message,
        tags=None,
        keys=None,
        delay_level=None,
        wait_store_msg_ok=True,
        properties=properties,
        properties_string=format_properties(properties, release),
    )
