# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's check for a record at a place in the log, and the dispatch request made from it.

Everything that is derived from a log depends on this check: where recovery ends the log, what reaches a queue or the
index, and how a queue is named. So it follows RocketMQ where `store_core.format.record.scan` is stricter: a record's
physical offset is not checked, and malformed names are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from store_core.format.java import INT_BITS, LONG_BITS, SHORT_BITS, parse_java_int, tags_code, wrap
from store_core.format.layout import (
    BLANK_SIZE,
    HOST_V4,
    HOST_V6,
    V6_BITS,
    MagicCode,
    MessageSysFlag,
    head_dtype,
    head_size,
)
from store_core.format.properties import (
    CRC_RESERVED,
    DELAY,
    INNER_BASE,
    INNER_NUM,
    KEYS,
    PROPERTY_CRC,
    TAGS,
    UNIQ_KEY,
    PropertyParser,
    decode_text,
    parse_properties,
)
from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.format.record.scan import body_crc, head_reader, read_frame
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, MessageCheck

if TYPE_CHECKING:
    from store_core.format.release_rules import ReleaseRules
    from store_core.queue.queue_path import QueueRules


DUP_INFO: Final = "DUP_INFO"
"""Property of a replicated message: two parts joined by ``_`` (RocketMQ 5.0 and later)."""

_DUP_INFO_PARTS: Final = 2
_PROPERTIES_LENGTH_SIZE: Final = 2
_ZERO_DIGIT: Final = ord("0")
_SIZE_WIDTH: Final = head_dtype()["total_size"].itemsize


_HEAD_NAMES: Final = head_dtype().names or ()
_HEAD_READERS: Final = {
    bits: head_reader(*_HEAD_NAMES, sys_flag=bits) for bits in (0, *map(int, MessageSysFlag(V6_BITS)), V6_BITS)
}
_SYS_FLAG_FIELD: Final = _HEAD_NAMES.index("sys_flag")
_UNREADABLE: Final = MessageCheck(is_success=False, size=-1)


class _UnreadableError(Exception):
    """Java throws an exception here, and catches it at the end of the method: there is no record."""


@dataclass(slots=True)
class _ByteBuffer:
    """A ``java.nio.ByteBuffer``: the bytes from `position` to `stop`, read in order.

    `copied` is the size of the array that Java copies the parts into; none of them may exceed it.
    """

    view: memoryview
    position: int
    stop: int
    copied: int

    def skip(self, count: int) -> int:
        """Skip some bytes; return where they begin."""
        begin = self.position
        if not 0 <= count <= self.stop - begin:
            raise _UnreadableError
        self.position = begin + count
        return begin

    def copy(self, count: int) -> memoryview:
        """Read some bytes that Java copies into the array."""
        if count > self.copied:
            raise _UnreadableError
        begin = self.skip(count)
        return self.view[begin : begin + count]

    def integer(self, width: int) -> int:
        """Read a signed integer of this many bytes."""
        begin = self.skip(width)
        return int.from_bytes(self.view[begin : begin + width], signed=True)


class Strictness(NamedTuple):
    """What is checked of a record: by default what reput checks.

    * `check_crc`, `read_body`: True for a recovery, False for reput (a body that is not read is not checked).
    * `check_dup_info`: Whether a message must state where it was replicated from: recovery with ``duplicationEnable``,
      5.0 and later.
    """

    check_crc: bool = False
    read_body: bool = False
    check_dup_info: bool = False


REPUT: Final = Strictness()


def check_message_and_return_size(
    view: memoryview, position: int, stop: int, rules: QueueRules, strictness: Strictness = REPUT
) -> MessageCheck:
    """Check what is at a position of a log file, and make its dispatch request.

    * `view`: The file's bytes (format ``B``), from its first byte on.
    * `stop`: End of the readable bytes: of the file for a recovery, of the written part for reput.
    * `rules`: Rules to check by; `rules.delay_levels` is empty until RocketMQ has loaded its table of delays.

    RocketMQ 4.3.0, 4.9.7 and 5.3.3: ``CommitLog.checkMessageAndReturnSize``. Differences: from 5.3.2 on a size beyond
    the available bytes is refused first, even for a blank record, and from 5.5.1 on a negative size; V2 is known from
    5.1 on; 4.3.0 knows no IPv6 (4.6 and later) and reads properties by `PropertyParser.EXACT_PAIR`; inner batches,
    DUP_INFO and the property CRC belong to 5.x. Where Java would allocate as many bytes as a broken size claims, and
    run out of memory, this check continues as if the allocation had succeeded.
    """
    frame = _check_frame(view, position, stop, rules.features)
    if isinstance(frame, MessageCheck):
        return frame
    size, magic = frame
    parts = _Parts(_ByteBuffer(view, position, stop, size), magic, rules)
    try:
        return parts.check(strictness)
    except (_UnreadableError, ValueError):
        return _UNREADABLE


def _check_frame(
    view: memoryview, position: int, stop: int, features: ReleaseRules
) -> MessageCheck | tuple[int, MagicCode]:
    """Read size and magic code; return these if a message may follow."""
    room = stop - position
    if room < BLANK_SIZE:
        return _UNREADABLE
    size, magic = read_frame(view, position)
    if features.checks_record_fits_buffer and room - _SIZE_WIDTH < wrap(size - _SIZE_WIDTH, INT_BITS):
        return _UNREADABLE
    if features.refuses_negative_size and size < 0:
        return _UNREADABLE
    if magic == MagicCode.BLANK:
        return MessageCheck(is_success=True, size=0, parsed=BLANK_SIZE)
    is_known = magic == MagicCode.MESSAGE_V1 or (magic == MagicCode.MESSAGE_V2 and features.has_message_version_2)
    return (size, MagicCode(magic)) if is_known and size >= 0 else _UNREADABLE


class _Parts:
    """The parts of a presumed message, read in order."""

    __slots__ = ("begin", "buffer", "head", "magic", "properties", "rules", "size", "topic")

    def __init__(self, buffer: _ByteBuffer, magic: MagicCode, rules: QueueRules) -> None:
        self.buffer = buffer
        self.magic = magic
        self.rules = rules
        self.begin = buffer.position
        self.size = buffer.copied
        self.head: dict[str, int] = {}
        self.topic = ""
        self.properties: dict[str, str] | None = None

    def check(self, strictness: Strictness) -> MessageCheck:
        """Read and check all of them, in the order of ``CommitLog.checkMessageAndReturnSize``."""
        check_crc, read_body, check_dup_info = strictness
        features = self.rules.features
        is_crc_in_properties = features.has_property_crc and self.rules.verify_property_crc
        self._read_head()
        self._read_body(read_body=read_body, check_crc=check_crc and not is_crc_in_properties)
        self.topic = decode_text(bytes(self.buffer.copy(self.buffer.integer(self.magic.topic_length_size))))
        length = self.buffer.integer(_PROPERTIES_LENGTH_SIZE)
        if length > 0:
            text = decode_text(bytes(self.buffer.copy(length)))
            self.properties = parse_properties(text, PropertyParser.of_release(self.rules.release))
        if check_dup_info and features.checks_dup_info:
            self._check_dup_info()
        tags = self._tags_code()
        if check_crc and is_crc_in_properties:
            self._check_property_crc()
        parsed = self.buffer.position - self.begin
        if parsed != self.size:
            return MessageCheck(is_success=False, size=self.size, parsed=parsed)
        return MessageCheck(is_success=True, size=self.size, request=self._request(tags), parsed=parsed)

    def _read_head(self) -> None:
        """Read the fixed fields; if the flags call for wider hosts, read the head again at that width."""
        values = self._unpack(0)
        bits = int(values[_SYS_FLAG_FIELD]) & V6_BITS if self.rules.features.stores_ipv6_hosts else 0
        if bits:
            self.buffer.position = self.begin
            values = self._unpack(bits)
        if self.size < (HOST_V6 if bits else HOST_V4).itemsize:
            raise _UnreadableError
        self.head = dict(zip(_HEAD_NAMES, values, strict=True))

    def _unpack(self, bits: int) -> tuple[Any, ...]:
        return _HEAD_READERS[bits](self.buffer.view, self.buffer.skip(head_size(bits)))

    def _read_body(self, *, read_body: bool, check_crc: bool) -> None:
        length = self.head["body_length"]
        if length <= 0:
            return
        if not read_body:
            self.buffer.skip(length)
        elif body_crc(self.buffer.copy(length)) != self.head["body_crc"] and check_crc:
            raise _UnreadableError

    def _check_dup_info(self) -> None:
        """Check the number of parts, counted as ``String.split("_")`` does, which drops empty ones at the end."""
        if self.properties is None:
            return
        text = self.properties.get(DUP_INFO, "")
        if len(text.rstrip("_").split("_")) != _DUP_INFO_PARTS:
            raise _UnreadableError

    def _tags_code(self) -> int:
        properties = self.properties or {}
        level = properties.get(DELAY)
        hashed = tags_code(properties.get(TAGS))
        if level is None or self.topic != SCHEDULE_TOPIC:
            return hashed
        delay = delay_of_level(level, self.rules)
        return hashed if delay is None else wrap(self.head["store_timestamp"] + delay, LONG_BITS)

    def _check_property_crc(self) -> None:
        """Check the whole record except for its last bytes; their place is counted back from the end of the parts."""
        digits = (self.properties or {}).get(PROPERTY_CRC)
        if digits is None:
            raise _UnreadableError
        begin = self.buffer.position - self.size
        if begin < 0 or begin + self.size < CRC_RESERVED:
            raise _UnreadableError
        covered = self.buffer.view[begin : max(begin + self.size - CRC_RESERVED, begin)]
        if body_crc(covered) != _read_crc_digits(digits):
            raise _UnreadableError

    def _request(self, tags: int) -> DispatchRequest:
        head, properties = self.head, self.properties
        base, count = head["queue_offset"], 1
        if (
            properties
            and self.rules.features.has_inner_batches
            and INNER_NUM in properties
            and INNER_BASE in properties
        ):
            base = parse_java_int(properties[INNER_BASE], LONG_BITS)
            count = parse_java_int(properties[INNER_NUM], SHORT_BITS)
        return DispatchRequest(
            topic=self.topic,
            queue_id=head["queue_id"],
            physical_offset=head["physical_offset"],
            message_size=self.size,
            tags_code=tags,
            store_timestamp=head["store_timestamp"],
            consume_queue_offset=head["queue_offset"],
            keys="" if properties is None else properties.get(KEYS),
            unique_key=None if properties is None else properties.get(UNIQ_KEY),
            sys_flag=head["sys_flag"],
            prepared_transaction_offset=head["prepared_transaction_offset"],
            properties=properties or {},
            message_base_offset=base,
            batch_size=count,
        )


def delay_of_level(level_text: str, rules: QueueRules) -> int | None:
    """Return the delay of a record of the schedule topic, ms.

    * `level_text`: Property DELAY; levels above the highest count as the highest.

    Returns: None for a level below 1: the tags code is unchanged.
    """
    level = min(parse_java_int(level_text, INT_BITS), len(rules.delay_levels))
    return rules.delay_levels[level - 1] if level > 0 else None


def _read_crc_digits(digits: str) -> int:
    """Read the property CRC, least significant digit first, in Java's 32-bit arithmetic; any character is accepted."""
    units = digits.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[-2::-2], units[-1::-2], strict=True):
        value = wrap(value * 10 + (high << 8 | low) - _ZERO_DIGIT, INT_BITS)
    return value
