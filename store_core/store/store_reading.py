# SPDX-License-Identifier: Apache-2.0
"""The reading half of a store: messages of a queue, and where its queues stand.

RocketMQ: ``DefaultMessageStore``. What is found by key, id or time is in `store_core.store.message_lookup`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from store_core.format.message_selector import MessageSelector
from store_core.format.properties import PropertyParser
from store_core.queue.time_search import BoundaryType
from store_core.store.get_message import MessageGetter
from store_core.store.get_result import GetMessageStatus
from store_core.store.log_lookup import LogLookup
from store_core.store.memory import physical_memory
from store_core.store.message_lookup import MessageLookup
from store_core.store.store_queues import StoreQueues

if TYPE_CHECKING:
    from store_core.files.clock import Clock
    from store_core.format.message import MessageExt
    from store_core.format.message_filter import MessageFilter
    from store_core.store.config import MessageStoreConfig
    from store_core.store.get_result import GetMessageResult, QueryMessageResult

__all__ = ["StoreReading"]


class StoreReading(StoreQueues):
    """What an open store answers.

    Messages that were put and are not dispatched yet are dispatched first, so that a reader sees what was put before.

    Attributes
    ----------
    config : MessageStoreConfig
    """

    config: MessageStoreConfig
    _clock: Clock

    # ---- the log

    @property
    def max_physical_offset(self) -> int:
        """Behind the last byte that readers see."""
        return self.commit_log.max_offset

    @property
    def min_physical_offset(self) -> int:
        """Of the oldest byte; -1 without a file."""
        return self.commit_log.min_offset

    # ---- messages of a queue

    @cached_property
    def _getter(self) -> MessageGetter:
        return MessageGetter(self.config, LogLookup(self.commit_log.mapped_file_queue), physical_memory())

    @cached_property
    def _lookup(self) -> MessageLookup:
        return MessageLookup(self.config, self._getter.log, self.consume_queue_store, self.index_service)

    def get_message(  # noqa: PLR0913 -- RocketMQ's own arguments
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult | None:
        """Get messages of a queue from an offset on, and count that in the store's `stats`.

        Parameters
        ----------
        group : str
            The consumer group; nothing depends on it.
        topic : str
        queue_id : int
        offset : int
            In the queue.
        max_msg_nums : int
            At most so many; limits in bytes, and what is likely not in memory, may make it fewer. The first message is
            given in any case.
        message_filter : MessageFilter, optional
            E.g. a `MessageSelector`. By tag, hashes are compared, so that a consumer has to compare the tags.

        Returns
        -------
        GetMessageResult or None
            None if the store may not be read at the moment. A queue that was never seen is an empty one.

        Raises
        ------
        InvalidOptionError
            With release 4.9, where RocketMQ raises too, if `max_msg_nums` is negative and there is something to get.
        """
        del group
        if not self.commit_log.running_flags.is_readable:
            return None
        begin = self._clock.now_ms()
        result = self._get_message(topic, queue_id, offset, max_msg_nums, message_filter)
        is_found = result.status is GetMessageStatus.FOUND
        self.commit_log.stats.add_get(self._clock.now_ms() - begin, result.message_count, is_found=is_found)
        return result

    def _get_message(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int, message_filter: MessageFilter | None
    ) -> GetMessageResult:
        self.dispatch_now()
        queue = self.consume_queue_store.get(topic, queue_id)
        if queue is None:
            return self._getter.nothing_in(offset, smallest=-1 if self.is_batch_topic(topic) else 0)
        if isinstance(message_filter, MessageSelector):
            parser = PropertyParser.of_release(self.config.release)
            message_filter = (
                message_filter if message_filter.parser is parser else replace(message_filter, parser=parser)
            )
        return self._getter.get(queue, offset, max_msg_nums, message_filter)

    # ---- single messages

    def look_message_by_offset(self, physical_offset: int) -> MessageExt | None:
        """See `MessageLookup.look_message_by_offset`."""
        return self._lookup.look_message_by_offset(physical_offset)

    def look_message_by_id(self, msg_id: str) -> MessageExt | None:
        """See `MessageLookup.look_message_by_id`."""
        return self._lookup.look_message_by_id(msg_id)

    def query_message(self, topic: str, key: str, max_num: int, begin: int, end: int) -> QueryMessageResult:
        """See `MessageLookup.query_message`."""
        self.dispatch_now()
        return self._lookup.query_message(topic, key, max_num, begin, end)

    # ---- times

    def get_offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """See `MessageLookup.get_offset_in_queue_by_time`."""
        self.dispatch_now()
        return self._lookup.get_offset_in_queue_by_time(topic, queue_id, timestamp, boundary)

    def get_message_store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """See `MessageLookup.get_message_store_timestamp`."""
        self.dispatch_now()
        return self._lookup.get_message_store_timestamp(topic, queue_id, queue_offset)

    def get_earliest_message_time(self, topic: str, queue_id: int) -> int:
        """See `MessageLookup.get_earliest_message_time`."""
        self.dispatch_now()
        return self._lookup.get_earliest_message_time(topic, queue_id)

    def get_commit_log_offset_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """See `MessageLookup.get_commit_log_offset_in_queue`."""
        self.dispatch_now()
        return self._lookup.get_commit_log_offset_in_queue(topic, queue_id, queue_offset)

    def get_message_total_in_queue(self, topic: str, queue_id: int) -> int:
        """Count the messages of a queue, by its bounds; one that was never seen has 0, with a batch topic 1."""
        return self.get_max_offset_in_queue(topic, queue_id) - self.get_min_offset_in_queue(topic, queue_id)
