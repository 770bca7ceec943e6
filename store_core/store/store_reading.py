# SPDX-License-Identifier: Apache-2.0
"""What a store answers to gets and look-ups.

RocketMQ: ``DefaultMessageStore``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from store_core.format.filter.message_selector import MessageFilter, MessageSelector
from store_core.format.properties import PropertyParser
from store_core.format.record.decode import decode_message
from store_core.queue.consume_queue.queue_search import BoundaryType, LogTimes
from store_core.store.get_message import GetMessageStatus, LogLookup, MessageGetter, QueryMessageResult, queue_units
from store_core.store.memory import physical_memory

if TYPE_CHECKING:
    from store_core.format.message import MessageExt
    from store_core.store.get_message import AnyQueue, GetMessageResult, QueueUnit
    from store_core.store.store_life import StoreServices, StoreSetup


_ROUNDS: Final = 3


class StoreReading:
    """The read operations of an open store.

    What was put before is dispatched to queues and index first, so that a reader sees it.
    """

    def __init__(self, setup: StoreSetup, services: StoreServices) -> None:
        self.config, self.is_read_only, self.is_batch_topic = setup.config, setup.is_read_only, setup.is_batch_topic
        self.commit_log, self._services, self._clock = services.commit_log, services, setup.clock
        self._records = LogLookup(self.commit_log.mapped_file_queue)
        self._parser = PropertyParser.of_release(setup.config.release)

    @cached_property
    def _getter(self) -> MessageGetter:
        return MessageGetter(self.config, self._records, physical_memory())

    # ---- queues

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log not yet dispatched to queues and index."""
        return self._services.dispatch_behind_bytes

    def dispatch_now(self) -> None:
        """Dispatch all that may be dispatched to queues and index, and wait; a service also does so continuously.

        With synchronous flush and release 5.3 that is what has been flushed, with write buffers what is committed.
        """
        if self.dispatch_behind_bytes > 0 and not self.is_read_only:
            self._services.reput.run_once()

    def get_max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """Return the index one past a queue's last readable message; 0 if there is none.

        With ``committed=False``, return the index the next message will get, which may be higher.
        """
        if not committed:
            return self.commit_log.queue_offsets.next_offset(topic, queue_id)
        queue = self._queue(topic, queue_id)
        return queue.max_offset_in_queue if queue is not None else 0

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the index of the first message still in a queue.

        For an unknown queue, which RocketMQ creates on request: 0, or -1 for a batch topic.
        """
        queue = self._queue(topic, queue_id)
        return queue.min_offset_in_queue if queue is not None else self._first_of_unknown(topic)

    def get_message_total_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the number of messages in a queue, by its bounds; 0 for an unknown queue, 1 if of a batch topic."""
        return self.get_max_offset_in_queue(topic, queue_id) - self.get_min_offset_in_queue(topic, queue_id)

    def _queue(self, topic: str, queue_id: int) -> AnyQueue | None:
        self.dispatch_now()
        return self._services.queues.get(topic, queue_id)

    def _first_of_unknown(self, topic: str) -> int:
        return -1 if self.is_batch_topic(topic) else 0

    def _unit(self, topic: str, queue_id: int, queue_offset: int) -> QueueUnit | None:
        queue = self._queue(topic, queue_id)
        units = queue_units(queue, queue_offset) if queue is not None else None
        return next(units, None) if units is not None else None

    # ---- getting

    def get_message(  # noqa: PLR0913 -- RocketMQ's own arguments
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult | None:
        """Get messages of a queue starting at an offset; the get is counted in `stats`.

        Parameters
        ----------
        group, topic, queue_id : str, str, int
            The group has no effect.
        offset : int
            In the queue.
        max_msg_nums : int
            Upper bound; byte limits, and messages that are probably not in memory, may reduce it. The first message is
            always returned.
        message_filter : MessageFilter, optional
            E.g. a `MessageSelector`. Tags are matched by hash only, so the consumer has to compare the tags themselves.

        Returns
        -------
        GetMessageResult or None
            None if the store currently can't be read. An unknown queue counts as empty.

        Raises
        ------
        InvalidOptionError
            With release 4.9, as RocketMQ does, if `max_msg_nums` is negative and there is something to get.
        """
        del group
        if not self.commit_log.running_flags.is_readable:
            return None
        begin = self._clock.now_ms()
        queue = self._queue(topic, queue_id)
        if queue is None:
            result = self._getter.nothing_in(offset, smallest=self._first_of_unknown(topic))
        else:
            if isinstance(message_filter, MessageSelector) and message_filter.parser is not self._parser:
                message_filter = replace(message_filter, parser=self._parser)
            result = self._getter.get(queue, offset, max_msg_nums, message_filter)
        is_found = result.status is GetMessageStatus.FOUND
        self.commit_log.stats.add_get(self._clock.now_ms() - begin, result.message_count, is_found=is_found)
        return result

    # ---- one message

    def look_message_by_offset(self, physical_offset: int) -> MessageExt | None:
        """Return the message whose record begins at a physical offset; None if none does."""
        record = self._records.look_message_by_offset(physical_offset)
        if record is None:
            return None
        return decode_message(record, 0, None, parser=self._parser, verify_crc=False)

    def select_one_message_by_offset(self, physical_offset: int, size: int) -> memoryview | None:
        """Return a view of the record of `size` bytes at a physical offset; None if there is none of that size."""
        return self._records.get_message(physical_offset, size)

    # ---- by key

    def query_message(self, topic: str, key: str, max_num: int, begin: int, end: int) -> QueryMessageResult:
        """Find messages by key or unique key, through the index.

        Parameters
        ----------
        topic, key : str
        max_num : int
            How many of the newest to return at most; capped at ``maxMsgsNumBatch``.
        begin, end : int
            Store times in ms, both inclusive; the index has a resolution of one second.
        """
        self.dispatch_now()
        result = QueryMessageResult(release=self.config.release)
        latest = end
        for _ in range(_ROUNDS):
            found = self._services.index.query_offset(topic, key, max_num, begin, latest)
            offsets = sorted(found.physical_offsets)
            if not offsets:
                break
            result.index_last_update_timestamp = found.index_last_update_timestamp
            result.index_last_update_physical_offset = found.index_last_update_physical_offset
            records = [self._records.look_message_by_offset(offset) for offset in offsets]
            if records[0] is not None:
                latest = self._records.pickup_store_timestamp(offsets[0], len(records[0]))
            result.message_buffers += [record for record in records if record is not None]
            if result.message_buffers or latest < begin:
                break
        return result

    # ---- by time

    def get_offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """Return the queue offset of the message stored at a time in ms; 0 for a queue that does not exist.

        With release 5.3, `boundary` selects the first message not before the time, or the last one not after it.
        """
        queue = self._queue(topic, queue_id)
        if queue is None:
            return 0
        records = self._records
        log = LogTimes(records.pickup_store_timestamp, records.min_offset)
        return queue.get_offset_in_queue_by_time(timestamp, boundary, log)

    def get_message_store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message in a queue, ms; -1 if it is not there."""
        unit = self._unit(topic, queue_id, queue_offset)
        return self._records.pickup_store_timestamp(unit.physical_offset, unit.store_size) if unit is not None else -1

    def get_earliest_message_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the first message still in a queue, ms; -1 if there is none."""
        queue = self._queue(topic, queue_id)
        return self.get_message_store_timestamp(topic, queue_id, queue.min_offset_in_queue) if queue is not None else -1

    def get_commit_log_offset_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the physical offset of a message in a queue; 0 if it is not there, as RocketMQ does."""
        unit = self._unit(topic, queue_id, queue_offset)
        return unit.physical_offset if unit is not None else 0
