# SPDX-License-Identifier: Apache-2.0
"""Record starts in a segment, found by the chain of lengths, why the chain ends, and single fields of a head.

`check_record` and `follow_frames` are the definition; `store_core.format.columnar.chain` returns the same result
faster.

A record is trusted only because a chain of records leads to it from the segment's start. Magic codes found by searching
prove nothing: a body may hold a whole record, and bytes after the write position may be complete records of an earlier
time.

Records lie one after the other, or in the entries of a DLedger log. A *frame* is what a segment is made of: a record,
or an entry that holds one. Walks go from frame to frame; positions that they return are those of frames, and a frame's
record begins `Framing.lead` bytes after it. DLedger leaves its checksums 0, so an entry is checked by its position, its
two sizes, its place in the sequence, and by its record (`check_entry`).
"""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from store_core.format.crc32 import CRC_MASK, crc32
from store_core.format.layout import (
    BLANK_SIZE,
    DLEDGER_ENTRY_HEAD,
    MIN_RECORD_SIZE,
    V6_BITS,
    MagicCode,
    MessageSysFlag,
    field_position,
    head_dtype,
    head_size,
    unit_dtype,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Buffer: TypeAlias = bytes | bytearray | memoryview


V4_BYTES: Final = 4
_MESSAGE_ID: Final = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")
_PORT: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")


def format_host(address: bytes, port: int) -> str:
    """Return ``ip:port``, for IPv6 ``[ip]:port`` in the form of RFC 5952.

    >>> format_host(bytes([10, 1, 2, 3]), 5555)
    '10.1.2.3:5555'
    """
    if len(address) == V4_BYTES:
        return f"{address[0]}.{address[1]}.{address[2]}.{address[3]}:{port}"
    return f"[{_format_v6(address)}]:{port}"


def _format_v6(address: bytes) -> str:
    """Return an IPv6 address as text; IPv4-mapped ones are written here, since Python up to 3.13 differs."""
    if address[:12] == b"\0" * 10 + b"\xff\xff":
        return f"::ffff:{address[12]}.{address[13]}.{address[14]}.{address[15]}"
    return str(ipaddress.IPv6Address(address))


def encode_host(ip: str, port: int) -> bytes:
    """Pack an address and port as a record stores them: 8 bytes, or 20 for IPv6."""
    return ipaddress.ip_address(ip).packed + _PORT.pack(port)


def message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the offset message id: upper-case hex of address, port and offset, 32 or 56 digits.

    * `store_host`: The record's store host field: address and port, 8 or 20 bytes.
    * `physical_offset`: Position of the record in the log, in bytes.

    RocketMQ: ``MessageDecoder.createMessageId``.
    """
    return (store_host + _OFFSET.pack(physical_offset)).hex().upper()


def is_message_id(text: str) -> bool:
    """Return whether a text has the form of an offset message id: 32 hexadecimal digits, or 56 with an IPv6 host."""
    return _MESSAGE_ID.fullmatch(text) is not None


def position_of_message_id(msg_id: str) -> int:
    """Return the physical offset in an offset message id; no record has a negative one.

    >>> position_of_message_id("0A01020300002A9F000000000000002A")
    42
    """
    position: int = _OFFSET.unpack(bytes.fromhex(msg_id)[-_OFFSET.size :])[0]
    return position


_CODES: Final = {4: "i", 8: "q"}
"""Codes of `struct` by width; numpy's depend on the platform."""

_BORN_HOST_V6: Final = int(MessageSysFlag.BORNHOST_V6_FLAG)


class HeadReader(Protocol):
    """Reads some fields of a head."""

    def __call__(self, data: Buffer, position: int, /) -> tuple[Any, ...]:
        """Return the fields of the record at a position of the data: integers, and hosts as bytes."""


def head_reader(*names: str, sys_flag: int = 0) -> HeadReader:
    """Return a function that reads some fields of a head; it costs as much as one call of `struct`.

    * `names`: Fields of `MESSAGE_HEAD`, in the order in which they are stored.
    * `sys_flag`: Host widths, needed for fields after the first host; see `head_dtype`.

    >>> read = head_reader("total_size", "queue_id")
    >>> read(bytes.fromhex("0000005b daa320a7 00000000 00000007"), 0)
    (91, 7)
    """
    dtype = head_dtype(sys_flag)
    code, end = ">", 0
    for name in names:
        begin, field = field_position(dtype, name), dtype[name]
        if begin < end:
            raise ValueError(f"field {name} is stored before those named before it")
        code += f"{begin - end}x" + (f"{field.itemsize}s" if field.names else _CODES[field.itemsize])
        end = begin + field.itemsize
    return struct.Struct(code).unpack_from


read_frame: Final = head_reader("total_size", "magic_code")
"""Reads size and magic code: all that a blank record has, too."""

_read_sys_flag: Final = head_reader("sys_flag")
_read_store_timestamps: Final = {bits: head_reader("store_timestamp", sys_flag=bits) for bits in (0, _BORN_HOST_V6)}


def read_sys_flag(data: Buffer, position: int) -> int:
    """Return the flags of a record."""
    sys_flag: int = _read_sys_flag(data, position)[0]
    return sys_flag


class HeadShape(NamedTuple):
    """What a head's host widths decide."""

    size: int  # bytes of the head
    read_body_length: HeadReader  # reads the length of the body as stored, in bytes; a negative one stands for no bytes


_SHAPES: Final = {
    bits: HeadShape(head_size(bits), head_reader("body_length", sys_flag=bits))
    for bits in (0, *map(int, MessageSysFlag(V6_BITS)), V6_BITS)
}


def head_shape(sys_flag: int) -> HeadShape:
    """Return the shape of the head of a record with these flags."""
    return _SHAPES[sys_flag & V6_BITS]


def store_timestamp(data: Buffer, position: int, *, has_ipv6: bool = True) -> int:
    """Return the store time of a record, ms.

    * `has_ipv6`: Whether the record's flags may call for hosts of IPv6; RocketMQ knows none before 4.6.
    """
    bits = read_sys_flag(data, position) & _BORN_HOST_V6 if has_ipv6 else 0
    stored: int = _read_store_timestamps[bits](data, position)[0]
    return stored


_I16: Final = struct.Struct(">h")
_read_claims: Final = head_reader("body_crc", "physical_offset")
_read_kind: Final = head_reader("magic_code", "sys_flag")


def body_crc(body: bytes | memoryview) -> int:
    """Return the checksum RocketMQ stores for a body: CRC-32 with the top bit cleared (``UtilAll.crc32``)."""
    return crc32(body) & CRC_MASK


class StopReason(Enum):
    """Why a chain of records ends (Java: the result codes of ``DispatchRequest``)."""

    LIMIT = "the requested end: what follows was not read"
    END_OF_FILE = "blank record: the log continues in the next file"
    UNWRITTEN = "zeros: nothing has been written here yet"
    TORN = "the record runs past the end of the file"
    BAD_MAGIC = "not a magic code of RocketMQ"
    BAD_SIZE = "a size no record can have"
    SIZE_MISMATCH = "the parts of the record do not add up to its size"
    WRONG_OFFSET = "the record claims another place in the log"
    BAD_CRC = "the body does not match its checksum"
    WRONG_INDEX = "the entry's index does not follow that of the entry before it"
    EARLIER_TERM = "the entry's term is earlier than that of the entry before it"

    @property
    def is_damage(self) -> bool:
        """Whether the bytes at the stop are damaged, rather than a regular end."""
        return self not in (StopReason.LIMIT, StopReason.END_OF_FILE, StopReason.UNWRITTEN)


@dataclass(frozen=True, slots=True)
class RecordSpans:
    """The parts of one record, as positions in its segment."""

    body_start: int
    body_stop: int
    topic_start: int
    topic_stop: int
    properties_start: int
    properties_stop: int


@dataclass(frozen=True, slots=True)
class RecordCheck:
    """The result of a check: a record of `size` bytes, or the `reason` why there is none.

    For damage, `expected` and `found` are the words of the error; `size` is the size the record claims if that is known
    to be within the file, else 0.
    """

    size: int
    reason: StopReason | None = None
    spans: RecordSpans | None = None
    expected: str = ""
    found: str = ""


@dataclass(frozen=True, slots=True)
class Scan:
    """Record starts of a segment."""

    starts: npt.NDArray[np.int64]  # int64, shape (n,), ascending: positions in the segment, in bytes
    stop: int  # where the chain ends: the end of the last record
    reason: StopReason  # why it ends there


def check_record(
    data: memoryview, position: int, start_offset: int | None = 0, *, verify_crc: bool = False, beyond: int = 0
) -> RecordCheck:
    """Check for a record at a position of a segment.

    * `data`: The bytes of the segment (format ``B``), at least up to where the record ends.
    * `position`: Where to look, in bytes from the start of `data`.
    * `start_offset`: Physical offset of its first byte; the record's own physical offset must agree with it.
      None leaves that field unchecked, as RocketMQ does.
    * `verify_crc`: Whether to check the body against its checksum. Empty bodies are never checked.
    * `beyond`: Bytes that the segment has after `data`.

    The order of the rules is that of RocketMQ 5.3.3, ``CommitLog.checkMessageAndReturnSize``; the check of the physical
    offset, which RocketMQ lacks, comes last. A blank record ends the file whatever its size field says.
    """
    head = _check_frame(data, position, beyond)
    if head.reason is not None:
        return head
    return _check_parts(data, position, head.size, start_offset, verify_crc=verify_crc)


def _check_frame(data: memoryview, position: int, beyond: int) -> RecordCheck:  # noqa: PLR0911 -- one return per rule
    room = len(data) - position + beyond
    if room < BLANK_SIZE:
        return rest_of_file(data, position)
    size, magic = read_frame(data, position)
    if magic == MagicCode.BLANK:
        return RecordCheck(0, StopReason.END_OF_FILE)
    if size == 0 and magic == 0:
        return RecordCheck(0, StopReason.UNWRITTEN)
    if magic not in (MagicCode.MESSAGE_V1, MagicCode.MESSAGE_V2):
        return damaged(StopReason.BAD_MAGIC, "0xdaa320a7 or 0xdaa320ab", f"0x{magic & 0xFFFFFFFF:08x}")
    if size < MIN_RECORD_SIZE:
        return damaged(StopReason.BAD_SIZE, f"a size of {MIN_RECORD_SIZE} bytes or more", f"{size}")
    if size > room:
        return damaged(StopReason.TORN, f"at most the {room} bytes left in the file", f"a size of {size}")
    return RecordCheck(size)


def rest_of_file(data: memoryview, position: int) -> RecordCheck:
    """Check the last bytes of a file, too few for a blank record: a writer always leaves room for one."""
    rest = bytes(data[position:])
    if not rest.strip(b"\0"):
        return RecordCheck(0, StopReason.UNWRITTEN if rest else StopReason.LIMIT)
    return damaged(StopReason.TORN, f"{BLANK_SIZE} bytes for a blank record", f"{len(rest)} bytes")


def damaged(reason: StopReason, expected: str, found: str, size: int = 0) -> RecordCheck:
    """Return the result of a check that found damage: the words of its error, and the size if that is possible."""
    return RecordCheck(size, reason, None, expected, found)


def _check_parts(
    data: memoryview, position: int, size: int, start_offset: int | None, *, verify_crc: bool
) -> RecordCheck:
    spans = _measure(data, position, size)
    if isinstance(spans, RecordCheck):
        return spans
    stored, claimed = _read_claims(data, position)
    if verify_crc and spans.body_stop > spans.body_start:
        actual = body_crc(data[spans.body_start : spans.body_stop])
        if actual != stored:
            return damaged(StopReason.BAD_CRC, f"body CRC {stored}", f"{actual}", size)
    if start_offset is not None and claimed != start_offset + position:
        return damaged(StopReason.WRONG_OFFSET, f"physical offset {start_offset + position}", f"{claimed}", size)
    return RecordCheck(size, None, spans)


def _measure(data: memoryview, position: int, size: int) -> RecordSpans | RecordCheck:
    """Follow the three length fields; each must stay inside the record and all must add up to its size.

    A negative body or properties length means no bytes; a negative topic length makes the record unreadable.
    """
    stop = position + size
    magic, sys_flag = _read_kind(data, position)
    version = MagicCode(magic)
    shape = head_shape(sys_flag)
    body_start = position + shape.size
    if body_start + version.topic_length_size + _I16.size > stop:
        return damaged(
            StopReason.SIZE_MISMATCH, f"a head of {body_start - position} bytes", f"a record of {size}", size
        )
    body_size = max(shape.read_body_length(data, position)[0], 0)
    body_stop = body_start + body_size
    topic_start = body_stop + version.topic_length_size
    if topic_start + _I16.size > stop:
        return damaged(
            StopReason.SIZE_MISMATCH, f"a body inside the record of {size} bytes", f"{body_size} bytes", size
        )
    topic_length = _topic_length(data, body_stop, version)
    topic_stop = topic_start + topic_length
    if topic_length < 0 or topic_stop + _I16.size > stop:
        return damaged(
            StopReason.SIZE_MISMATCH, f"a topic inside the record of {size} bytes", f"{topic_length} bytes", size
        )
    properties_start = topic_stop + _I16.size
    properties_stop = properties_start + max(_I16.unpack_from(data, topic_stop)[0], 0)
    if properties_stop != stop:
        return damaged(StopReason.SIZE_MISMATCH, f"parts of {size} bytes", f"{properties_stop - position}", size)
    return RecordSpans(body_start, body_stop, topic_start, topic_stop, properties_start, properties_stop)


def _topic_length(data: memoryview, position: int, version: MagicCode) -> int:
    """Read a signed topic length: one byte in V1, two in V2."""
    if version is MagicCode.MESSAGE_V2:
        return int(_I16.unpack_from(data, position)[0])
    return int.from_bytes(data[position : position + 1], signed=True)


ENTRY_DTYPE: Final = unit_dtype(DLEDGER_ENTRY_HEAD)
ENTRY_HEAD_SIZE: Final = ENTRY_DTYPE.itemsize
"""Bytes of an entry before its record (DLedger: ``DLedgerEntry.BODY_OFFSET``)."""

ENTRY_MAGIC: Final = 1
"""Magic code of every entry (DLedger: ``DLedgerMmapFileStore.CURRENT_MAGIC``)."""

BLANK_MAGIC: Final = -1
"""Magic code where a file holds nothing more (DLedger: ``MmapFileList.BLANK_MAGIC_CODE``)."""

_FRAME: Final = np.dtype([(name, ENTRY_DTYPE[name]) for name in ("magic", "size")])


def entry_size(data: memoryview, position: int) -> int:
    """Return the size that an entry, or the blank at a file's end, claims; at least 8 bytes must be there."""
    return int(np.frombuffer(data, _FRAME, 1, position)["size"][0])


def check_entry(  # noqa: PLR0913 -- where to look, and how strictly
    data: memoryview,
    position: int,
    start_offset: int | None = 0,
    *,
    verify_crc: bool = False,
    previous: int = -1,
    beyond: int = 0,
) -> RecordCheck:
    """Check for an entry at a position of a file.

    * `data`: The bytes of the file (format ``B``), at least up to where the entry ends.
    * `position`: Where to look, in bytes from the start of `data`.
    * `start_offset`: Physical offset of its first byte, with which entry and record must agree; None leaves that
      unchecked.
    * `verify_crc`: Whether to check the record's body against its checksum.
    * `previous`: Position of the last sound entry before. If it ends at `position`, its index and term must be followed
      by those of this one. -1 if there is none.
    * `beyond`: Bytes that the file has after `data`.

    Returns: Its size is that of the entry, its parts are those of the record.
    """
    frame = _check_entry_frame(data, position, beyond)
    if frame.reason is not None:
        return frame
    head = _head(data, position)
    problem = _head_problem(head, None if start_offset is None else start_offset + position)
    if problem is not None:
        return problem
    record = check_record(data, position + ENTRY_HEAD_SIZE, start_offset, verify_crc=verify_crc, beyond=beyond)
    if record.reason is not None or record.size != frame.size - ENTRY_HEAD_SIZE:
        return _record_problem(record, frame.size)
    if previous >= 0 and previous + entry_size(data, previous) == position:
        problem = _sequence_problem(_head(data, previous), head)
    return problem or RecordCheck(frame.size, None, record.spans)


def _head(data: memoryview, position: int) -> np.void:
    head: np.void = np.frombuffer(data, ENTRY_DTYPE, 1, position)[0]
    return head


def _check_entry_frame(data: memoryview, position: int, beyond: int) -> RecordCheck:  # noqa: PLR0911 -- as above
    """Check magic code and size."""
    room = len(data) - position + beyond
    if room < BLANK_SIZE:
        return rest_of_file(data, position)
    magic, size = np.frombuffer(data, _FRAME, 1, position)[0].tolist()
    least = ENTRY_HEAD_SIZE + MIN_RECORD_SIZE
    if magic == BLANK_MAGIC:
        return RecordCheck(0, StopReason.END_OF_FILE)
    if magic == 0 and size == 0:
        return RecordCheck(0, StopReason.UNWRITTEN)
    if magic != ENTRY_MAGIC:
        return damaged(StopReason.BAD_MAGIC, f"magic code {ENTRY_MAGIC} of a DLedger entry", f"{magic}")
    if size < least:
        return damaged(StopReason.BAD_SIZE, f"a DLedger entry of {least} bytes or more", f"{size}")
    if size > room:
        return damaged(StopReason.TORN, f"at most the {room} bytes left in the file", f"a DLedger entry of {size}")
    return RecordCheck(size)


def _head_problem(head: np.void, offset: int | None) -> RecordCheck | None:
    """Return what is wrong with an entry's head, given its size is possible."""
    size, body = int(head["size"]), int(head["body_length"])
    if body != size - ENTRY_HEAD_SIZE:
        expected = f"a record of {size - ENTRY_HEAD_SIZE} bytes in the DLedger entry of {size}"
        return damaged(StopReason.SIZE_MISMATCH, expected, f"{body}", size)
    if offset is not None and int(head["position"]) != offset:
        return damaged(StopReason.WRONG_OFFSET, f"a DLedger entry of position {offset}", f"{head['position']}", size)
    if int(head["index"]) < 0:
        return damaged(StopReason.WRONG_INDEX, "a DLedger entry of index 0 or more", f"{head['index']}", size)
    return None


def _record_problem(record: RecordCheck, size: int) -> RecordCheck:
    """Return what is wrong with the record in an entry of a size; one that is no damage elsewhere is damage here."""
    if record.reason is None:
        expected = f"a record of {size - ENTRY_HEAD_SIZE} bytes in the DLedger entry of {size}"
        return damaged(StopReason.SIZE_MISMATCH, expected, f"{record.size}", size)
    if not record.reason.is_damage:
        return damaged(StopReason.BAD_MAGIC, "a record in the DLedger entry", record.reason.value, size)
    return damaged(record.reason, f"{record.expected} in the DLedger entry", record.found, size)


def _sequence_problem(before: np.void, head: np.void) -> RecordCheck | None:
    """Return in what an entry does not continue the one before it."""
    size, index, term = (int(head[name]) for name in ("size", "index", "term"))
    if index != int(before["index"]) + 1:
        return damaged(StopReason.WRONG_INDEX, f"DLedger index {int(before['index']) + 1}", f"{index}", size)
    if term < int(before["term"]):
        return damaged(StopReason.EARLIER_TERM, f"DLedger term {before['term']} or later", f"{term}", size)
    return None


class Framing(Enum):
    """What a segment is made of."""

    RECORDS = "records"
    ENTRIES = "entries of a DLedger log, each with one record"

    @property
    def lead(self) -> int:
        """Bytes of a frame before its record."""
        return ENTRY_HEAD_SIZE if self is Framing.ENTRIES else 0

    @property
    def least(self) -> int:
        """Bytes of the smallest frame with a record."""
        return self.lead + MIN_RECORD_SIZE


def check_frame(  # noqa: PLR0913 -- where to look, and how strictly
    data: memoryview,
    position: int,
    start_offset: int | None = 0,
    framing: Framing = Framing.RECORDS,
    *,
    verify_crc: bool = False,
    previous: int = -1,
    beyond: int = 0,
) -> RecordCheck:
    """Check for a frame at a position of a segment; its size is returned, and the parts of its record.

    Parameters as of `store_core.format.record.scan.check_entry`; for records `previous` means nothing.
    """
    if framing is Framing.RECORDS:
        return check_record(data, position, start_offset, verify_crc=verify_crc, beyond=beyond)
    return check_entry(data, position, start_offset, verify_crc=verify_crc, previous=previous, beyond=beyond)


def reach_of(data: memoryview, framing: Framing, beyond: int) -> int:
    """Return up to where `check_frame` looks at bytes that begin with a frame, by the sizes that this claims.

    0 if size or magic code show that no frame is there.
    """
    if framing is Framing.RECORDS:
        return _check_frame(data, 0, beyond).size
    size = _check_entry_frame(data, 0, beyond).size
    return max(size, ENTRY_HEAD_SIZE + _check_frame(data, ENTRY_HEAD_SIZE, beyond).size) if size else 0


def frame_size(data: memoryview, position: int, framing: Framing) -> int:
    """Return the size that a frame, or a blank one, claims; at least 8 bytes must be there."""
    return read_frame(data, position)[0] if framing is Framing.RECORDS else entry_size(data, position)


def follow_frames(  # noqa: PLR0913 -- where to look, and what for
    data: memoryview,
    begin: int = 0,
    end: int | None = None,
    start_offset: int | None = 0,
    framing: Framing = Framing.RECORDS,
    *,
    verify_crc: bool = False,
    previous: int = -1,
) -> Scan:
    """Follow frames one by one from `begin` until one starts at or after `end`, or none follows.

    The readable definition of `store_core.format.columnar.chain.scan`; parameters as there.
    """
    limit = len(data) if end is None else end
    starts: list[int] = []
    position = begin
    while position < limit:
        check = check_frame(data, position, start_offset, framing, verify_crc=verify_crc, previous=previous)
        if check.reason is not None:
            return Scan(np.array(starts, np.int64), position, check.reason)
        starts.append(position)
        previous, position = position, position + check.size
    return Scan(np.array(starts, np.int64), position, StopReason.LIMIT)
