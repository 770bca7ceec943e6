# SPDX-License-Identifier: Apache-2.0
"""What the log says of one record to those who index it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from store_core.format.sys_flag import TRANSACTION_MASK, TransactionType

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DispatchRequest", "MessageCheck"]


@dataclass(frozen=True, slots=True)
class DispatchRequest:
    """One record, as the dispatchers see it (RocketMQ: ``DispatchRequest``).

    Attributes
    ----------
    physical_offset : int
        The record's own field, which may differ from where it lies; bytes.
    message_size : int
        Bytes of the record.
    tags_code : int
        Hash of TAGS; of a delayed message the time it is due, ms.
    store_timestamp : int
        Ms since 1970.
    consume_queue_offset : int
        Its index in its queue.
    keys, unique_key : str or None
        Properties KEYS and UNIQ_KEY.
    message_base_offset, batch_size : int
        Its first index and number of messages: INNER_BASE and INNER_NUM of an inner batch, else the queue offset and 1.
    bit_map : bytes
        Which SQL92 consumers match, if that is computed (``ConsumeQueueExt``).
    """

    topic: str
    queue_id: int
    physical_offset: int
    message_size: int
    tags_code: int
    store_timestamp: int
    consume_queue_offset: int
    keys: str | None = None
    unique_key: str | None = None
    sys_flag: int = 0
    prepared_transaction_offset: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    message_base_offset: int = -1
    batch_size: int = 1
    bit_map: bytes = b""

    @property
    def end_offset(self) -> int:
        """Physical offset behind the record."""
        return self.physical_offset + self.message_size

    @property
    def is_queued(self) -> bool:
        """Whether it gets a unit in a consume queue: not if it is prepared or rolled back."""
        kind = self.sys_flag & TRANSACTION_MASK
        return kind in (TransactionType.NOT_TYPE.value, TransactionType.COMMIT_TYPE.value)


@dataclass(frozen=True, slots=True)
class MessageCheck:
    """What ``CommitLog.checkMessageAndReturnSize`` says of a place in the log.

    Attributes
    ----------
    is_success : bool
    size : int
        Of a record: its bytes. 0 with success: the file ends here, by a blank record. Of a failure: -1, or the size
        that the record claims where its parts do not add up to it.
    request : DispatchRequest or None
        Of a record only.
    parsed : int
        Bytes that were read before the check ended, 0 where that was by an exception of Java's; where a record of the
        wrong size is skipped, RocketMQ goes on right behind them.
    """

    is_success: bool
    size: int
    request: DispatchRequest | None = None
    parsed: int = 0

    @property
    def is_record(self) -> bool:
        """Whether there is a record."""
        return self.is_success and self.size > 0

    @property
    def is_blank(self) -> bool:
        """Whether the file ends here, by a blank record."""
        return self.is_success and self.size == 0
