# SPDX-License-Identifier: Apache-2.0
"""The bytes of a store: one table for records, units, index, timers and what is in a RocksDB.

Sizes, positions, numpy dtypes and ``docs/FORMAT.md`` derive from it; no other module contains a byte position. All
integers are big-endian and signed, as Java writes them, and there are no gaps between fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag
from typing import Final

import numpy as np


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


class MagicCode(IntEnum):
    """The second field of every record (Java: ``MessageDecoder.MESSAGE_MAGIC_CODE`` and its relatives)."""

    MESSAGE_V1 = -626843481  # 0xDAA320A7
    MESSAGE_V2 = -626843477  # 0xDAA320AB: topic length in two bytes, RocketMQ 5.1.0 and later
    BLANK = -875286124  # 0xCBD43194: the rest of the file holds nothing

    @property
    def topic_length_size(self) -> int:
        """Size of the topic length field in a record of this kind, in bytes."""
        return 2 if self is MagicCode.MESSAGE_V2 else 1


_HOST: Final = "host"
"""Type of an address field: 4 or 16 address bytes, depending on a bit of the sys_flag, and a four-byte port."""

HOST_V4: Final = np.dtype([("address", "V4"), ("port", ">i4")])
HOST_V6: Final = np.dtype([("address", "V16"), ("port", ">i4")])


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record or unit."""

    name: str  # name of the dtype's field and, if there is one, of the column
    java_name: str  # RocketMQ's name for the field
    type: str  # numpy type code in stored byte order, or ``"host"``
    doc: str  # its content, in one line
    v6_flag: MessageSysFlag | None = None  # for hosts, the sys_flag bit that widens the address to 16 bytes

    def dtype(self, sys_flag: int = 0) -> np.dtype[np.void] | np.dtype[np.generic]:
        """Return the field's dtype in a record of this `sys_flag`."""
        if self.v6_flag is None:
            return np.dtype(self.type)
        return HOST_V6 if sys_flag & self.v6_flag else HOST_V4


@dataclass(frozen=True, slots=True)
class Unit:
    """A named run of fields: one kind of record, unit or header, and what follows it."""

    name: str
    java_name: str
    doc: str
    fields: tuple[Field, ...]
    tail: str = ""


MESSAGE_HEAD: Final = Unit(
    "message_head",
    "CommitLog.DefaultAppendMessageCallback / MessageExtEncoder",
    "Fixed part of a message record in commitlog/. Its width depends on two bits of sys_flag: 88 bytes, 100 with one "
    "IPv6 host, 112 with two.",
    (
        Field("total_size", "TOTALSIZE", ">i4", "bytes of the whole record, itself included"),
        Field("magic_code", "MAGICCODE", ">i4", "record kind: 0xDAA320A7 V1, 0xDAA320AB V2, 0xCBD43194 blank"),
        Field("body_crc", "BODYCRC", ">i4", "CRC-32 of the body as stored, top bit cleared; 0 without a body"),
        Field("queue_id", "QUEUEID", ">i4", "queue of the topic"),
        Field("flag", "FLAG", ">i4", "the application's own flag, opaque"),
        Field("queue_offset", "QUEUEOFFSET", ">i8", "index in the queue; 0 for prepared and rolled-back records"),
        Field("physical_offset", "PHYSICALOFFSET", ">i8", "position of the record's first byte in the log"),
        Field(
            "sys_flag", "SYSFLAG", ">i4", "bits: compression, transaction type, host widths, batch; see MessageSysFlag"
        ),
        Field("born_timestamp", "BORNTIMESTAMP", ">i8", "producer's clock, ms"),
        Field("born_host", "BORNHOST", _HOST, "producer's address", MessageSysFlag.BORNHOST_V6_FLAG),
        Field("store_timestamp", "STORETIMESTAMP", ">i8", "broker's clock inside the put lock, ms"),
        Field("store_host", "STOREHOSTADDRESS", _HOST, "broker's address", MessageSysFlag.STOREHOSTADDRESS_V6_FLAG),
        Field("reconsume_times", "RECONSUMETIMES", ">i4", "deliveries that failed before this copy"),
        Field(
            "prepared_transaction_offset",
            "PreparedTransactionOffset",
            ">i8",
            "physical offset of the half message, in a commit record; else 0",
        ),
        Field("body_length", "BODYLENGTH", ">i4", "bytes of body that follow"),
    ),
    tail="body; topic length (V1: i8, V2: i16) and topic in UTF-8; properties length (i16) and properties in UTF-8",
)

BLANK_RECORD: Final = Unit(
    "blank_record",
    "CommitLog.BLANK_MAGIC_CODE",
    "Closes a segment file. The bytes after its first eight are not data.",
    (
        Field("total_size", "TOTALSIZE", ">i4", "bytes left in the file, these eight included"),
        Field("magic_code", "MAGICCODE", ">i4", "0xCBD43194"),
    ),
)

BATCH_ITEM_HEAD: Final = Unit(
    "batch_item_head",
    "MessageDecoder.encodeMessage",
    "One message inside the body of an inner batch, as the client encoded it.",
    (
        Field("total_size", "TOTALSIZE", ">i4", "bytes of the item, itself included"),
        Field("magic_code", "MAGICCODE", ">i4", "0, ignored"),
        Field("body_crc", "BODYCRC", ">i4", "0, ignored"),
        Field("flag", "FLAG", ">i4", "the application's own flag"),
        Field("body_length", "BODYLENGTH", ">i4", "bytes of body that follow"),
    ),
    tail="body; properties length (i16) and properties in UTF-8",
)

CONSUME_QUEUE_UNIT: Final = Unit(
    "consume_queue_unit",
    "ConsumeQueue.CQ_STORE_UNIT_SIZE",
    "One message of a queue, in consumequeue/TOPIC/QUEUE/.",
    (
        Field("physical_offset", "offset", ">i8", "position of the record in the log"),
        Field("store_size", "size", ">i4", "bytes of the record; 0x7FFFFFFF with offset 0 is a filler"),
        Field("tags_code", "tagsCode", ">i8", "hash of the tags, deliver time (delayed) or address in the extension"),
    ),
)

BATCH_CONSUME_QUEUE_UNIT: Final = Unit(
    "batch_consume_queue_unit",
    "BatchConsumeQueue.CQ_STORE_UNIT_SIZE",
    "One record of a BatchCQ topic, in batchconsumequeue/TOPIC/QUEUE/ (RocketMQ 5.0 and later).",
    (
        Field("physical_offset", "offset", ">i8", "position of the record in the log"),
        Field("store_size", "size", ">i4", "bytes of the record"),
        Field("tags_code", "tagsCode", ">i8", "hash of the tags"),
        Field("store_timestamp", "storeTime", ">i8", "store time of the record, ms"),
        Field("msg_base_offset", "msgBaseOffset", ">i8", "queue offset of the batch's first message"),
        Field("batch_size", "batchSize", ">i2", "messages in the batch"),
        Field("compacted_offset", "compactedOffset", ">i4", "-1 unless compacted"),
        Field("reserved", "reserved", ">i4", "0"),
    ),
)

CONSUME_QUEUE_EXT_UNIT: Final = Unit(
    "consume_queue_ext_unit",
    "ConsumeQueueExt.CqExtUnit",
    "What did not fit into a queue unit, in consumequeue_ext/TOPIC/QUEUE/. A size of 0xFFFF ends a file early.",
    (
        Field("size", "size", ">i2", "bytes of the unit, itself included"),
        Field("tags_code", "tagsCode", ">i8", "hash of the tags"),
        Field("msg_store_time", "msgStoreTime", ">i8", "store time of the record, ms"),
        Field("bit_map_size", "bitMapSize", ">i2", "bytes of filter bit map that follow"),
    ),
    tail="filter bit map",
)

ROCKSDB_QUEUE_NAME: Final = Unit(
    "rocksdb_queue_name",
    "RocksDBConsumeQueueTable.CQ_UNIT_KEY / RocksDBConsumeQueueOffsetTable",
    "How keys begin in a RocksDB with queues (storeType=defaultRocksDB, RocketMQ 5.2 and later).",
    (
        Field("topic_length", "topicBytes.length", ">i4", "bytes of the topic"),
        Field("separator", "CTRL_1", ">i1", "1"),
    ),
    tail="the topic; in column family `offset` the byte 1, then `max` or `min`, the byte 1 and the queue id (i4)",
)

ROCKSDB_QUEUE_PLACE: Final = Unit(
    "rocksdb_queue_place",
    "RocksDBConsumeQueueTable.buildCQKeyByteBuffer",
    "How the key of a unit ends, after the topic, in column family `default`.",
    (
        Field("before_queue_id", "CTRL_1", ">i1", "1"),
        Field("queue_id", "queueId", ">i4", "queue of the topic"),
        Field("before_queue_offset", "CTRL_1", ">i1", "1"),
        Field("queue_offset", "cqOffset", ">i8", "index in the queue"),
    ),
)

ROCKSDB_QUEUE_UNIT: Final = Unit(
    "rocksdb_queue_unit",
    "RocksDBConsumeQueueTable.CQ_UNIT_SIZE",
    "One message of a queue: a value in column family `default`.",
    (
        *CONSUME_QUEUE_UNIT.fields,
        Field("store_timestamp", "storeTime", ">i8", "store time of the record, ms"),
    ),
)

ROCKSDB_QUEUE_BOUND: Final = Unit(
    "rocksdb_queue_bound",
    "RocksDBConsumeQueueOffsetTable.OFFSET_VALUE_LENGTH",
    "A queue's last (`max`) or first (`min`) unit: a value in column family `offset`.",
    (
        Field("physical_offset", "phyOffset", ">i8", "position of the record in the log"),
        Field("queue_offset", "cqOffset", ">i8", "index in the queue"),
    ),
)

DLEDGER_ENTRY_HEAD: Final = Unit(
    "dledger_entry_head",
    "DLedgerEntry",
    "What precedes each record in a DLedger log, dledger-MEMBER/data/ (RocketMQ 4.5 and later). A magic of -1 ends "
    "the file, and the size is then that of the rest of the file.",
    (
        Field("magic", "magic", ">i4", "1; -1 if the rest of the file holds nothing"),
        Field("size", "size", ">i4", "bytes of the entry: this head, and the record"),
        Field("index", "index", ">i8", "number of the entry in the log, without gaps"),
        Field("term", "term", ">i8", "term of the leader that appended it; never less than that of the entry before"),
        Field("position", "pos", ">i8", "position of the entry's first byte in the log"),
        Field("channel", "channel", ">i4", "0, ignored"),
        Field("chain_crc", "chainCrc", ">i4", "0, ignored"),
        Field("body_crc", "bodyCrc", ">i4", "0, ignored"),
        Field("body_length", "bodyLength", ">i4", "bytes of the record that follows"),
    ),
    tail="the record, whose physical_offset is its own position: 48 bytes after the entry's",
)

INDEX_HEADER: Final = Unit(
    "index_header",
    "IndexHeader",
    "First 40 bytes of an index file; the hash slots (i4 each) and the entries follow.",
    (
        Field("begin_timestamp", "beginTimestamp", ">i8", "store time of the first entry, ms"),
        Field("end_timestamp", "endTimestamp", ">i8", "store time of the last entry, ms"),
        Field("begin_physical_offset", "beginPhyOffset", ">i8", "position of the first entry's record"),
        Field("end_physical_offset", "endPhyOffset", ">i8", "position of the last entry's record"),
        Field("hash_slot_count", "hashSlotCount", ">i4", "slots in use (RocketMQ 4.7.0 and before: entries put)"),
        Field("index_count", "indexCount", ">i4", "number of the next entry; starts at 1"),
    ),
    tail="hash slots, index units",
)

INDEX_UNIT: Final = Unit(
    "index_unit",
    "IndexFile.indexSize",
    "One key of one message.",
    (
        Field("key_hash", "keyHash", ">i4", "absolute hash of topic#key"),
        Field("physical_offset", "phyOffset", ">i8", "position of the record in the log"),
        Field("time_diff", "timeDiff", ">i4", "seconds after the header's begin_timestamp"),
        Field("previous_index", "prevIndex", ">i4", "entry before it in the slot's chain; 0 ends the chain"),
    ),
)

CHECKPOINT: Final = Unit(
    "checkpoint",
    "StoreCheckpoint",
    "First bytes of the checkpoint file (4,096 bytes).",
    (
        Field("physic_msg_timestamp", "physicMsgTimestamp", ">i8", "store time up to which the log is flushed, ms"),
        Field("logics_msg_timestamp", "logicsMsgTimestamp", ">i8", "the same for the queues"),
        Field("index_msg_timestamp", "indexMsgTimestamp", ">i8", "the same for the index"),
        Field("master_flushed_offset", "masterFlushedOffset", ">i8", "RocketMQ 5.0 and later, else 0"),
        Field("confirm_physical_offset", "confirmPhyOffset", ">i8", "RocketMQ 5.1.1 and later, else 0"),
        Field(
            "logics_physical_offset",
            "logicsPhysicalOffset",
            ">i8",
            "RocketMQ 5.5.0: offset of a record up to which the queues are flushed, else 0",
        ),
    ),
)

UNITS: Final = (
    MESSAGE_HEAD,
    BLANK_RECORD,
    BATCH_ITEM_HEAD,
    CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_EXT_UNIT,
    BATCH_CONSUME_QUEUE_UNIT,
    ROCKSDB_QUEUE_NAME,
    ROCKSDB_QUEUE_PLACE,
    ROCKSDB_QUEUE_UNIT,
    ROCKSDB_QUEUE_BOUND,
    INDEX_HEADER,
    INDEX_UNIT,
    CHECKPOINT,
    DLEDGER_ENTRY_HEAD,
)


def _dtype(unit: Unit, v6_bits: int) -> np.dtype[np.void]:
    return np.dtype([(field.name, field.dtype(v6_bits)) for field in unit.fields])


def field_position(dtype: np.dtype[np.void], name: str) -> int:
    """Return the position of a field in its unit, in bytes."""
    if dtype.fields is None:
        raise TypeError(f"{dtype} has no fields")
    return dtype.fields[name][1]


def unit_dtype(unit: Unit) -> np.dtype[np.void]:
    """Return the packed, big-endian dtype of a unit of fixed width."""
    return _dtype(unit, 0)


V6_BITS: Final = int(MessageSysFlag.BORNHOST_V6_FLAG | MessageSysFlag.STOREHOSTADDRESS_V6_FLAG)
"""Bits of a sys_flag that the width of a head depends on."""

_HEAD_DTYPES: Final = {bits: _dtype(MESSAGE_HEAD, bits) for bits in (0, *MessageSysFlag(V6_BITS), V6_BITS)}


def head_dtype(sys_flag: int = 0) -> np.dtype[np.void]:
    """Return the dtype of a message record's head.

    * `sys_flag`: Only the two host bits matter: 88 bytes with neither, 100 with one of them, 112 with both.
    """
    return _HEAD_DTYPES[int(sys_flag) & V6_BITS]


def head_size(sys_flag: int = 0) -> int:
    """Return the bytes from a record's start to its body."""
    return head_dtype(sys_flag).itemsize


HEAD_SIZES: Final = np.array([head_size(bits) for bits in range(V6_BITS + 1)], np.int64)
"""Sizes of heads by the host bits of their sys_flag."""

MIN_HEAD_SIZE: Final = head_size()
MAX_HEAD_SIZE: Final = head_size(V6_BITS)
MIN_RECORD_SIZE: Final = MIN_HEAD_SIZE + 1 + 2
"""Bytes of a V1 record with no body, topic or properties: the head and the two length fields."""

BLANK_SIZE: Final = unit_dtype(BLANK_RECORD).itemsize
"""Bytes of a blank record's head, for which a writer leaves room at the end of every segment."""


TIMER_LOG_UNIT: Final = Unit(
    "timer_log_unit",
    "TimerLog.UNIT_SIZE",
    "One timer, in timerlog/. A file ends with a size (i4), 8 zeros, and the magic code of a blank record.",
    (
        Field("size", "size", ">i4", "bytes of the unit"),
        Field("previous_position", "prev pos", ">i8", "unit before it in the same slot; -1 for the first"),
        Field("magic", "magic value", ">i4", "bits: 1 a timer, 2 to be put again later, 4 cancels another"),
        Field("write_timestamp", "curr write time", ">i8", "when it was put, ms, a multiple of the wheel's precision"),
        Field("delay", "delayed time", ">i4", "ms from then until the time of its slot"),
        Field("physical_offset", "offsetPy", ">i8", "position of the timer's record in the log"),
        Field("store_size", "sizePy", ">i4", "bytes of the record"),
        Field("topic_hash", "hash code of real topic", ">i4", "Java hash of the topic it will be delivered to"),
        Field("reserved", "reserved value", ">i8", "0"),
    ),
)

TIMER_SLOT: Final = Unit(
    "timer_slot",
    "Slot.SIZE",
    "All timers of one time, in timerwheel. The slot of a time is its number modulo that of the slots.",
    (
        Field("time", "delayed time", ">i8", "in units of the precision, a second unless configured; 0 if never used"),
        Field("first_position", "firstPos", ">i8", "first unit in timerlog; -1 for none"),
        Field("last_position", "lastPos", ">i8", "last unit in timerlog; -1 for none"),
        Field("timers", "num", ">i4", "timers, less those that cancel"),
        Field("magic", "magic", ">i4", "0"),
    ),
)

TIMER_UNITS: Final = (TIMER_LOG_UNIT, TIMER_SLOT)


STORED_INDEX_KEY: Final = Unit(
    "stored_index_key",
    "IndexRocksDBRecord.getKeyBytes",
    "How keys begin in column family `default` of rocksdbstore/ (indexRocksDBEnable).",
    (Field("hour", "storeTime", ">i8", "store time rounded down to an hour, ms"),),
    tail="`@topic@K@key@UNIQ_KEY@`, `@topic@T@tags@UNIQ_KEY@` or `@topic@U@UNIQ_KEY@`; the physical offset (i8)",
)

STORED_INDEX: Final = Unit(
    "stored_index",
    "IndexRocksDBRecord.getValueBytes",
    "One key of one message: a value in column family `default`.",
    (Field("store_timestamp", "storeTime", ">i8", "store time of the record, ms"),),
)

STORED_TIMER_KEY: Final = Unit(
    "stored_timer_key",
    "TimerRocksDBRecord.getKeyBytes",
    "How keys begin in column family `timer` of rocksdbstore/ (timerRocksDBEnable).",
    (Field("due_timestamp", "delayTime", ">i8", "when the timer is due: TIMER_OUT_MS"),),
    tail="UNIQ_KEY",
)

STORED_TIMER: Final = Unit(
    "stored_timer",
    "TimerRocksDBRecord.getValueBytes",
    "One pending timer: a value in column family `timer`.",
    (
        Field("store_size", "sizePy", ">i4", "bytes of the timer's record"),
        Field("physical_offset", "offsetPy", ">i8", "position of that record in the log"),
    ),
)

STORED_HALF_KEY: Final = Unit(
    "stored_half_key",
    "TransRocksDBRecord.getKeyBytes",
    "How keys begin in column family `trans` of rocksdbstore/ (transRocksDBEnable).",
    (Field("physical_offset", "offsetPy", ">i8", "position of the half message's record in the log"),),
    tail="`@topic@transaction id`, with the topic that the message will be in",
)

STORED_HALF: Final = Unit(
    "stored_half",
    "TransRocksDBRecord.getValueBytes",
    "One half message that is neither committed nor rolled back: a value in column family `trans`.",
    (
        Field("check_times", "checkTimes", ">i4", "how often its producer was asked"),
        Field("store_size", "sizePy", ">i4", "bytes of the record"),
    ),
)

STORED_UNITS: Final = (
    STORED_INDEX_KEY,
    STORED_INDEX,
    STORED_TIMER_KEY,
    STORED_TIMER,
    STORED_HALF_KEY,
    STORED_HALF,
)
