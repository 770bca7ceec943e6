# SPDX-License-Identifier: Apache-2.0
"""What a store answers to gets and look-ups.

RocketMQ: ``DefaultMessageStore``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.format.filter.message_selector import MessageSelector
from store_core.format.properties import PropertyParser
from store_core.format.record.decode import decode_message
from store_core.queue.consume_queue.time_search import BoundaryType
from store_core.store.memory import physical_memory
from store_core.store.query.get_message import (
    GetMessageStatus,
    LogLookup,
    MessageGetter,
    QueryMessageResult,
    queue_units,
)

if TYPE_CHECKING:
    from store_core.format.filter.message_selector import MessageFilter
    from store_core.format.message import MessageExt
    from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
    from store_core.queue.index.index_service import IndexService
    from store_core.store.config.message_store_config import MessageStoreConfig
    from store_core.store.put.put_preparation import QueueOffsets
    from store_core.store.query.get_message import GetMessageResult, QueueUnit
    from store_core.store.store_life import DerivedStructures, StoreServices, StoreSetup

__all__ = ["MessageLookup", "StoreQueues", "StoreReading"]


class StoreQueues:
    """The queues of an open store; pending messages are dispatched before each query.

    * `queue_offsets`: The next index of each queue.
    """

    def __init__(self, setup: StoreSetup, derived: DerivedStructures, queue_offsets: QueueOffsets) -> None:
        self._is_read_only = setup.is_read_only
        self._is_batch_topic = setup.is_batch_topic
        self._derived = derived
        self._queue_offsets = queue_offsets

    def dispatch_now(self) -> None:
        """Dispatch all that may be dispatched to queues and index, and wait."""
        if self._derived.dispatch_behind_bytes > 0 and not self._is_read_only:
            self._derived.reput.run_once()

    def get_max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """Return the index one past a queue's last message; 0 if there is none."""
        if not committed:
            return self._queue_offsets.next_offset(topic, queue_id)
        self.dispatch_now()
        queue = self._derived.queues.get(topic, queue_id)
        return queue.max_offset_in_queue if queue is not None else 0

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the index of the first message still in a queue."""
        self.dispatch_now()
        queue = self._derived.queues.get(topic, queue_id)
        return queue.min_offset_in_queue if queue is not None else self.min_offset_of_unseen(topic)

    def min_offset_of_unseen(self, topic: str) -> int:
        """Return the first index of an unknown queue, which RocketMQ creates on request."""
        return -1 if self._is_batch_topic(topic) else 0


_ROUNDS: Final = 3
_ADDRESS_DIGITS: Final = {32: 8, 56: 32}
"""Hexadecimal digits of the address, by length of the message id; port and offset take 8 and 16 more."""


class MessageLookup:
    """Finds messages by key, id, offset and time."""

    def __init__(
        self, config: MessageStoreConfig, log: LogLookup, queues: ConsumeQueueStore, index: IndexService
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._release = config.release
        self._parser = PropertyParser.of_release(config.release)

    # ---- one message

    def look_message_by_offset(self, physical_offset: int) -> MessageExt | None:
        """Return the message whose record begins at an offset; None if none does."""
        record = self._log.look_message_by_offset(physical_offset)
        if record is None:
            return None
        return decode_message(record, 0, None, parser=self._parser, verify_crc=False)

    def look_message_by_id(self, msg_id: str) -> MessageExt | None:
        """Return the message with an offset message id (``MessageDecoder.decodeMessageId``), if it is there."""
        address = _ADDRESS_DIGITS.get(len(msg_id))
        try:
            offset = int(msg_id[-16:], 16) if address is not None and msg_id.isalnum() else -1
        except ValueError:
            offset = -1
        if not 0 <= offset < 1 << 63:
            raise InvalidOptionError(
                f"{msg_id!r} is not an offset message id: expected 32 or 56 hexadecimal digits that end in an offset. "
                "The unique key that producers get is not such an id: use query_message with it as the key."
            )
        return self.look_message_by_offset(offset)

    # ---- by key

    def query_message(self, topic: str, key: str, max_num: int, begin: int, end: int) -> QueryMessageResult:
        """Find messages through the index, as `DefaultMessageStore.query_message` describes."""
        result = QueryMessageResult(release=self._release)
        latest = end
        for _ in range(_ROUNDS):
            found = self._index.query_offset(topic, key, max_num, begin, latest)
            offsets = sorted(found.physical_offsets)
            if not offsets:
                break
            result.index_last_update_timestamp = found.index_last_update_timestamp
            result.index_last_update_physical_offset = found.index_last_update_physical_offset
            records = [self._log.look_message_by_offset(offset) for offset in offsets]
            if records[0] is not None:
                latest = self._log.pickup_store_timestamp(offsets[0], len(records[0]))
            result.message_buffers += [record for record in records if record is not None]
            if result.message_buffers or latest < begin:
                break
        return result

    # ---- by time

    def get_offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """Return the queue offset of the message stored at a time; 0 for a queue that does not exist.

        * `timestamp`: ms since 1970.
        * `boundary`: With release 5.3, selects the first message not before the time, or the last one not after it.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        return queue.get_offset_in_queue_by_time(
            timestamp, boundary, self._log.pickup_store_timestamp, self._log.min_offset
        )

    def get_message_store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message in a queue, ms; -1 if it is not there."""
        unit = self._unit(topic, queue_id, queue_offset)
        return self._log.pickup_store_timestamp(unit.physical_offset, unit.store_size) if unit is not None else -1

    def get_earliest_message_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the first message still in a queue, ms; -1 if there is none."""
        queue = self._queues.get(topic, queue_id)
        return self.get_message_store_timestamp(topic, queue_id, queue.min_offset_in_queue) if queue is not None else -1

    def get_commit_log_offset_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the physical offset of a message in a queue; 0 if it is not there, as RocketMQ does."""
        unit = self._unit(topic, queue_id, queue_offset)
        return unit.physical_offset if unit is not None else 0

    def _unit(self, topic: str, queue_id: int, queue_offset: int) -> QueueUnit | None:
        queue = self._queues.get(topic, queue_id)
        units = queue_units(queue, queue_offset) if queue is not None else None
        return next(units, None) if units is not None else None


class StoreReading:
    """The read operations of an open store.

    Undispatched messages are dispatched first, so that a reader sees everything put before.

    * `log`: Finds single records in the log.
    """

    def __init__(self, setup: StoreSetup, services: StoreServices, queues: StoreQueues) -> None:
        self._config = setup.config
        self._clock = setup.clock
        self._commit_log = services.commit_log
        self.log = LogLookup(services.commit_log.mapped_file_queue)
        self._derived = services.derived
        self._queues = queues

    @cached_property
    def _getter(self) -> MessageGetter:
        return MessageGetter(self._config, self.log, physical_memory())

    @cached_property
    def lookup(self) -> MessageLookup:
        """Finds single messages in the log, without dispatching first."""
        return MessageLookup(self._config, self.log, self._derived.queues, self._derived.index)

    @property
    def dispatched(self) -> MessageLookup:
        """The same for queries of queues and index, after dispatching everything put before."""
        self._queues.dispatch_now()
        return self.lookup

    def get_message(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int, message_filter: MessageFilter | None
    ) -> GetMessageResult | None:
        """Get messages of a queue and count the get, as `DefaultMessageStore.get_message` describes."""
        if not self._commit_log.running_flags.is_readable:
            return None
        begin = self._clock.now_ms()
        result = self._get_message(topic, queue_id, offset, max_msg_nums, message_filter)
        is_found = result.status is GetMessageStatus.FOUND
        self._commit_log.stats.add_get(self._clock.now_ms() - begin, result.message_count, is_found=is_found)
        return result

    def _get_message(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int, message_filter: MessageFilter | None
    ) -> GetMessageResult:
        self._queues.dispatch_now()
        queue = self._derived.queues.get(topic, queue_id)
        if queue is None:
            return self._getter.nothing_in(offset, smallest=self._queues.min_offset_of_unseen(topic))
        if isinstance(message_filter, MessageSelector):
            parser = PropertyParser.of_release(self._config.release)
            message_filter = (
                message_filter if message_filter.parser is parser else replace(message_filter, parser=parser)
            )
        return self._getter.get(queue, offset, max_msg_nums, message_filter)
