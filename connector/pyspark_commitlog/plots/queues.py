# SPDX-License-Identifier: Apache-2.0
"""The depth of a store's queues, and the lag of its consumer groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store_core.broker import ConsumerOffsetManager
from store_core.store.message_store import DefaultMessageStore

if TYPE_CHECKING:
    import os

    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = ["GroupLag", "QueueDepth", "QueueState", "group_lags", "queue_depths", "read_queues"]


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """A consume queue, from its first message that is still there to the one after the last."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    """What a consumer group has not consumed of a topic."""

    group: str
    topic: str
    messages: int  # messages between the committed offsets and the ends of the queues
    skipped: int
    """Messages that were deleted before the group consumed them: committed offsets before the queues' first ones."""
    oldest: int | None  # store time of the oldest message that is not consumed, ms; None if all are consumed


@dataclass(frozen=True, slots=True)
class QueueState:
    """Queues and groups of a store, and the store time of the last message of all queues, ms."""

    queues: tuple[QueueDepth, ...]
    lags: tuple[GroupLag, ...]
    last_time: int


def queue_depths(store: DefaultMessageStore) -> tuple[QueueDepth, ...]:
    """List the queues of an open store, by topic and id."""
    queues = store.consume_queue_store.queues()
    return tuple(
        QueueDepth(queue.topic, queue.queue_id, max(queue.min_offset_in_queue, 0), queue.max_offset_in_queue)
        for queue in queues
    )


def group_lags(store: DefaultMessageStore) -> tuple[GroupLag, ...]:
    """List the lags of consumer groups by ``config/consumerOffset.json``, the largest first.

    An offset after a queue's end, as a lost tail leaves it, counts as no lag.

    * `store`: An open store.
    """
    offsets = ConsumerOffsetManager(store.path)
    offsets.load()
    lags = []
    for key, committed in offsets.offset_table().items():
        topic, _, group = key.rpartition("@")
        lags.append(_lag(store, group, topic, committed))
    return tuple(sorted(lags, key=lambda lag: (-lag.messages, lag.group, lag.topic)))


def read_queues(path: str | os.PathLike[str], config: MessageStoreConfig | None = None) -> QueueState:
    """Open a store for reading, and return its queues and the lags of its groups."""
    with DefaultMessageStore.open(path, config, read_only=True) as store:
        queues = queue_depths(store)
        last = [
            store.get_message_store_timestamp(queue.topic, queue.queue_id, queue.max_offset - 1)
            for queue in queues
            if queue.max_offset > queue.min_offset
        ]
        return QueueState(queues, group_lags(store), max(last, default=0))


def _lag(store: DefaultMessageStore, group: str, topic: str, committed: dict[int, int]) -> GroupLag:
    behind = skipped = 0
    oldest: list[int] = []
    for queue_id, offset in committed.items():
        first = max(store.get_min_offset_in_queue(topic, queue_id), 0)
        begin, end = max(offset, first), store.get_max_offset_in_queue(topic, queue_id)
        skipped += begin - offset
        if begin < end:
            behind += end - begin
            oldest.append(store.get_message_store_timestamp(topic, queue_id, begin))
    return GroupLag(group, topic, behind, skipped, min(oldest, default=None))
