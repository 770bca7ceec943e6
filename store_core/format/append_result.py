# SPDX-License-Identifier: Apache-2.0
"""Outcomes of appends and puts under Java's names; expected ones are values, not exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["AppendMessageResult", "AppendMessageStatus", "PutMessageStatus"]


class AppendMessageStatus(Enum):
    """Outcome of an append (RocketMQ: ``AppendMessageStatus``, without ROCKSDB_ERROR)."""

    PUT_OK = "the record is in the file"
    END_OF_FILE = "no room: a blank record closed the file"
    MESSAGE_SIZE_EXCEEDED = "the record is larger than allowed (up to 4.9.0)"
    PROPERTIES_SIZE_EXCEEDED = "the properties are longer than 32,767 bytes (up to 4.9.0)"
    UNKNOWN_ERROR = "the file was full already, or the append failed"


class PutMessageStatus(Enum):
    """Outcome of a put (RocketMQ 5.3.3: ``PutMessageStatus``).

    Release 4.x spells two of them ``CREATE_MAPEDFILE_FAILED`` and ``OS_PAGECACHE_BUSY``. The store itself never returns
    PUT_TO_REMOTE_BROKER_FAIL, LMQ_CONSUME_QUEUE_NUM_EXCEEDED or WHEEL_TIMER_FLOW_CONTROL; hooks may.
    """

    PUT_OK = "in the log"
    FLUSH_DISK_TIMEOUT = "in the log, but not known to be on disk in time"
    FLUSH_SLAVE_TIMEOUT = "in the log, but not acknowledged by the replicas in time"
    SLAVE_NOT_AVAILABLE = "in the log, but no replica has kept up enough to wait for"
    SERVICE_NOT_AVAILABLE = "refused: the store is shut down, a slave, or not writeable"
    CREATE_MAPPED_FILE_FAILED = "no file to append to could be created"
    MESSAGE_ILLEGAL = "refused: the message violates a limit"
    PROPERTIES_SIZE_EXCEEDED = "refused: the properties are longer than 32,767 bytes"
    OS_PAGE_CACHE_BUSY = "refused: the append under way has held the lock too long"
    UNKNOWN_ERROR = "the append failed"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "refused: too few replicas are in sync"
    PUT_TO_REMOTE_BROKER_FAIL = "the broker that was asked instead failed"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "refused: too many light queues"
    WHEEL_TIMER_FLOW_CONTROL = "refused: too many messages are due at that time"
    WHEEL_TIMER_MSG_ILLEGAL = "refused: the deliver time is too far ahead or past"
    WHEEL_TIMER_NOT_ENABLE = "refused: the broker has no timer wheel"


@dataclass(frozen=True, slots=True)
class AppendMessageResult:
    """Result of an append to one file (RocketMQ: ``AppendMessageResult``).

    Attributes
    ----------
    status : AppendMessageStatus
    wrote_offset : int
        Physical offset of the first byte written.
    wrote_bytes : int
        Bytes by which the file's write position advanced; for END_OF_FILE all that was left, though only a head of
        eight bytes is written.
    msg_id : str
        Offset message id; for a batch one per message, joined by commas.
    store_timestamp : int
        Clock inside the put lock, ms.
    logics_offset : int
        Queue offset of the (first) message.
    msg_num : int
        Messages in the record or records.
    pagecache_rt : int
        How long the append took inside the lock, ms.
    """

    status: AppendMessageStatus
    wrote_offset: int = 0
    wrote_bytes: int = 0
    msg_id: str = ""
    store_timestamp: int = 0
    logics_offset: int = 0
    msg_num: int = 1
    pagecache_rt: int = 0

    @property
    def is_ok(self) -> bool:
        """Whether the bytes are in the file."""
        return self.status is AppendMessageStatus.PUT_OK
