# SPDX-License-Identifier: Apache-2.0
"""A consumer in the process, over what it reads of a store.

To read the messages of a queue, from where the group left off::

    with DefaultMessageStore.open(path, read_only=True) as store:
        for message in follow(store, "billing", "orders", 0):
            print(message.queue_offset, message.body)

To keep the consumed offsets, and wait for more messages until the event is set::

    offsets = ConsumerOffsetManager(store.path)
    offsets.load()
    waiting = Waiting()
    for message in follow(store, "billing", "orders", 0, offsets=offsets, waiting=waiting):
        handle(message)              # when the next message is asked for, this one counts as consumed
    offsets.persist()
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Final

from store_core.broker.consumer_offset import NO_OFFSET, ConsumerOffsetManager
from store_core.files.clock import Clock, SystemClock
from store_core.format.filter.message_selector import MessageSelector
from store_core.store.get_message import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.format.message import MessageExt
    from store_core.store.message_store import DefaultMessageStore


_LOG: Final = logging.getLogger("store_core")

_CLIENT: Final = "this process"


@dataclass(frozen=True, slots=True)
class Waiting:
    """How to wait for messages at the end of a queue.

    Attributes
    ----------
    seconds : float
        Pause between two checks.
    stop : Event
        Set it, from another thread, to end the waiting and the loop.
    clock : Clock
    """

    seconds: float = 0.1
    stop: Event = field(default_factory=Event)
    clock: Clock = field(default_factory=SystemClock)


def follow(  # noqa: PLR0913 -- which queue, from where, and what of it
    store: DefaultMessageStore,
    group: str,
    topic: str,
    queue_id: int,
    *,
    begin: int | None = None,
    offsets: ConsumerOffsetManager | None = None,
    selector: MessageSelector = MessageSelector.NONE,
    max_msg_nums: int = 32,
    waiting: Waiting | None = None,
) -> Iterator[MessageExt]:
    """Yield the messages of a queue, one after the other.

    Messages deleted from the store are skipped, as by a consumer that is told that its offset has moved. Bodies are as
    stored, and an inner batch is one message.

    Parameters
    ----------
    store : DefaultMessageStore
        E.g. a `DefaultMessageStore`. One opened read-only gets no new messages.
    group, topic : str
    queue_id : int
    begin : int, optional
        Index of the first message to return. By default the group continues where it left off according to `offsets`,
        or else begins with the first existing message.
    offsets : ConsumerOffsetManager, optional
        Records what is consumed, and supplies resets. It is not persisted here.
    selector : MessageSelector
        Only matching messages are returned; tags are also compared as text.
    max_msg_nums : int
        Most messages to get at a time.
    waiting : Waiting, optional
        How to wait at the queue's end; by default the iteration ends there.

    Notes
    -----
    A message counts as consumed once the next one is requested, so one whose handling fails is returned again.
    """
    loop = _Loop(store, group, topic, queue_id, offsets, selector, max_msg_nums)
    loop.position = loop.first_position() if begin is None else begin
    while True:
        result = loop.pull()
        if result is None:
            return
        if result.message_buffers:
            yield from loop.consume(result)
        elif not loop.pass_over(result) and (waiting is None or waiting.clock.wait(waiting.stop, waiting.seconds)):
            return


@dataclass(slots=True)
class _Loop:
    """The position of a loop in its queue."""

    _store: DefaultMessageStore
    _group: str
    _topic: str
    _queue_id: int
    _offsets: ConsumerOffsetManager | None
    _selector: MessageSelector
    _most: int
    position: int = 0

    def first_position(self) -> int:
        """Return where the group left off, or the first message."""
        offset = NO_OFFSET
        if self._offsets is not None:
            offset = self._offsets.query_offset(self._group, self._topic, self._queue_id)
        return self._store.get_min_offset_in_queue(self._topic, self._queue_id) if offset < 0 else offset

    def pull(self) -> GetMessageResult | None:
        """Get the next messages, after applying any reset; None if the store no longer returns any."""
        if self._offsets is not None:
            reset = self._offsets.query_then_erase_reset_offset(self._topic, self._group, self._queue_id)
            self.position = self.position if reset is None else reset
        wanted = None if self._selector.is_all else self._selector
        return self._store.get_message(self._group, self._topic, self._queue_id, self.position, self._most, wanted)

    def consume(self, result: GetMessageResult) -> Iterator[MessageExt]:
        """Yield messages; each one is committed when the next is requested."""
        ends = [*result.message_queue_offsets[1:], result.next_begin_offset]
        for message, end in zip(result.messages, ends, strict=True):
            if self._selector.sql is not None or self._selector.tags.is_matched_by_tags(message.tags):
                yield message
            self._move(end)

    def pass_over(self, result: GetMessageResult) -> bool:
        """Continue where the store says; False if there is nowhere to continue."""
        if result.next_begin_offset == self.position or result.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE:
            return False
        if result.status is not GetMessageStatus.NO_MATCHED_MESSAGE:
            _LOG.warning(
                "%s of %s, queue %d, at %d: continues at %d",
                result.status.name, self._topic, self._queue_id, self.position, result.next_begin_offset,
            )  # fmt: skip
        self._move(result.next_begin_offset)
        return True

    def _move(self, offset: int) -> None:
        self.position = offset
        if self._offsets is not None:
            self._offsets.commit_offset(_CLIENT, self._group, self._topic, self._queue_id, offset)
