# SPDX-License-Identifier: Apache-2.0
"""Messages that were put, and what a store must report about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.format.sys_flag import TransactionType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core import DefaultMessageStore
    from store_core.format.message import MessageExt


_EVERYTHING: Final = 64
_EVER: Final = 1 << 62
"""End of a query, ms. The first entry of an index file may seem later than it is, by any time, see `IndexFile`."""


@dataclass(slots=True)
class Put:
    """A message that was put, as the log must have it."""

    topic: str
    queue_id: int
    sys_flag: int
    body: bytes
    keys: str
    queue_offset: int = 0
    offset: int = -1
    is_indexed: bool = True

    @property
    def is_queued(self) -> bool:
        return TransactionType.of(self.sys_flag).is_queued

    def equals(self, found: MessageExt) -> bool:
        same = (self.topic, self.queue_id, self.sys_flag, self.body, self.queue_offset)
        there = (found.topic, found.queue_id, found.sys_flag, found.body, found.queue_offset)
        return (
            same == there and found.properties.get("KEYS") == self.keys and self.offset in (-1, found.physical_offset)
        )


def following(puts: Sequence[Put], topic: str, queue_id: int) -> int:
    """Return the index of the next message of a queue."""
    return sum(put.is_queued and (put.topic, put.queue_id) == (topic, queue_id) for put in puts)


def check_queues(store: DefaultMessageStore, puts: Sequence[Put], there: Sequence[Put]) -> None:
    """Compare all queues with what was put, of which a part may be left."""
    for queue in {(put.topic, put.queue_id) for put in puts if put.is_queued}:
        wanted = [put for put in there if put.is_queued and (put.topic, put.queue_id) == queue]
        assert following(puts, *queue) == store.get_max_offset_in_queue(*queue)
        assert following(puts, *queue) == store.get_max_offset_in_queue(*queue, committed=False)
        if wanted:
            assert wanted[0].queue_offset == store.get_min_offset_in_queue(*queue)
        assert [(put.queue_offset, put.body) for put in wanted] == _served(store, *queue)


def _served(store: DefaultMessageStore, topic: str, queue_id: int) -> list[tuple[int, bytes]]:
    """Read a queue as a consumer does."""
    found: list[tuple[int, bytes]] = []
    offset = store.get_min_offset_in_queue(topic, queue_id)
    while True:
        result = store.get_message("group", topic, queue_id, offset, 5)
        assert result is not None
        if not result.message_buffers:
            return found
        found += [(each.queue_offset, each.body) for each in result.messages]
        assert [each.queue_offset for each in result.messages] == result.message_queue_offsets
        offset = result.next_begin_offset


def check_index(store: DefaultMessageStore, there: Sequence[Put]) -> None:
    """Look for every message by its key."""
    for put in there:
        if put.is_indexed and TransactionType.of(put.sys_flag) is not TransactionType.ROLLBACK_TYPE:
            found = store.query_message(put.topic, put.keys, _EVERYTHING, 0, _EVER).messages
            assert put.offset in [each.physical_offset for each in found]
