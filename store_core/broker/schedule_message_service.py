# SPDX-License-Identifier: Apache-2.0
"""Delivery of delayed messages, when they are due."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.errors import CorruptRecordError
from store_core.files.machine import Clock, SystemClock
from store_core.files.service_thread import ServiceThread
from store_core.format.message import Message, MessageExt, PutMessageStatus
from store_core.format.properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    WAIT,
    PropertyMap,
    format_properties,
)
from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.format.release import rules_of
from store_core.store.get_message import queue_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store_core.broker.consumer_offset import DelayOffsetTable
    from store_core.store.get_message import AnyQueue, QueueUnit
    from store_core.store.message_store import DefaultMessageStore


_LOG: Final = logging.getLogger("store_core")
_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_I32_LIMIT: Final = 1 << 31

_FIRST_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.1
_PERIOD_SECONDS: Final = 10.0
"""Pause of a level after an exception, and, in 4.3, a failed put; also the time until the first persisting."""


def message_time_up(message: MessageExt, release: str) -> Message:
    """Return the copy of a delayed message that is put into its real topic (``messageTimeUp``).

    Its property string is made while DELAY is still among the properties, so the record has DELAY, REAL_TOPIC and
    REAL_QID; only the map that the store reads lacks DELAY. Code that read the delay from the string would delay the
    message for ever.
    """
    features = rules_of(release)
    properties = PropertyMap(message.properties, features.decoded_properties_capacity)
    topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QID)
    if topic is None or queue_id is None or not _INTEGER.fullmatch(queue_id) or abs(int(queue_id)) >= _I32_LIMIT:
        raise ValueError(f"properties {REAL_TOPIC} and {REAL_QID} should name a queue, found {topic!r}, {queue_id!r}")
    seen = properties.without(DELAY)
    if features.has_timer_messages:
        seen = seen.without(TIMER_DELIVER_MS).without(TIMER_DELAY_SEC)
    seen[WAIT] = "false"
    return Message(
        topic,
        message.body,
        int(queue_id),
        properties=seen,
        properties_string=format_properties(properties, release),
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=_host(message.born_host),
        store_host=_host(message.store_host),
        reconsume_times=message.reconsume_times,
    )


def _host(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)


@dataclass(slots=True)
class _Level:
    """A delay level: its delivery position in its queue, and when to check it next, by the monotonic clock."""

    number: int
    delay_ms: int
    offset: int = 0
    due: float = 0.0


class ScheduleMessageService(ServiceThread):
    """Service that puts delayed messages into their topics when they are due (RocketMQ: ``ScheduleMessageService``).

    Each level is checked every 100 ms, beginning 1 s after the start. Its queue holds the times at which messages are
    due; the message at its head holds up those after it. Offsets are kept in ``config/delayOffset.json``: they are
    written every ``flushDelayOffsetInterval``, and at shutdown (4.3 does not do the latter, and delivers its last
    messages twice). A message is delivered at least once: a crash repeats what was not persisted.

    A failed put is tried again, and holds the level up: after 100 ms, in 4.3 after 10 s. A message that does not name
    its real topic is dropped (4.9 tries it again for ever). One with an empty body is delivered; RocketMQ 5.3.3 reads
    it as one without any, refuses it, and so never gets past it.

    Parameters
    ----------
    store : DefaultMessageStore
    offsets : DelayOffsetTable
    clock : Clock, optional
    on_error : callable, optional
        Called with each `OSError`; the level then pauses for 10 s.
    """

    def __init__(
        self,
        store: DefaultMessageStore,
        offsets: DelayOffsetTable,
        clock: Clock | None = None,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        super().__init__(clock or SystemClock(), on_error)
        self._store = store
        self._offsets = offsets
        self._release = store.config.release
        self._features = store.config.features
        self._levels = [_Level(number, delay) for number, delay in enumerate(store.config.delay_levels, 1)]
        self._persist_due = 0.0
        self._is_loaded = False

    def load(self) -> None:
        """Read the offsets, limit them to their queues (4.9 and later), and schedule the first check.

        Raises
        ------
        CorruptRecordError
            If the file and its backup are both broken.
        OSError
            As raised by the system.
        """
        self._offsets.load()
        if self._features.corrects_delay_offsets:
            self._offsets.correct(self._bounds)
        now = self._clock.monotonic()
        for level in self._levels:
            level.offset = self._offsets.offset_of(level.number)
            level.due = now + _FIRST_SECONDS
        self._persist_due = now + _PERIOD_SECONDS
        self._is_loaded = True

    def _bounds(self, number: int) -> tuple[int, int] | None:
        queue = self._queue(number) if 0 < number <= len(self._levels) else None
        return None if queue is None else (queue.min_offset_in_queue, queue.max_offset_in_queue)

    def _queue(self, number: int) -> AnyQueue | None:
        return self._store.consume_queue_store.get(SCHEDULE_TOPIC, number - 1)

    def start(self) -> None:
        """Read the offsets, and start the thread unless it is running."""
        if not self.is_running:
            self.load()
        super().start()

    def pause(self) -> None:
        """Wait until a level has to be checked."""
        earliest = min((level.due for level in self._levels), default=self._persist_due)
        self.wait_for_running(max(min(earliest, self._persist_due) - self._clock.monotonic(), 0.0))

    def run_once(self) -> None:
        """Check the levels that are due, and persist the offsets if that is due."""
        if not self._is_loaded:
            self.load()
        for level in self._levels:
            if level.due <= self._clock.monotonic() and not self._stopped.is_set():
                level.due = self._look(level) + self._clock.monotonic()
        if self._persist_due <= self._clock.monotonic():
            self._persist_due = self._clock.monotonic() + self._store.config.flush_delay_offset_interval / 1000
            self._offsets.persist()

    def finish(self) -> None:
        """Persist the offsets."""
        if self._is_loaded:
            self._offsets.persist()

    def _look(self, level: _Level) -> float:
        """Deliver a level's due messages; return the seconds until its next check."""
        try:
            queue = self._queue(level.number)
            if queue is None:
                return _POLL_SECONDS
            units = queue_units(queue, level.offset)
            if units is None:
                # no unit is there: go to the queue's first index or, if the release does so, its last
                smallest, largest = queue.min_offset_in_queue, queue.max_offset_in_queue
                largest = largest if self._features.goes_back_to_last_delayed else max(level.offset, smallest)
                within = min(max(level.offset, smallest), max(largest, smallest))
                if within != level.offset:
                    _LOG.error(
                        "delay level %d has no message %d: it continues at %d", level.number, level.offset, within
                    )
                    level.offset = within
                return _POLL_SECONDS
            return self._deliver(level, units)
        except OSError as error:
            self.report(error)
            return _PERIOD_SECONDS

    def _deliver(self, level: _Level, units: Iterator[QueueUnit]) -> float:
        """Deliver messages until one is not due yet or can't be put, or the queue's file ends."""
        for unit in units:
            if self._stopped.is_set():
                break
            level.offset = unit.queue_offset
            message = self._message(unit)
            now = self._clock.now_ms()
            # What is due after more than the level's delay is due now (``correctDeliverTimestamp``).
            if now < self._tags_code(level, unit, message) <= now + level.delay_ms:
                if self._features.notes_delay_offset_while_waiting:
                    self._offsets.update_offset(level.number, level.offset)
                return _POLL_SECONDS
            if message is not None and not self._put(level, message):
                return _POLL_SECONDS if self._features.retries_delivery_soon else _PERIOD_SECONDS
            level.offset += 1
        if not self._features.notes_delay_offset_after_each:
            self._offsets.update_offset(level.number, level.offset)
        return _POLL_SECONDS

    def _message(self, unit: QueueUnit) -> MessageExt | None:
        """Read a message; None, so that it is skipped, if there is none or it can't be read."""
        try:
            return self._store.look_message_by_offset(unit.physical_offset)
        except CorruptRecordError as error:
            _LOG.error("a delayed message is skipped: %s", error)
            return None

    def _tags_code(self, level: _Level, unit: QueueUnit, message: MessageExt | None) -> int:
        """Return when a message is due, ms; recomputed if that was stored in an extension that is lost."""
        if unit.tags_code is not None:
            return unit.tags_code
        return (-1 if message is None else message.store_timestamp) + level.delay_ms

    def _put(self, level: _Level, message: MessageExt) -> bool:
        """Put a copy, unless that can never succeed; False if it has to be tried again."""
        try:
            copy = message_time_up(message, self._release)
        except ValueError as error:
            _LOG.error("the delayed message at %d is dropped: %s", message.physical_offset, error)
            return True
        if copy.topic == _HALF_TOPIC and self._features.drops_delayed_half_messages:
            _LOG.error("the delayed message at %d is dropped: it is a half message", message.physical_offset)
            return True
        status = self._store.put_message(copy).status
        if status is PutMessageStatus.PUT_OK:
            if self._features.notes_delay_offset_after_each:
                self._offsets.update_offset(level.number, level.offset + 1)
            return True
        _LOG.error("the delayed message at %d can't be put, level %d waits: %s",
                   message.physical_offset, level.number, status.name)  # fmt: skip
        if not self._features.notes_delay_offset_after_each:
            self._offsets.update_offset(level.number, level.offset)
        return False
