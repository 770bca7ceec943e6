# SPDX-License-Identifier: Apache-2.0
"""A store as a broker serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.store.get_message import MessageGetter
from store_core.store.log_lookup import LogLookup
from store_core.store.message_lookup import MessageLookup

if TYPE_CHECKING:
    from store_core.format.message import Message, MessageExt
    from store_core.format.message_filter import MessageFilter
    from store_core.queue.consume_queue_store import ConsumeQueueStore
    from store_core.store.config import MessageStoreConfig
    from store_core.store.get_result import GetMessageResult
    from store_core.store.message_store import DefaultMessageStore
    from store_core.store.put_result import PutMessageResult
    from store_core.store.queue_unit import AnyQueue

__all__ = ["ServedStore"]

_MEMORY = 24 << 30


class ServedStore:
    """A store, and the reading half of it."""

    def __init__(self, store: DefaultMessageStore) -> None:
        self.store = store
        log = LogLookup(store.commit_log.mapped_file_queue)
        self._getter = MessageGetter(store.config, log, _MEMORY)
        self._lookup = MessageLookup(store.config, log, store.consume_queue_store, store.index_service)

    @property
    def config(self) -> MessageStoreConfig:
        return self.store.config

    @property
    def consume_queue_store(self) -> ConsumeQueueStore:
        return self.store.consume_queue_store

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult | None:
        del group
        return self._getter.get(self._queue(topic, queue_id), offset, max_msg_nums, message_filter)

    def look_message_by_offset(self, physical_offset: int) -> MessageExt | None:
        return self._lookup.look_message_by_offset(physical_offset)

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        return self._queue(topic, queue_id).min_offset_in_queue

    def get_max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        return self.store.get_max_offset_in_queue(topic, queue_id)

    def _queue(self, topic: str, queue_id: int) -> AnyQueue:
        """Find a queue, or make it, as RocketMQ does on every question about one."""
        return self.store.consume_queue_store.find_or_create(topic, queue_id)

    def put_message(self, message: Message) -> PutMessageResult:
        return self.store.put_message(message)
