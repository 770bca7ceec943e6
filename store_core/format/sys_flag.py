# SPDX-License-Identifier: Apache-2.0
"""The bits of a record's ``sys_flag`` (Java: ``MessageSysFlag``)."""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag
from typing import Final


class MessageSysFlag(IntFlag):
    """Bits of ``sys_flag``.

    The transaction type is a number in bits 2 and 3, the compression type a number in bits 8 to 10; read them with
    `TransactionType.of` and `CompressionType.of`.
    """

    COMPRESSED_FLAG = 0x01
    MULTI_TAGS_FLAG = 0x02
    TRANSACTION_PREPARED_TYPE = 0x04
    TRANSACTION_COMMIT_TYPE = 0x08
    TRANSACTION_ROLLBACK_TYPE = 0x0C
    BORNHOST_V6_FLAG = 0x10
    STOREHOSTADDRESS_V6_FLAG = 0x20
    NEED_UNWRAP_FLAG = 0x40
    INNER_BATCH_FLAG = 0x80
    COMPRESSION_LZ4_TYPE = 0x100
    COMPRESSION_ZSTD_TYPE = 0x200
    COMPRESSION_ZLIB_TYPE = 0x300


TRANSACTION_MASK: Final = 0x0C
COMPRESSION_MASK: Final = 0x700
_COMPRESSION_SHIFT: Final = 8


class TransactionType(Enum):
    """A record's part in a transaction: ``sys_flag & 0x0C``."""

    NOT_TYPE = 0x00
    PREPARED_TYPE = 0x04
    COMMIT_TYPE = 0x08
    ROLLBACK_TYPE = 0x0C

    @classmethod
    def of(cls, sys_flag: int) -> TransactionType:
        """Return the transaction type in a `sys_flag`."""
        return cls(sys_flag & TRANSACTION_MASK)

    @property
    def is_queued(self) -> bool:
        """Whether such a record takes an index of its queue (RocketMQ 4.x and 5.x: ``CommitLog.doAppend``)."""
        return self in (TransactionType.NOT_TYPE, TransactionType.COMMIT_TYPE)


class CompressionType(IntEnum):
    """How a body is compressed: bits 8 to 10 of ``sys_flag`` (RocketMQ 4.9.4 and later).

    Type 0 on a compressed body is ZLIB, written by older clients; 4 to 7 are illegal.
    """

    NONE = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @classmethod
    def of(cls, sys_flag: int) -> CompressionType:
        """Return the compression type in a `sys_flag`.

        Raises
        ------
        ValueError
            If the type is 4 to 7 on a compressed body.
        """
        if not sys_flag & MessageSysFlag.COMPRESSED_FLAG:
            return cls.NONE
        bits = (sys_flag & COMPRESSION_MASK) >> _COMPRESSION_SHIFT
        return cls(bits) if bits else cls.ZLIB
