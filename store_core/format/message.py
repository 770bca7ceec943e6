# SPDX-License-Identifier: Apache-2.0
"""Messages as Python values."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from store_core.format import java_hash, properties
from store_core.format.sys_flag import CompressionType, TransactionType

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CRC_MASK", "MessageExt", "body_crc"]

CRC_MASK: Final = 0x7FFFFFFF


def body_crc(body: bytes | memoryview) -> int:
    """Give the checksum RocketMQ stores for a body: CRC-32 with the top bit cleared (``UtilAll.crc32``)."""
    return zlib.crc32(body) & CRC_MASK


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
        As stored: compressed if the sys_flag says so.
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
        """Hash of the tags, 0 without; see `store_core.format.java_hash.tags_code`."""
        return java_hash.tags_code(self.tags)

    @property
    def transaction_type(self) -> TransactionType:
        """What the record is to a transaction."""
        return TransactionType.of(self.sys_flag)

    @property
    def compression(self) -> CompressionType:
        """How the body is packed."""
        return CompressionType.of(self.sys_flag)
