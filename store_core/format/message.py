# SPDX-License-Identifier: Apache-2.0
"""A message, and what became of appending it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from store_core.format import java, properties
from store_core.format.layout import CompressionType, TransactionType
from store_core.format.properties import DELAY, WAIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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


_ARGUMENTS: Final = (properties.TAGS, properties.KEYS, WAIT, DELAY)


@dataclass(frozen=True, slots=True)
class MessageExt:
    """A stored message: the columns of a DataFrame row as attributes.

    Attributes
    ----------
    topic : str
    queue_id : int
    queue_offset : int
        Index in the queue; 0 for prepared and rolled-back transaction messages.
    physical_offset : int
        Position of the record in the log, in bytes.
    store_size : int
        Bytes of the record.
    store_timestamp, born_timestamp : int
        Milliseconds since 1970.
    store_host, born_host : str
        ``ip:port``, IPv6 as ``[ip]:port``.
    properties : mapping of str to str
    body : bytes
        As stored; compressed if a bit of sys_flag says so.
    body_crc, flag, sys_flag, reconsume_times, prepared_transaction_offset, magic_code : int
        As stored; signed.
    msg_id : str
        Offset message id, 32 or 56 hexadecimal digits.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    store_timestamp: int
    born_timestamp: int
    store_host: str
    born_host: str
    body: bytes
    body_crc: int
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int
    magic_code: int
    msg_id: str
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def tags(self) -> str | None:
        """Property TAGS."""
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> list[str] | None:
        """Property KEYS, split at blanks; None without the property."""
        keys = self.properties.get(properties.KEYS)
        return None if keys is None else properties.split_keys(keys)

    @property
    def unique_key(self) -> str | None:
        """Property UNIQ_KEY: the id that the producer's client made."""
        return self.properties.get(properties.UNIQ_KEY)

    @property
    def tags_code(self) -> int:
        """Hash of the tags, 0 without tags; see `store_core.format.java.tags_code`."""
        return java.tags_code(self.tags)

    @property
    def transaction_type(self) -> TransactionType:
        """The record's part in a transaction."""
        return TransactionType.of(self.sys_flag)

    @property
    def compression(self) -> CompressionType:
        """How the body is compressed."""
        return CompressionType.of(self.sys_flag)


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be put (RocketMQ: ``MessageExtBrokerInner``).

    Attributes
    ----------
    topic : str
    body : bytes or None
        Stored as it is; None is stored as empty if the release allows it.
    queue_id : int
    tags : str or None
        Becomes property TAGS.
    keys : str or sequence of str or None
        Becomes property KEYS; a sequence is joined with blanks.
    properties : mapping of str to str or None
        Further properties. A value of None is left out (release 4.3 stores the text ``null``).
    flag : int
        The application's own flag.
    sys_flag : int
        See `MessageSysFlag`; the store adds the bits of the host widths.
    born_timestamp : int or None
        Producer's clock, ms; None takes the store's clock at the put.
    born_host : tuple of str and int
        Producer's address and port.
    store_host : tuple of str and int, or None
        Broker's address and port; None takes the store's.
    reconsume_times : int
    prepared_transaction_offset : int
        Of a commit or rollback record: physical offset of the half message.
    delay_level : int or None
        Becomes property DELAY.
    wait_store_msg_ok : bool
        Whether the put waits for a synchronous flush and for replicas; False becomes property WAIT.
    properties_string : str or bytes or None
        The properties exactly as a client sent them; if given they are stored so, and the store only reads
        `properties`, or without them the parsed string.
    """

    topic: str
    body: bytes | None
    queue_id: int = 0
    tags: str | None = None
    keys: str | Sequence[str] | None = None
    properties: Mapping[str, str | None] | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    store_host: tuple[str, int] | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    delay_level: int | None = None
    wait_store_msg_ok: bool = True
    properties_string: str | bytes | None = None

    @property
    def has_named_properties(self) -> bool:
        """Whether any property is given other than by `properties_string`."""
        return not (
            self.properties is None
            and self.tags is None
            and self.keys is None
            and self.delay_level is None
            and self.wait_store_msg_ok
        )

    def may_have(self, *names: str) -> bool:
        """Return quickly whether any of some properties may be present: False is certain, True needs a check."""
        if self.has_named_properties:
            given = self.properties or ()
            return any(name in given or (name in _ARGUMENTS and self._has_argument(name)) for name in names)
        text = self.properties_string
        if text is None:
            return False
        return any(name in text if isinstance(text, str) else name.encode() in text for name in names)

    def _has_argument(self, name: str) -> bool:
        if name == DELAY:
            return self.delay_level is not None
        if name == WAIT:
            return not self.wait_store_msg_ok
        return (self.tags if name == properties.TAGS else self.keys) is not None

    def property_map(self) -> dict[str, str | None]:
        """Return the properties given by arguments, in the order in which a Java producer puts them.

        That is TAGS, KEYS, WAIT, then `properties`, then DELAY. An argument wins over an item of `properties`.
        """
        given: dict[str, str | None] = {}
        if self.tags is not None:
            given[properties.TAGS] = self.tags
        if self.keys is not None:
            joined = self.keys if isinstance(self.keys, str) else properties.KEY_SEPARATOR.join(self.keys)
            given[properties.KEYS] = joined
        if not self.wait_store_msg_ok:
            given[WAIT] = "false"
        result = given | {name: value for name, value in (self.properties or {}).items() if name not in given}
        if self.delay_level is not None:
            result[DELAY] = str(self.delay_level)
        return result
