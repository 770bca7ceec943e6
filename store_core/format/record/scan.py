# SPDX-License-Identifier: Apache-2.0
"""Record starts in a segment, found by following the chain of lengths, and why the chain ends.

`check_record` and `follow_chain` are the definition; `store_core.format.columnar.lockstep` returns the same result
faster.

A record is trusted only because a chain of records leads to it from the segment's start. Magic codes found by searching
prove nothing: a body may hold a whole record, and bytes after the write position may be complete records of an earlier
time.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.layout import BLANK_SIZE, MIN_RECORD_SIZE, MagicCode
from store_core.format.message import body_crc
from store_core.format.record.record_head import head_reader, head_shape, read_frame

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "RecordCheck",
    "RecordSpans",
    "Scan",
    "StopReason",
    "check_record",
    "damaged",
    "follow_chain",
    "rest_of_file",
]

_I16: Final = struct.Struct(">h")
_read_claims: Final = head_reader("body_crc", "physical_offset")
_read_kind: Final = head_reader("magic_code", "sys_flag")


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
    data: memoryview, position: int, start_offset: int | None = 0, *, verify_crc: bool = False
) -> RecordCheck:
    """Check for a record at a position of a segment.

    * `data`: All bytes of the segment (format ``B``).
    * `position`: Where to look, in bytes from the segment's start.
    * `start_offset`: Physical offset of the segment's first byte; the record's own physical offset must agree with it.
      None leaves that field unchecked, as RocketMQ does.
    * `verify_crc`: Whether to check the body against its checksum. Empty bodies are never checked.

    Notes
    -----
    The order of the rules is that of RocketMQ 5.3.3, ``CommitLog.checkMessageAndReturnSize``; the check of the physical
    offset, which RocketMQ lacks, comes last. A blank record ends the file whatever its size field says.
    """
    head = _check_frame(data, position)
    if head.reason is not None:
        return head
    return _check_parts(data, position, head.size, start_offset, verify_crc=verify_crc)


def _check_frame(data: memoryview, position: int) -> RecordCheck:  # noqa: PLR0911 -- one return per rule
    room = len(data) - position
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


def follow_chain(
    data: memoryview,
    begin: int = 0,
    end: int | None = None,
    start_offset: int | None = 0,
    *,
    verify_crc: bool = False,
) -> Scan:
    """Follow records one by one from `begin` until one starts at or after `end`, or none follows.

    The readable definition of `store_core.format.columnar.lockstep.scan`; parameters as there.
    """
    limit = len(data) if end is None else end
    starts: list[int] = []
    position = begin
    while position < limit:
        check = check_record(data, position, start_offset, verify_crc=verify_crc)
        if check.reason is not None:
            return Scan(np.array(starts, np.int64), position, check.reason)
        starts.append(position)
        position += check.size
    return Scan(np.array(starts, np.int64), position, StopReason.LIMIT)
