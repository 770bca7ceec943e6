# SPDX-License-Identifier: Apache-2.0
"""Reading an open store: messages of a queue, by key, by id and by time.

RocketMQ: ``DefaultMessageStore``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from store_core.format.filter.message_selector import MessageSelector
from store_core.format.properties import PropertyParser
from store_core.store.memory import physical_memory
from store_core.store.query.get_message import MessageGetter
from store_core.store.query.get_result import GetMessageStatus
from store_core.store.query.log_lookup import LogLookup
from store_core.store.query.message_lookup import MessageLookup

if TYPE_CHECKING:
    from store_core.format.filter.message_selector import MessageFilter
    from store_core.store.query.get_result import GetMessageResult
    from store_core.store.query.store_queues import StoreQueues
    from store_core.store.store_services import StoreServices
    from store_core.store.store_setup import StoreSetup

__all__ = ["StoreReading"]


class StoreReading:
    """The read operations of an open store.

    Undispatched messages are dispatched first, so that a reader sees everything put before.

    Parameters
    ----------
    setup : StoreSetup
    services : StoreServices
    queues : StoreQueues

    Attributes
    ----------
    log : LogLookup
        Finds single records in the log.
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
