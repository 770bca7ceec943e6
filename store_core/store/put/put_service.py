# SPDX-License-Identifier: Apache-2.0
"""Puts to a store: messages are checked and rewritten, passed to the log, and counted.

Release 5.x leaves the checks to hooks that the broker registers; without them a store checks only inner batches. In
4.x the store itself checks.

RocketMQ 5.3: ``HookUtils``; 4.x: ``DefaultMessageStore.checkStoreStatus`` and ``checkMessage``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import pyarrow.compute as pc

from store_core.format.java import LONG_BITS, parse_java_int
from store_core.format.layout import MessageSysFlag
from store_core.format.message import Message, PutMessageStatus
from store_core.format.properties import (
    DELAY,
    INNER_NUM,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    PropertyMap,
    format_properties,
    to_utf8,
)
from store_core.format.record.decode import client_batch
from store_core.format.record.delayed import (
    RETRY_PREFIX,
    TIMER_TOPIC,
    TIMERS,
    delay_level,
    is_timed,
    may_be_delayed,
    to_real_topic_map,
    to_schedule_topic,
    with_properties,
    without_timers,
)
from store_core.format.record.encode import stored_properties, utf16_length
from store_core.format.release import Release, rules_of
from store_core.store.put.put_preparation import AppendBatchResult, PutMessageResult

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

    from store_core.format.columnar.encode_batch import EncodedBatch
    from store_core.store.message_store_config import MessageStoreConfig
    from store_core.store.put.commit_log import CommitLog


_LOG: Final = logging.getLogger("store_core")

_INNER_BATCH: Final = int(MessageSysFlag.INNER_BATCH_FLAG)
_I8_MAX: Final = 0x7F
_I16_MAX: Final = 0x7FFF
_MAX_RETRY_TOPIC: Final = 255

Hooked: TypeAlias = Message | PutMessageStatus
PutMessageHook: TypeAlias = Callable[[Message], Hooked]
"""A check called with each message before it is put (RocketMQ 5.x: ``PutMessageHook``).

It returns the message, a replacement, or the status with which the message is refused.
"""


class StoreState(Protocol):
    """The state of a store that the checks need."""

    @property
    def is_shutdown(self) -> bool:
        """Whether it no longer accepts messages."""

    @property
    def is_writeable(self) -> bool:
        """Whether its running flags allow puts."""

    @property
    def is_os_page_cache_busy(self) -> bool:
        """Whether the current append takes too long."""

    def is_batch_topic(self, topic: str) -> bool:
        """Whether a topic has the attribute ``queue.type=BatchCQ``."""

    def now_ms(self) -> int:
        """Wall clock, ms."""


def default_hooks(config: MessageStoreConfig, state: StoreState) -> list[PutMessageHook]:
    """Return the hooks of a 5.3 broker, in its order."""
    checks = PutChecks(config, state)
    return [checks.check_before_put_message, checks.check_inner_batch, checks.handle_schedule_message]


def topic_refusal(topic: str, release: Release) -> str | None:
    """Return why brokers of a release refuse messages of a topic; None if they accept them."""
    if not rules_of(release).limits_topics_in_bytes:
        size, limit = utf16_length(topic), _I8_MAX
        return f"MESSAGE_ILLEGAL: it has {size} characters; the maximum is {limit}" if size > limit else None
    size, limit = len(to_utf8(topic)), _MAX_RETRY_TOPIC if topic.startswith(RETRY_PREFIX) else _I8_MAX
    return f"MESSAGE_ILLEGAL: it has {size} bytes; the maximum is {limit}" if size > limit else None


class PutChecks:
    """The checks of all releases that need a store."""

    def __init__(self, config: MessageStoreConfig, state: StoreState) -> None:
        self._config = config
        self._features = config.features
        self._state = state
        self._levels = len(config.delay_levels)

    # ---- the state of the store

    def check_store_status(self) -> PutMessageStatus | None:
        """Refuse when shut down, a slave, or not writeable; the page cache is checked separately."""
        is_slave = self._config.broker_role == "SLAVE"
        if self._features.takes_puts_as_duplicating_slave:
            is_slave = is_slave and not self._config.duplication_enable
        if self._state.is_shutdown or is_slave or not self._state.is_writeable:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        return None

    def check_page_cache(self) -> PutMessageStatus | None:
        """Refuse while an append takes too long."""
        return PutMessageStatus.OS_PAGE_CACHE_BUSY if self._state.is_os_page_cache_busy else None

    # ---- hooks of 5.x

    def check_before_put_message(self, message: Message) -> Hooked:
        """Check store, topic and body (``HookUtils.checkBeforePutMessage``)."""
        refused = self.check_store_status() or self.check_topic(message.topic)
        if refused is None and message.body is None:
            refused = PutMessageStatus.MESSAGE_ILLEGAL
        return refused or self.check_page_cache() or message

    def check_topic(self, topic: str) -> PutMessageStatus | None:
        """Limit the topic's length: 127 bytes, or 255 for retry topics; in 4.x 127 characters for all."""
        return PutMessageStatus.MESSAGE_ILLEGAL if topic_refusal(topic, self._config.release) else None

    def check_inner_batch(self, message: Message) -> Hooked:
        """Allow inner batches only on BatchCQ topics, and INNER_NUM only on these (``HookUtils.checkInnerBatch``)."""
        is_inner = bool(message.sys_flag & _INNER_BATCH)
        if is_inner and not self._state.is_batch_topic(message.topic):
            return PutMessageStatus.MESSAGE_ILLEGAL
        if is_inner or not message.may_have(INNER_NUM):
            return message
        has_number = INNER_NUM in stored_properties(message, self._config.release)
        return PutMessageStatus.MESSAGE_ILLEGAL if has_number else message

    def handle_schedule_message(self, message: Message) -> Hooked:
        """Send timed and delayed messages to their system topics (``HookUtils.handleScheduleMessage``)."""
        if not message.may_have(DELAY, *TIMERS) or not may_be_delayed(message.sys_flag):
            return message
        properties = stored_properties(message, self._config.release)
        try:
            level = delay_level(properties)
        except ValueError:
            return PutMessageStatus.MESSAGE_ILLEGAL
        if level > 0:
            if message.topic != TIMER_TOPIC:
                properties = without_timers(properties)
            return to_schedule_topic(message, properties, self._levels, self._config.release)
        if not is_timed(message.topic, properties):
            return message
        return self._to_timer_topic(message, properties)

    def _to_timer_topic(self, message: Message, properties: PropertyMap) -> Hooked:
        """Send a message to the timer topic, with the time at which it is due (``transformTimerMessage``)."""
        if not self._config.timer_wheel_enable:
            return PutMessageStatus.WHEEL_TIMER_NOT_ENABLE
        now = self._state.now_ms()
        try:
            due = _deliver_time(properties, now)
        except ValueError:
            return PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
        if due <= now:
            is_deletion = properties.get(TIMER_DEL_UNIQKEY) is not None
            return PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL if is_deletion else message
        if due - now > self._config.timer_max_delay_sec * 1000:
            return PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
        precision = self._config.timer_precision_ms
        # An exact multiple is rounded one step down, as in Java.
        floored = due - precision if due % precision == 0 else due // precision * precision
        noted = PropertyMap(properties, properties.capacity)
        noted[TIMER_OUT_MS] = str(floored)
        noted = to_real_topic_map(noted, message.topic, message.queue_id)
        return with_properties(replace(message, topic=TIMER_TOPIC, queue_id=0), noted, self._config.release)

    # ---- checks of 4.x

    def check_4x(self, message: Message, *, is_batch: bool) -> PutMessageStatus | None:
        """Check store and message as 4.x does; for a batch, body size instead of properties."""
        illegal = self.check_topic(message.topic) or (
            self._check_batch_size(message) if is_batch else self._check_properties(message)
        )
        busy = self.check_page_cache
        refused = self.check_store_status()
        if self._features.checks_page_cache_before_message:
            return refused or busy() or illegal
        return refused or illegal or busy()

    def _check_properties(self, message: Message) -> PutMessageStatus | None:
        """Limit the characters of the properties string; the encoder limits its bytes."""
        text = message.properties_string
        if text is None:
            text = self._long_properties(message)
        if text is None or len(text) * 2 <= _I16_MAX:
            return None
        length = utf16_length(text if isinstance(text, str) else text.decode("utf-8", "replace"))
        too_long = PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
        if self._features.reports_long_properties_as_illegal:
            too_long = PutMessageStatus.MESSAGE_ILLEGAL
        return too_long if length > _I16_MAX else None

    def _long_properties(self, message: Message) -> str | None:
        """Return the properties string of a message given as a map, unless it is certainly short enough."""
        properties = stored_properties(message, self._config.release)
        size = sum(len(name) + len(value or "null") + 2 for name, value in properties.items())
        return format_properties(properties, self._config.release) if size * 2 > _I16_MAX else None

    def _check_batch_size(self, message: Message) -> PutMessageStatus | None:
        too_large = len(message.body or b"") > self._config.max_message_size
        return PutMessageStatus.MESSAGE_ILLEGAL if too_large else None


def _deliver_time(properties: PropertyMap, now: int) -> int:
    """Return when a timed message is due, ms."""
    read: dict[str, Callable[[int], int]] = {
        TIMER_DELAY_SEC: lambda number: now + number * 1000,
        TIMER_DELAY_MS: lambda number: now + number,
        TIMER_DELIVER_MS: lambda number: number,
    }
    for name, due in read.items():
        text = properties.get(name)
        if text is not None:
            return due(parse_java_int(text, LONG_BITS))
    raise ValueError("no property says when the message is due")


_SLOW_MS: Final = 500


class PutService:
    """What `DefaultMessageStore` does before and after the commit log puts.

    * `hooks`: Called on each message of a 5.3 store, in this order, until one refuses it.
    """

    def __init__(self, commit_log: CommitLog, state: StoreState, hooks: list[PutMessageHook]) -> None:
        self._commit_log = commit_log
        self._config = commit_log.config
        self._checks_by_hooks = commit_log.config.features.checks_puts_by_hooks
        self._state = state
        self._hooks = hooks
        self._checks = PutChecks(commit_log.config, state)

    def put(self, message: Message) -> PutMessageResult | Future[PutMessageResult]:
        """Put a message; return a plain result, not a future, if it is known at once."""
        checked = self._checked(message, is_batch=False)
        if isinstance(checked, PutMessageStatus):
            return PutMessageResult(checked)
        begin = self._state.now_ms()
        return self._timed(self._commit_log.put(checked), begin, message.topic)

    def put_batch(self, messages: Sequence[Message] | Message) -> PutMessageResult | Future[PutMessageResult]:
        """Put a batch, like `put`."""
        batch = messages if isinstance(messages, Message) else client_batch(messages, self._config.release)
        checked = self._checked(batch, is_batch=True)
        if isinstance(checked, PutMessageStatus):
            return PutMessageResult(checked)
        begin = self._state.now_ms()
        return self._timed(self._commit_log.put_batch(checked), begin, batch.topic)

    def _checked(self, message: Message, *, is_batch: bool) -> Message | PutMessageStatus:
        """Apply the release's checks, or the hooks, to a message."""
        if self._state.is_shutdown:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if not self._checks_by_hooks:
            return self._checks.check_4x(message, is_batch=is_batch) or message
        hooked: Message | PutMessageStatus = message
        for hook in self._hooks:
            if isinstance(hooked, PutMessageStatus):
                return hooked
            hooked = hook(hooked)
        if isinstance(hooked, PutMessageStatus) or is_batch:
            return hooked
        return self._checks.check_inner_batch(hooked)

    def _timed(
        self, outcome: PutMessageResult | Future[PutMessageResult], begin: int, topic: str
    ) -> PutMessageResult | Future[PutMessageResult]:
        """Count a put and the time it took, when its result is known."""

        def count(result: PutMessageResult) -> None:
            elapsed = self._state.now_ms() - begin
            if elapsed > _SLOW_MS:
                _LOG.warning("a put to %s took %d ms", topic, elapsed)
            self._commit_log.stats.add_put_time(elapsed, is_ok=result.is_ok)

        if isinstance(outcome, PutMessageResult):
            count(outcome)
        else:
            outcome.add_done_callback(lambda future: count(future.result()))
        return outcome

    def encode_messages(self, messages: pa.RecordBatch | pa.Table) -> tuple[EncodedBatch, ...]:
        """Encode many messages for `append_batch`; delayed ones go to the schedule topic as with `put`."""
        return self._commit_log.encode_messages(messages, schedules=bool(self._hooks))

    def append_batch(
        self, messages: Sequence[EncodedBatch] | pa.RecordBatch | pa.Table, *, waits: bool = True
    ) -> AppendBatchResult:
        """Check many messages, then append them as `CommitLog.append_batch` does.

        Hooks are not called, but the broker's own rules on topics and delays are applied.
        """
        refused = self._refuse_many(messages)
        if refused is not None:
            return AppendBatchResult.refused(refused, self._commit_log.append_offset)
        batches = messages if isinstance(messages, Sequence) else self.encode_messages(messages)
        return self._commit_log.append_batch(batches, waits=waits)

    def _refuse_many(self, messages: Sequence[EncodedBatch] | pa.RecordBatch | pa.Table) -> PutMessageStatus | None:
        if self._state.is_shutdown:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if self._checks_by_hooks and not self._hooks:
            return None
        illegal = any(self._checks.check_topic(topic) is not None for topic in _distinct_topics(messages))
        refused = self._checks.check_store_status() or self._checks.check_page_cache()
        return refused or (PutMessageStatus.MESSAGE_ILLEGAL if illegal else None)


def _distinct_topics(messages: Sequence[EncodedBatch] | pa.RecordBatch | pa.Table) -> set[str]:
    if isinstance(messages, Sequence):
        return {topic for batch in messages for topic, _ in batch.queues}
    names = [name for name in messages.schema.names if name.lower() == "topic"]
    found = [topic for name in names for topic in pc.unique(messages.column(name)).to_pylist()]
    return {topic for topic in found if isinstance(topic, str)}
