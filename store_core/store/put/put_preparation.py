# SPDX-License-Identifier: Apache-2.0
"""Preparing a message for the put lock: encoded except for what only its holder knows; and what became of a put.

The next offsets of light queues are stored in the record as a property, so it is encoded under the lock. RocketMQ 4.9:
``MultiDispatch``; 5.3: ``LmqDispatch``.
"""

from __future__ import annotations

import logging
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from store_core.store.message_store_config import BrokerConfig, MessageStoreConfig


@dataclass(frozen=True, slots=True)
class PutMessageResult:
    """Outcome of a put (RocketMQ: ``PutMessageResult``).

    Attributes
    ----------
    status : PutMessageStatus
    append_message_result : AppendMessageResult or None
        None if the message was refused before anything was appended.
    """

    status: PutMessageStatus
    append_message_result: AppendMessageResult | None = None

    @property
    def is_ok(self) -> bool:
        """Whether the message is in the log, judged by the append alone, as RocketMQ does.

        A result with FLUSH_DISK_TIMEOUT is ok; one with PUT_OK whose append said END_OF_FILE twice is not.
        """
        return self.append_message_result is not None and self.append_message_result.is_ok


@dataclass(frozen=True, slots=True, eq=False)
class AppendBatchResult:
    """Outcome of appending many messages.

    Attributes
    ----------
    status : PutMessageStatus
        As for a single put. If it is neither PUT_OK nor about flush or replicas, only the first `msg_num` messages are
        in the log, as if all had been put one by one and the next had failed.
    msg_num : int
        Number of these messages that are in the log.
    wrote_offset : int
        Where the log ended before the append.
    next_offset : int
        Where it ends now; blank records in between are included.
    store_timestamp : int
        Store time of all these messages, ms.
    physical_offsets, queue_offsets : numpy.ndarray
        int64, shape (msg_num,).
    """

    status: PutMessageStatus
    msg_num: int
    wrote_offset: int
    next_offset: int
    store_timestamp: int
    physical_offsets: npt.NDArray[np.int64]
    queue_offsets: npt.NDArray[np.int64]

    @property
    def is_ok(self) -> bool:
        """Whether all messages are in the log."""
        return self.status in (
            PutMessageStatus.PUT_OK,
            PutMessageStatus.FLUSH_DISK_TIMEOUT,
            PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
            PutMessageStatus.SLAVE_NOT_AVAILABLE,
        )

    @classmethod
    def refused(cls, status: PutMessageStatus, offset: int) -> AppendBatchResult:
        """Make the result for messages of which none was appended."""
        nothing = np.zeros(0, np.int64)
        return cls(status, 0, offset, offset, 0, nothing, nothing)


def join_results(results: Sequence[AppendBatchResult]) -> AppendBatchResult:
    """Combine the results of batches appended one after another; there is at least one."""
    return AppendBatchResult(
        results[-1].status,
        sum(result.msg_num for result in results),
        results[0].wrote_offset,
        results[-1].next_offset,
        results[0].store_timestamp,
        np.concatenate([result.physical_offsets for result in results]),
        np.concatenate([result.queue_offsets for result in results]),
    )


_Known = TypeVar("_Known")
_Result = TypeVar("_Result", "PutMessageResult", "AppendBatchResult")


def settle(
    result: _Result, flush: Future[PutMessageStatus] | None, replicas: Future[PutMessageStatus] | None
) -> _Result | Future[_Result]:
    """Return a result at once, or a future for when flush and replication, which run concurrently, are done.

    If both fail, the result has the status of the replicas (``CommitLog.handleDiskFlushAndHA``).
    """
    asked = [future for future in (flush, replicas) if future is not None]
    if not asked:
        return result
    joined: Future[_Result] = Future()

    def done(_: Future[PutMessageStatus]) -> None:
        if all(future.done() for future in asked):
            with suppress(InvalidStateError):
                joined.set_result(replace(result, status=join_statuses(asked)))

    for future in asked:
        future.add_done_callback(done)
    return joined


def join_statuses(answers: list[Future[PutMessageStatus]]) -> PutMessageStatus:
    """Return the last status that is not PUT_OK; a failed service counts as UNKNOWN_ERROR."""
    status = PutMessageStatus.PUT_OK
    for answer in answers:
        failed = answer.cancelled() or answer.exception() is not None
        found = PutMessageStatus.UNKNOWN_ERROR if failed else answer.result()
        status = status if found is PutMessageStatus.PUT_OK else found
    return status


def as_future(outcome: _Result | Future[_Result]) -> Future[_Result]:
    """Return an outcome as a future."""
    return outcome if isinstance(outcome, Future) else completed(outcome)


def wait_for(outcome: _Result | Future[_Result], timeout: float, otherwise: _Result) -> _Result:
    """Wait for an outcome, at most `timeout` seconds (``DefaultMessageStore.waitForPutResult``)."""
    if not isinstance(outcome, Future):
        return outcome
    try:
        return outcome.result(timeout)
    except (TimeoutError, CancelledError):
        return otherwise


ALL_IN_SYNC: Final = -1
"""As a number of acknowledgements: all in-sync replicas (``MixAll.ALL_ACK_IN_SYNC_STATE_SET``)."""

_MASTER_AND_SLAVE: Final = 2


def completed(result: _Known) -> Future[_Known]:
    """Return a completed future."""
    future: Future[_Known] = Future()
    future.set_result(result)
    return future


class ReplicaService:
    """What a put needs of replication (RocketMQ: ``HAService``); this one is of a master without slaves."""

    def in_sync_replicas(self, offset: int) -> int:  # noqa: ARG002 -- others depend on it
        """Return the number of replicas in sync with a log of this length, including the master (5.x)."""
        return 1

    def alive_replicas(self) -> int:
        """Return the number of live replicas, including the master (5.x, ``enableSlaveActingMaster``)."""
        return 1

    def is_slave_ok(self, offset: int) -> bool:  # noqa: ARG002 -- others depend on it
        """Return whether a slave is connected and close enough to a log of this length (4.x)."""
        return False

    def replicate(
        self,
        next_offset: int,  # noqa: ARG002 -- nobody will acknowledge
        acknowledgements: int,  # noqa: ARG002 -- as above
        timeout_ms: int,  # noqa: ARG002 -- as above
    ) -> Future[PutMessageStatus]:
        """Wait until replicas have the log up to `next_offset`: PUT_OK or FLUSH_SLAVE_TIMEOUT.

        * `acknowledgements`: Required number of copies, including the master's; `ALL_IN_SYNC` for all in-sync replicas.
        """
        return completed(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)


class Replication:
    """Decides when a put waits for replicas, and for how many (RocketMQ: ``CommitLog.needHandleHA``, ``handleHA``).

    Release 4.x waits for one slave, or returns SLAVE_NOT_AVAILABLE. 5.x waits for ``inSyncReplicas`` copies, one of
    them the master's own; in controller mode, or if a slave may act as master, it refuses messages beforehand if there
    are too few replicas.
    """

    def __init__(self, config: MessageStoreConfig, broker: BrokerConfig, replicas: ReplicaService) -> None:
        self._config = config
        self._features = config.features
        self._broker = broker
        self._replicas = replicas
        self._is_possible = config.broker_role == "SYNC_MASTER" and not (
            config.duplication_enable and self._features.skips_replicas_with_duplication
        )

    def is_needed(self, *, waits: bool) -> bool:
        """Return whether a put waits for replicas, given whether its message requests waiting."""
        return waits and self._is_possible

    def acknowledgements(self, offset: int) -> int | None:
        """Return the number of copies a put needs, with the log at `offset`; None if there can't be enough (5.x)."""
        wanted = self._config.in_sync_replicas
        if not self._features.waits_for_in_sync_replicas:
            return _MASTER_AND_SLAVE
        if self._broker.enable_controller_mode:
            enough = self._replicas.in_sync_replicas(offset) >= self._config.min_in_sync_replicas
            found = ALL_IN_SYNC if self._config.all_ack_in_sync_state_set else wanted
            return found if enough else None
        if self._broker.enable_slave_acting_master:
            in_sync = min(self._replicas.alive_replicas(), self._replicas.in_sync_replicas(offset))
            if self._config.enable_auto_in_sync_replicas:
                wanted = max(min(wanted, in_sync), self._config.min_in_sync_replicas)
            return wanted if wanted <= in_sync else None
        return wanted

    def handle_ha(self, next_offset: int, acknowledgements: int) -> Future[PutMessageStatus]:
        """Wait for replicas, after the log has grown to `next_offset`."""
        if not self._features.waits_for_in_sync_replicas:
            if not self._replicas.is_slave_ok(next_offset):
                return completed(PutMessageStatus.SLAVE_NOT_AVAILABLE)
            by_slave_timeout = self._features.waits_for_slave_by_slave_timeout
            timeout = self._config.slave_timeout if by_slave_timeout else self._config.sync_flush_timeout
            return self._replicas.replicate(next_offset, _MASTER_AND_SLAVE, timeout)
        if 0 <= acknowledgements <= 1:
            return completed(PutMessageStatus.PUT_OK)
        return self._replicas.replicate(next_offset, acknowledgements, self._config.slave_timeout)


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
