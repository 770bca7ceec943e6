# SPDX-License-Identifier: Apache-2.0
"""The request to index one record: its fields that queues and key index need."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from store_core.format.properties import TAGS, split_keys
from store_core.format.sys_flag import TRANSACTION_MASK, TransactionType

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["INDEX_TAG_PREFIX", "DispatchRequest", "MessageCheck"]

INDEX_TAG_PREFIX: Final = "T#"
"""What stands before tags in the key index (RocketMQ 5.4: ``MessageConst.INDEX_TAG_TYPE``)."""


@dataclass(frozen=True, slots=True)
class DispatchRequest:
    """One record as the dispatchers see it (RocketMQ: ``DispatchRequest``).

    Attributes
    ----------
    physical_offset : int
        The record's own field, which may differ from where it lies; bytes.
    message_size : int
        Bytes of the record.
    tags_code : int
        Hash of TAGS; for a delayed message its due time, ms.
    store_timestamp : int
        Ms since 1970.
    consume_queue_offset : int
        Its index in its queue.
    keys, unique_key : str or None
        Properties KEYS and UNIQ_KEY.
    message_base_offset, batch_size : int
        Its first queue index and number of messages: INNER_BASE and INNER_NUM for an inner batch, else the queue offset
        and 1.
    bit_map : bytes
        Which SQL92 consumers match, if that was computed (``ConsumeQueueExt``).
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
        """Physical offset of the record's end."""
        return self.physical_offset + self.message_size

    @property
    def is_queued(self) -> bool:
        """Whether it gets a unit in a consume queue: every record does, unless prepared or rolled back."""
        kind = self.sys_flag & TRANSACTION_MASK
        return kind in (TransactionType.NOT_TYPE.value, TransactionType.COMMIT_TYPE.value)

    def index_keys(self, *, with_tags: bool) -> list[str]:
        """Return what the key index has of it after ``topic#``, in RocketMQ's order (``IndexService.buildIndex``).

        Nothing for the rollback of a transaction; otherwise UNIQ_KEY, the keys in KEYS, and, if the release indexes
        tags, the whole of TAGS.
        """
        if TransactionType.of(self.sys_flag) is TransactionType.ROLLBACK_TYPE:
            return []
        unique = [] if self.unique_key is None else [self.unique_key]
        tags = self.properties.get(TAGS) if with_tags else None
        return unique + split_keys(self.keys or "") + ([INDEX_TAG_PREFIX + tags] if tags else [])


@dataclass(frozen=True, slots=True)
class MessageCheck:
    """The result of ``CommitLog.checkMessageAndReturnSize`` for a place in the log.

    Attributes
    ----------
    size : int
        The record's bytes. 0 with success: the file ends here with a blank record. On failure: -1, or the size that the
        record claims if its parts do not add up to it.
    request : DispatchRequest or None
        Only for a record.
    parsed : int
        Bytes read before the check ended, 0 if a Java exception ended it; if RocketMQ skips a record of the wrong size,
        it continues right after these.
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
        """Whether the file ends here with a blank record."""
        return self.is_success and self.size == 0
