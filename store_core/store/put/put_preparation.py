# SPDX-License-Identifier: Apache-2.0
"""Preparing a message for the put lock: encoded except for what only its holder knows, the next offsets of queues.

Those of light queues are stored in the record as a property, so it is encoded there. RocketMQ 4.9: ``MultiDispatch``;
5.3: ``LmqDispatch``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.java import SHORT_BITS, parse_java_int
from store_core.format.layout import TRANSACTION_MASK, MessageSysFlag
from store_core.format.message import AppendMessageResult, AppendMessageStatus, Message, PutMessageStatus
from store_core.format.properties import (
    DELAY,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    PROPERTY_CRC,
    WAIT,
    PropertyMap,
    format_properties,
    to_utf8,
)
from store_core.format.record.decode import decode_items
from store_core.format.record.delayed import delay_level, may_be_delayed, to_schedule_topic, with_properties
from store_core.format.record.encode import (
    EncodedRecords,
    Refusal,
    encode_members,
    encode_message,
    room_for_records,
    stored_properties,
)
from store_core.queue.queue_path import has_lists, is_light, split_names
from store_core.store.put.put_result import PutMessageResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from store_core.store.message_store_config import MessageStoreConfig


_LOG: Final = logging.getLogger("store_core")


class QueueOffsets:
    """Next free index by topic and queue id (RocketMQ: ``topicQueueTable``, ``lmqTopicQueueTable``).

    It is read and advanced only under the put lock, so that indexes are in log order. RocketMQ 5.x adds a lock for each
    of 32 shares of the queues around that (``TopicQueueLock``); here the put lock covers both.
    """

    def __init__(self) -> None:
        self._next: dict[tuple[str, int], int] = {}
        self._light: dict[str, int] = {}

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the index of the next message of a queue."""
        return self._next.get((topic, queue_id), 0)

    def advance(self, topic: str, queue_id: int, messages: int) -> None:
        """Advance a queue by a number of messages."""
        key = topic, queue_id
        self._next[key] = self._next.get(key, 0) + messages

    def next_offsets(self, queues: Sequence[tuple[str, int]]) -> npt.NDArray[np.int64]:
        """Return the next index of several queues."""
        return np.array([self._next.get(queue, 0) for queue in queues], np.int64)

    def advance_all(self, queues: Sequence[tuple[str, int]], messages: npt.NDArray[np.int64]) -> None:
        """Advance several queues."""
        for (topic, queue_id), count in zip(queues, messages.tolist(), strict=True):
            if count:
                self.advance(topic, queue_id, count)

    def next_light_offset(self, name: str) -> int:
        """Return the index of the next message of a light queue."""
        return self._light.get(name, 0)

    def set_light_offset(self, name: str, offset: int) -> None:
        """Set the next index of a light queue."""
        self._light[name] = offset

    def set_offset(self, topic: str, queue_id: int, offset: int) -> None:
        """Set the next index of a queue."""
        self._next[topic, queue_id] = offset

    def replace(self, offsets: Mapping[tuple[str, int], int], light: Mapping[str, int]) -> None:
        """Replace the tables by those recovered from the queues (``CommitLog.setTopicQueueTable``)."""
        self._next = dict(offsets)
        self._light = dict(light)

    def copy(self) -> QueueOffsets:
        """Return a copy."""
        copied = QueueOffsets()
        copied.replace(self._next, self._light)
        return copied

    def as_mapping(self) -> Mapping[tuple[str, int], int]:
        """Return a copy of the table: topic and queue id to next index."""
        return dict(self._next)

    def lmq_queues(self) -> Mapping[str, int]:
        """Return a copy of the table of light queues."""
        return dict(self._light)


_SEPARATOR: Final = ","


class LmqQueues:
    """Handles property INNER_MULTI_DISPATCH by a release's rules.

    * `config`: 4.9 checks ``enableMultiDispatch`` for all names, and ``enableLmq`` for light ones; 5.3 only
      ``enableLmq``.
    * `offsets`: Read and advanced under the put lock.
    """

    def __init__(self, config: MessageStoreConfig, offsets: QueueOffsets) -> None:
        self._release = config.release
        self._features = config.features
        self._offsets = offsets
        self._is_lmq_enabled = config.enable_lmq
        self.is_enabled = config.encode_rules.enable_lmq

    def is_concerned(self, topic: str, properties: Mapping[str, str | None]) -> bool:
        """Return whether a message goes to further queues."""
        is_listed = bool((properties.get(INNER_MULTI_DISPATCH) or "").strip())
        return self.is_enabled and is_listed and has_lists(topic, self._features)

    def dispatch_properties(self, message: Message, properties: PropertyMap) -> tuple[PropertyMap, bytes]:
        """Add the indexes to the properties; return the map and the properties field to store.

        Property WAIT is removed and added again, after the others in its hash bucket; 4.9 omits it from the field.
        """
        noted = PropertyMap(properties, properties.capacity)
        names = split_names(noted.get(INNER_MULTI_DISPATCH) or "")
        offsets = (self._next_offset(name, message.queue_id) for name in names)
        noted[INNER_MULTI_QUEUE_OFFSET] = _SEPARATOR.join("" if offset is None else str(offset) for offset in offsets)
        stored = noted
        if WAIT in noted:
            stored = noted.without(WAIT)
            noted = PropertyMap(stored, stored.capacity)
            noted[WAIT] = properties[WAIT]
        text = format_properties(stored if self._features.leaves_wait_out_of_light_records else noted, self._release)
        return noted, to_utf8(text)

    def _next_offset(self, name: str, queue_id: int) -> int | None:
        if self._is_lmq_enabled and is_light(name):
            return self._offsets.next_light_offset(name)
        return self._offsets.next_offset(name, queue_id) if self._features.fills_light_lists_for_plain_names else None

    def advance(self, message: Message, properties: PropertyMap) -> None:
        """Advance the further queues after the record is in the log.

        A name that occurs twice advances its queue by one in 4.9, which sets it from the record, and by two in 5.3.
        4.9 skips prepared and rolled-back transaction messages.
        """
        names = split_names(properties.get(INNER_MULTI_DISPATCH) or "")
        if self._features.sets_light_offsets_from_record:
            offsets = split_names(properties.get(INNER_MULTI_QUEUE_OFFSET) or "")
            if may_be_delayed(message.sys_flag) and len(names) == len(offsets):
                for name, offset in zip(names, offsets, strict=True):
                    self._set(name, message.queue_id, int(offset) + 1)
            return
        for name in names:
            if is_light(name):
                self._offsets.set_light_offset(name, self._offsets.next_light_offset(name) + 1)

    def _set(self, name: str, queue_id: int, offset: int) -> None:
        if self._is_lmq_enabled and is_light(name):
            self._offsets.set_light_offset(name, offset)
        else:
            self._offsets.set_offset(name, queue_id, offset)


_INNER_BATCH: Final = int(MessageSysFlag.INNER_BATCH_FLAG)
_ILLEGAL: Final = PutMessageStatus.MESSAGE_ILLEGAL


@dataclass(slots=True)
class Pending:
    """A message, or a batch, on its way into the log."""

    message: Message  # as it is stored; for a batch, what its members share
    encoded: EncodedRecords | None  # None if it is encoded under the lock, where `properties` are added
    properties: PropertyMap | None = None
    message_num: int = 1  # number of indexes it takes in its queue, if `is_queued`
    is_queued: bool = True
    is_light: bool = False  # whether it goes to further queues


def refused(refusal: Refusal) -> PutMessageResult:
    """Return the result of a message that can't be stored."""
    _LOG.warning("a message is refused (%s): %s", refusal.status.name, refusal.reason)
    if refusal.append_status is None:
        return PutMessageResult(refusal.status)
    return PutMessageResult(refusal.status, AppendMessageResult(refusal.append_status))


class PutPreparation:
    """Prepares a message before the put lock is taken, and under it if needed.

    * `store_host`: For messages without a store host.
    * `is_batch_topic`: Returns whether a topic is a BatchCQ topic.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        store_host: tuple[str, int],
        lmq_queues: LmqQueues,
        is_batch_topic: Callable[[str], bool],
    ) -> None:
        self.rules = config.encode_rules
        self._config = config
        self._features = config.features
        self._store_host = store_host
        self.lmq_queues = lmq_queues
        self._is_batch_topic = is_batch_topic

    def delayed(self, message: Message) -> Message | Refusal:
        """Send a delayed message to the schedule topic; in 4.x the log does this, in 5.x the broker's hook."""
        if self._features.schedules_by_hook or not may_be_delayed(message.sys_flag) or not message.may_have(DELAY):
            return message
        properties = stored_properties(message, self._config.release)
        level = _delay_level(properties)
        if level is None:
            return Refusal(_ILLEGAL, f"property DELAY is {properties[DELAY]!r}")
        if level <= 0:
            return message
        return to_schedule_topic(message, properties, len(self._config.delay_levels), self._config.release)

    def waits(self, message: Message) -> bool:
        """Return whether the producer waits until its message is safe (``Message.isWaitStoreMsgOK``)."""
        if not message.may_have(WAIT):
            return True
        value = stored_properties(message, self._config.release).get(WAIT)
        return value is None or value.lower() == "true"

    def single(self, message: Message, born_timestamp: int) -> Pending | Refusal:
        """Encode a message, unless that has to be done under the lock."""
        is_inner = self._features.has_inner_batches and bool(message.sys_flag & _INNER_BATCH)
        counts_inner = is_inner or (message.may_have(INNER_NUM) and self._is_batch_topic(message.topic))
        pending = Pending(message, None, is_queued=may_be_delayed(message.sys_flag))
        if counts_inner or self.lmq_queues.is_enabled:
            properties = stored_properties(message, self._config.release)
            if self.rules.append_property_crc and PROPERTY_CRC in properties:
                properties = properties.without(PROPERTY_CRC)
            number = _inner_number(properties) if counts_inner else 1
            if number is None:
                return Refusal(_ILLEGAL, f"property INNER_NUM is {properties[INNER_NUM]!r}")
            pending.message_num = number
            pending.is_light = self.lmq_queues.is_concerned(message.topic, properties)
            pending.properties = properties if is_inner or pending.is_light else None
        encoded = self._encoded(message, born_timestamp)
        if isinstance(encoded, Refusal):
            return encoded
        if pending.properties is None:
            pending.encoded = encoded
        elif message.born_timestamp is None:
            pending.message = replace(message, born_timestamp=born_timestamp)
        return pending

    def _encoded(self, message: Message, born_timestamp: int) -> EncodedRecords | Refusal:
        encoded = encode_message(message, self.rules, self._store_host, born_timestamp=born_timestamp)
        return encoded if isinstance(encoded, Refusal) else self._within_a_file(encoded)

    def _within_a_file(self, encoded: EncodedRecords) -> EncodedRecords | Refusal:
        """Refuse what fits in no file; RocketMQ instead closes two files one after the other and stores nothing."""
        limit = room_for_records(self._config.mapped_file_size_commit_log)
        if len(encoded.data) > limit:
            return Refusal(_ILLEGAL, f"{len(encoded.data)} bytes, where a commit log file has room for {limit}")
        return encoded

    def batch(self, batch: Message, born_timestamp: int) -> Pending | Refusal:
        """Encode the members of a batch.

        RocketMQ 5.3 throws an exception if a batch is too large or malformed; here it is refused as illegal, as in 4.x.
        """
        properties = stored_properties(batch, self._config.release)
        if batch.sys_flag & TRANSACTION_MASK or _delay_level(properties) != 0:
            return Refusal(_ILLEGAL, "a batch can be neither delayed nor part of a transaction")
        body = batch.body
        if body is None or len(body) > self.rules.max_message_size:
            size = "no" if body is None else f"{len(body)} bytes of"
            return Refusal(_ILLEGAL, f"a batch with {size} body, at most {self.rules.max_message_size} are allowed")
        try:
            items = list(decode_items(body))
        except ValueError as error:
            return Refusal(_ILLEGAL, str(error))
        encoded = encode_members(batch, items, self.rules, self._store_host, born_timestamp)
        if not isinstance(encoded, Refusal):
            encoded = self._within_a_file(encoded)
        if isinstance(encoded, Refusal):
            return encoded
        if self._features.stamps_batches_before_lock:
            encoded.fixed_timestamp = born_timestamp
        return Pending(batch, encoded, message_num=len(items))

    def encode_in_lock(self, pending: Pending, queue_offset: int) -> EncodedRecords | PutMessageResult:
        """Encode a message with what is known only under the lock: indexes of an inner batch or of further queues."""
        properties = PropertyMap() if pending.properties is None else pending.properties
        message = pending.message
        if message.sys_flag & _INNER_BATCH and self._features.has_inner_batches:
            properties = PropertyMap(properties, properties.capacity)
            properties[INNER_BASE] = str(queue_offset)
            message = with_properties(message, properties, self._config.release)
        if not pending.is_light:
            encoded = self._encoded(message, 0)
            return refused(encoded) if isinstance(encoded, Refusal) else encoded
        pending.properties, stored = self.lmq_queues.dispatch_properties(message, properties)
        encoded = encode_message(message, self.rules, self._store_host, stored)
        if not isinstance(encoded, Refusal):
            encoded = self._light_limit(encoded)
        return self._light_refusal(encoded) if isinstance(encoded, Refusal) else encoded

    def _light_limit(self, encoded: EncodedRecords) -> EncodedRecords | Refusal:
        """Apply the body size limit to the whole record, as 5.3 does for light messages."""
        limit = self.rules.max_message_size
        if self._features.limits_light_records and len(encoded.data) > limit:
            reason = f"a record of {len(encoded.data)} bytes, at most {limit} are allowed for light queues"
            return Refusal(_ILLEGAL, reason, AppendMessageStatus.MESSAGE_SIZE_EXCEEDED)
        return self._within_a_file(encoded)

    def _light_refusal(self, refusal: Refusal) -> PutMessageResult:
        """Return the result for a message that its further indexes made too large."""
        if self._features.reports_large_light_records_as_unknown:
            status, append_status = PutMessageStatus.UNKNOWN_ERROR, AppendMessageStatus.UNKNOWN_ERROR
        elif refusal.status is PutMessageStatus.PROPERTIES_SIZE_EXCEEDED:
            status, append_status = _ILLEGAL, AppendMessageStatus.PROPERTIES_SIZE_EXCEEDED
        else:
            return refused(refusal)
        return refused(Refusal(status, refusal.reason, append_status))


def _delay_level(properties: PropertyMap) -> int | None:
    """Read property DELAY; None if it is not a number."""
    try:
        return delay_level(properties)
    except ValueError:
        return None


def _inner_number(properties: PropertyMap) -> int | None:
    """Read the number of messages in an inner batch, at least 1; None if not a number (``getMessageNum``)."""
    try:
        return max(parse_java_int(properties.get(INNER_NUM) or "", SHORT_BITS), 1) if INNER_NUM in properties else 1
    except ValueError:
        return None
