# SPDX-License-Identifier: Apache-2.0
"""The results of a get and of a query by key."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from store_core.format.properties import PropertyParser
from store_core.format.record.decode import decode_message
from store_core.format.releases.release import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store_core.format.message import MessageExt

__all__ = ["GetMessageResult", "GetMessageStatus", "QueryMessageResult"]


class GetMessageStatus(Enum):
    """Outcome of a get (RocketMQ: ``GetMessageStatus``)."""

    FOUND = "messages are there"
    NO_MATCHED_MESSAGE = "the filter matches none of the messages examined"
    MESSAGE_WAS_REMOVING = "the queue has units, but the log has no records for them"
    OFFSET_FOUND_NULL = "the queue has no unit at an offset between its first and last"
    OFFSET_OVERFLOW_BADLY = "the offset is beyond the queue's end"
    OFFSET_OVERFLOW_ONE = "the offset is the queue's end: no message yet"
    OFFSET_TOO_SMALL = "the offset is before the queue's first"
    NO_MATCHED_LOGIC_QUEUE = "no such queue"
    NO_MESSAGE_IN_QUEUE = "the queue is empty"
    OFFSET_RESET = "the group's offset was reset on the server"


def _decoded(records: Sequence[memoryview], release: str) -> Iterator[MessageExt]:
    parser = PropertyParser.of_release(release)
    for record in records:
        yield decode_message(record, 0, None, parser=parser, verify_crc=False)


@dataclass(slots=True)
class GetMessageResult:
    """Messages of a queue, as a consumer gets them (RocketMQ: ``GetMessageResult``).

    Attributes
    ----------
    status : GetMessageStatus
    next_begin_offset : int
        Where the next get should begin.
    min_offset, max_offset : int
        Bounds of the queue at the time of the get.
    message_buffers : list of memoryview
        Whole records as the log holds them, not copied; they stay valid when the segment is deleted.
    message_queue_offsets : list of int
        Their offsets in the queue; for an inner batch, the first.
    message_count : int
        Messages in the records; an inner batch has several.
    buffer_total_size : int
        Bytes of the records.
    suggest_pulling_from_slave : bool
        Whether the consumer is so far behind that its messages have likely left the page cache.
    filtered_count : int
        Units and records that the filter left out.
    """

    status: GetMessageStatus
    next_begin_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    message_buffers: list[memoryview] = field(default_factory=list)
    message_queue_offsets: list[int] = field(default_factory=list)
    message_count: int = 0
    buffer_total_size: int = 0
    suggest_pulling_from_slave: bool = False
    filtered_count: int = 0
    release: str = DEFAULT_RELEASE

    @property
    def messages(self) -> list[MessageExt]:
        """The records decoded; as in a broker, bodies are not checked."""
        return list(_decoded(self.message_buffers, self.release))

    def add(self, record: memoryview, queue_offset: int, messages: int) -> None:
        """Add a record."""
        self.message_buffers.append(record)
        self.message_queue_offsets.append(queue_offset)
        self.message_count += messages
        self.buffer_total_size += len(record)


@dataclass(slots=True)
class QueryMessageResult:
    """Messages found by key (RocketMQ: ``QueryMessageResult``).

    The index holds only hashes, so messages with other keys may be among them; clients filter these out.

    Attributes
    ----------
    message_buffers : list of memoryview
        Whole records, in log order.
    index_last_update_timestamp, index_last_update_physical_offset : int
        How far the index extended; 0 if nothing was found.
    """

    message_buffers: list[memoryview] = field(default_factory=list)
    index_last_update_timestamp: int = 0
    index_last_update_physical_offset: int = 0
    release: str = DEFAULT_RELEASE

    @property
    def messages(self) -> list[MessageExt]:
        """The records decoded; bodies are not checked."""
        return list(_decoded(self.message_buffers, self.release))

    @property
    def buffer_total_size(self) -> int:
        """Bytes of the records."""
        return sum(map(len, self.message_buffers))
