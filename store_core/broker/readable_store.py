# SPDX-License-Identifier: Apache-2.0
"""Interfaces of the stores that a broker serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from store_core.format.filter.message_selector import MessageFilter
    from store_core.format.message import Message
    from store_core.store.config.message_store_config import MessageStoreConfig
    from store_core.store.put.put_result import PutMessageResult
    from store_core.store.query.get_result import GetMessageResult

__all__ = ["ReadableStore", "ServedStore"]


class ReadableStore(Protocol):
    """A store that can serve consumers; `DefaultMessageStore` is one, whether opened for writing or not."""

    @property
    def config(self) -> MessageStoreConfig:
        """The store's configuration."""
        ...

    def get_message(  # noqa: PLR0913 -- RocketMQ's own
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None = None,
        /,
    ) -> GetMessageResult | None:
        """Get messages of a queue; None if the store is shut down or not readable."""
        ...

    def get_min_offset_in_queue(self, topic: str, queue_id: int, /) -> int:
        """Return the index of the first message of a queue."""
        ...

    def get_max_offset_in_queue(self, topic: str, queue_id: int, /) -> int:
        """Return the index after the last message of a queue."""
        ...


class ServedStore(ReadableStore, Protocol):
    """A store that also accepts messages."""

    def put_message(self, message: Message, /) -> PutMessageResult:
        """Put a message."""
        ...
