# SPDX-License-Identifier: Apache-2.0
"""The next offsets of queues, and those of light queues.

The indexes are known only under the put lock and are stored in the record as a property, so it is encoded there.

RocketMQ 4.9: ``MultiDispatch``; 5.3: ``LmqDispatch``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    WAIT,
    PropertyMap,
    format_properties,
    to_utf8,
)
from store_core.format.record.delayed import may_be_delayed
from store_core.queue.dispatch.lmq_units import has_lists, is_light, split_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.format.message import Message
    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = ["LmqQueues", "QueueOffsets"]


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
