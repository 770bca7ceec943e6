# SPDX-License-Identifier: Apache-2.0
"""Encoding of one message as one record, the readable definition of correct writing; and where records have room.

`encode_message` and `encode_members` build the bytes outside the put lock, with zeros for position, index and store
time; `do_append` fills these in, inside the lock, and copies the records into their file.
`store_core.format.columnar.encode_batch` encodes many messages at once and must agree with this module.

A record is in one segment, and after it there is always room for the head of a blank record. `place_records` is the
definition, for one record after the other; `fill_segments` returns the same places for many records at once.

RocketMQ: ``MessageExtEncoder`` (5.3.3), ``CommitLog`` (4.x), ``CommitLog.DefaultAppendMessageCallback.doAppend``.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import InvalidOptionError
from store_core.format.layout import (
    BLANK_SIZE,
    HOST_V4,
    HOST_V6,
    MESSAGE_HEAD,
    MIN_HEAD_SIZE,
    V6_BITS,
    MagicCode,
    MessageSysFlag,
    field_position,
    head_dtype,
    head_size,
)
from store_core.format.message import AppendMessageResult, AppendMessageStatus, Message, PutMessageStatus
from store_core.format.properties import (
    CRC_RESERVED,
    MAX_PROPERTIES_SIZE,
    PROPERTY_CRC,
    PROPERTY_SEPARATOR,
    PropertyMap,
    crc_property,
    delete_property,
    ends_with_separator,
    format_properties,
    parse_decoded_properties,
    to_utf8,
)
from store_core.format.record.scan import V4_BYTES, body_crc, encode_host, message_id
from store_core.format.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from store_core.format.release_rules import ReleaseRules


@dataclass(slots=True)
class EncodedRecords:
    """Records that are complete except for physical offset, queue offset and store time."""

    data: bytearray  # the records, end to end
    v6_bits: int  # host bits of the sys_flag, which determine where the store time is
    store_host: bytes  # packed, as stored
    starts: list[int] = field(default_factory=lambda: [0])  # where each record begins in `data`
    fixed_timestamp: int | None = None
    """The store time they keep, if that is not the clock inside the lock: members of a batch up to 4.9.0."""


_OFFSETS: Final = struct.Struct(">qq")
_OFFSETS_POSITION: Final = field_position(head_dtype(), "queue_offset")
_TIME: Final = struct.Struct(">q")
_TIME_POSITIONS: Final = {
    bits: field_position(head_dtype(bits), "store_timestamp") for bits in (0x00, 0x10, 0x20, 0x30)
}


def write_blank(view: memoryview) -> None:
    """Close a segment with a blank record; `view` is all that is left of the segment, see `blank_head`."""
    head = blank_head(len(view))
    view[: len(head)] = head


def do_append(  # noqa: PLR0913 -- the record, where it goes, and the values known only now
    encoded: EncodedRecords,
    view: memoryview,
    physical_offset: int,
    *,
    queue_offset: int,
    store_timestamp: int,
    append_property_crc: bool = False,
    is_queued: bool = True,
    message_num: int | None = None,
) -> AppendMessageResult:
    """Complete records and copy them into a file, all of them or none.

    * `view`: The rest of the file, writable; its length is the room left.
    * `physical_offset`: Of the first byte of `view`.
    * `queue_offset`: Index of the first record in its queue.
    * `store_timestamp`: Clock inside the put lock, ms.
    * `append_property_crc`: Whether the records end with space for their property CRC.
    * `is_queued`: False for prepared and rolled-back transaction messages: their queue offset is stored as 0.
    * `message_num`: Number of messages in the record, for an inner batch; None counts the records.

    Returns: PUT_OK; or END_OF_FILE if the records and a blank record don't fit, and a blank record was written instead.
    """
    first = queue_offset if is_queued else 0
    positions = [physical_offset + start for start in encoded.starts]
    ids = ",".join(message_id(encoded.store_host, position) for position in positions)
    room = len(view)
    if not has_room(len(encoded.data), room):
        write_blank(view)
        status = AppendMessageStatus.END_OF_FILE
        return AppendMessageResult(status, physical_offset, room, ids, store_timestamp, first)
    data = encoded.data
    time_position = _TIME_POSITIONS[encoded.v6_bits]
    stored_time = store_timestamp if encoded.fixed_timestamp is None else encoded.fixed_timestamp
    stops = [*encoded.starts[1:], len(data)]
    for index, (start, stop) in enumerate(zip(encoded.starts, stops, strict=True)):
        _OFFSETS.pack_into(data, start + _OFFSETS_POSITION, first + index, positions[index])
        _TIME.pack_into(data, start + time_position, stored_time)
        if append_property_crc:
            end = stop - CRC_RESERVED
            data[end:stop] = crc_property(body_crc(memoryview(data)[start:end]))
    view[: len(encoded.data)] = encoded.data
    count = len(positions) if message_num is None else message_num
    status = AppendMessageStatus.PUT_OK
    return AppendMessageResult(status, physical_offset, len(encoded.data), ids, store_timestamp, first, count)


_I8_MAX: Final = 0x7F
_I16_MAX: Final = 0x7FFF
_I16: Final = struct.Struct(">h")
ENCODER_RESERVE: Final = 64 * 1024
"""By how much a record may exceed the size limit of bodies (4.9.4 and later)."""


@dataclass(frozen=True, slots=True)
class EncodeRules:
    """The part of a store's configuration that determines the bytes of records.

    Attributes
    ----------
    release : str
        One of `RELEASES`.
    max_message_size : int
        Most bytes of the body or of the record, see `ReleaseRules.limits_bodies`.
    append_property_crc : bool
        End each record with its CRC as a property (RocketMQ 5.2 and later, ``enabledAppendPropCRC``).
    auto_message_version : bool
        Write topics of over 127 characters as V2 (RocketMQ 5.1 and later, ``autoMessageVersionOnTopicLen``).
    enable_lmq : bool
        Whether property INNER_MULTI_DISPATCH may name further queues; their indexes are written into the record.
    features : ReleaseRules
        The rules of the release.
    """

    release: str = DEFAULT_RELEASE
    max_message_size: int = 4 * 1024 * 1024
    append_property_crc: bool = False
    auto_message_version: bool = True
    enable_lmq: bool = False
    features: ReleaseRules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", rules_of(self.release))

    @property
    def crc_reserved(self) -> int:
        """Bytes reserved for the property CRC at the end of a record."""
        return CRC_RESERVED if self.append_property_crc else 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message can't be encoded."""

    status: PutMessageStatus  # what the put returns
    reason: str  # the limit and what exceeded it
    append_status: AppendMessageStatus | None = None  # what the append returns, if RocketMQ finds out only there


_BORN_V6: Final = int(MessageSysFlag.BORNHOST_V6_FLAG)
_STORE_V6: Final = int(MessageSysFlag.STOREHOSTADDRESS_V6_FLAG)


@lru_cache(maxsize=8)
def _head_struct(v6_bits: int) -> struct.Struct:
    codes = {">i4": "i", ">i8": "q"}
    fields = ((part.v6_flag, codes.get(part.type), part.dtype(v6_bits).itemsize) for part in MESSAGE_HEAD.fields)
    return struct.Struct(
        ">" + "".join(f"{size}s" if v6_flag is not None else str(code) for v6_flag, code, size in fields)
    )


@lru_cache(maxsize=4096)
def pack_host(ip: str, port: int, release: str = DEFAULT_RELEASE) -> bytes:
    """Pack an address as a release stores it: 8 bytes, or 20 for IPv6.

    Java turns an IPv4-mapped address into IPv4. Release 4.3 does not support IPv6 and keeps the first four bytes.
    """
    try:
        address = ipaddress.ip_address(ip)
    except ValueError as error:
        raise InvalidOptionError(f"a host needs an IP address, found {ip!r}") from error
    if not 0 <= port <= 0xFFFF:  # noqa: PLR2004 -- the range of ports
        raise InvalidOptionError(f"a host needs a port from 0 to 65535, found {port!r}")
    mapped = getattr(address, "ipv4_mapped", None)
    packed = encode_host(str(mapped or address), port)
    return packed if rules_of(release).stores_ipv6_hosts else packed[:V4_BYTES] + packed[-4:]


def utf16_length(text: str) -> int:
    """Return the number of UTF-16 units of a string, as Java's ``String.length`` does."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def message_version(topic: str, rules: EncodeRules) -> MagicCode:
    """Choose the record version by the length of its topic, in characters (RocketMQ 5.1 and later)."""
    is_long = rules.features.has_message_version_2 and rules.auto_message_version and utf16_length(topic) > _I8_MAX
    return MagicCode.MESSAGE_V2 if is_long else MagicCode.MESSAGE_V1


def topic_limit(version: MagicCode) -> int:
    """Return the most bytes a topic may have: its length field is signed."""
    return _I16_MAX if version is MagicCode.MESSAGE_V2 else _I8_MAX


def stored_properties(message: Message, release: str) -> PropertyMap:
    """Return the properties of a message as the store sees them, as a new Java map."""
    if message.has_named_properties or message.properties_string is None:
        capacity = message.properties.capacity if isinstance(message.properties, PropertyMap) else None
        given = message.property_map()
        return PropertyMap(given) if capacity is None else PropertyMap(given, capacity)
    text = message.properties_string
    return parse_decoded_properties(text if isinstance(text, str) else text.decode("utf-8", "replace"), release)


def properties_bytes(message: Message, rules: EncodeRules) -> bytes:
    """Return the properties of a message as stored: a client's string nearly as it is, else built from the map.

    With a property CRC, an existing one is removed, and a missing last separator is added.
    """
    text = message.properties_string
    if text is None:
        text = format_properties(stored_properties(message, rules.release), rules.release)
    data = text if isinstance(text, bytes) else to_utf8(text)
    if rules.append_property_crc and PROPERTY_CRC.encode() in data:
        data = delete_property(data.decode("latin-1"), PROPERTY_CRC).encode("latin-1")
    return seal_properties(data, rules)


def seal_properties(data: bytes, rules: EncodeRules) -> bytes:
    """Add the separator that must precede a property CRC, if it is missing."""
    if rules.append_property_crc and data and not ends_with_separator(data):
        return data + PROPERTY_SEPARATOR.encode()
    return data


def encode_message(
    message: Message,
    rules: EncodeRules,
    store_host: tuple[str, int],
    properties: bytes | None = None,
    born_timestamp: int = 0,
) -> EncodedRecords | Refusal:
    """Encode one message; `store_core.format.record.encode.do_append` completes it.

    * `store_host`: For a message without one of its own.
    * `properties`: The properties as stored, if they differ from those of the message.
    * `born_timestamp`: For a message without one of its own, ms.
    """
    head = _Head.of(message, rules, store_host, born_timestamp)
    stored = properties_bytes(message, rules) if properties is None else seal_properties(properties, rules)
    body = message.body or b""
    refusal = head.refuse() or _refuse_sizes(rules, len(body), len(stored), head.size(len(body), len(stored)))
    if refusal is not None:
        return refusal
    data = bytearray().join(head.parts(message.flag, body, stored, message.prepared_transaction_offset))
    return EncodedRecords(data, head.v6_bits, head.store_host)


def _refuse_sizes(rules: EncodeRules, body: int, properties: int, record: int) -> Refusal | None:
    """Apply the limits of a release, in its order."""
    if properties + rules.crc_reserved > MAX_PROPERTIES_SIZE:
        reason = f"properties of {properties + rules.crc_reserved} bytes, at most {MAX_PROPERTIES_SIZE} are allowed"
        if rules.features.refuses_long_properties_before_append:
            return Refusal(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, reason)
        return Refusal(PutMessageStatus.MESSAGE_ILLEGAL, reason, AppendMessageStatus.PROPERTIES_SIZE_EXCEEDED)
    limit = rules.max_message_size
    if not rules.features.limits_bodies and record > limit:
        reason = f"a record of {record} bytes, at most {limit} are allowed"
        return Refusal(PutMessageStatus.MESSAGE_ILLEGAL, reason, AppendMessageStatus.MESSAGE_SIZE_EXCEEDED)
    if rules.features.limits_bodies and body > limit:
        return Refusal(PutMessageStatus.MESSAGE_ILLEGAL, f"a body of {body} bytes, at most {limit} are allowed")
    if rules.features.limits_bodies and record > limit + ENCODER_RESERVE:
        reason = f"a record of {record} bytes, at most {limit + ENCODER_RESERVE} are allowed"
        return Refusal(PutMessageStatus.MESSAGE_ILLEGAL, reason)
    return None


@dataclass(slots=True)
class _Head:
    """The fields that the records of one put share."""

    rules: EncodeRules
    message: Message
    version: MagicCode
    topic: bytes
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes

    @classmethod
    def of(cls, message: Message, rules: EncodeRules, store_host: tuple[str, int], born_timestamp: int) -> _Head:
        born = pack_host(*message.born_host, rules.release)
        store = pack_host(*(message.store_host or store_host), rules.release)
        sys_flag = int(message.sys_flag)
        if len(born) == HOST_V6.itemsize:
            sys_flag |= _BORN_V6
        if len(store) == HOST_V6.itemsize:
            sys_flag |= _STORE_V6
        version = message_version(message.topic, rules)
        born_time = born_timestamp if message.born_timestamp is None else message.born_timestamp
        return cls(rules, message, version, to_utf8(message.topic), sys_flag, born_time, born, store)

    def refuse(self) -> Refusal | None:
        """Refuse what RocketMQ would write as a record that nothing can read, itself included."""
        limit = topic_limit(self.version)
        if len(self.topic) > limit:
            reason = f"a topic of {len(self.topic)} bytes, at most {limit} can be stored"
            return Refusal(PutMessageStatus.MESSAGE_ILLEGAL, reason)
        if head_size(self.v6_bits) != self.head_size:
            reason = f"sys_flag {self.sys_flag:#x} claims an IPv6 host, but the host is IPv4"
            return Refusal(PutMessageStatus.MESSAGE_ILLEGAL, reason)
        return None

    @property
    def v6_bits(self) -> int:
        """Bits of the host widths in the record. Without IPv6 support both are IPv4, whatever bits the producer set."""
        return self.sys_flag & V6_BITS if self.rules.features.stores_ipv6_hosts else 0

    @property
    def head_size(self) -> int:
        """Size of the head up to the body, in bytes, with the given hosts."""
        return MIN_HEAD_SIZE + len(self.born_host) + len(self.store_host) - 2 * HOST_V4.itemsize

    def size(self, body: int, properties: int) -> int:
        """Return the size of a whole record, in bytes."""
        lengths = self.version.topic_length_size + _I16.size
        return self.head_size + body + lengths + len(self.topic) + properties + self.rules.crc_reserved

    def parts(self, flag: int, body: bytes, properties: bytes, prepared: int) -> Iterable[bytes]:
        """Return the pieces of a record in order, with zeros for what is not known yet."""
        message = self.message
        values = (self.size(len(body), len(properties)), self.version, body_crc(body), message.queue_id, flag, 0, 0)
        hosts = (self.sys_flag, self.born_timestamp, self.born_host, 0, self.store_host)
        rest = (message.reconsume_times, prepared, len(body))
        try:
            head = _head_struct(self.v6_bits).pack(*values, *hosts, *rest)
        except struct.error as error:
            raise InvalidOptionError(f"a message to {message.topic!r} has an integer out of range: {error}") from error
        length = len(self.topic).to_bytes(self.version.topic_length_size)
        crc_room = bytes(self.rules.crc_reserved)
        stored_length = _I16.pack(len(properties) + self.rules.crc_reserved)
        return head, body, length, self.topic, stored_length, properties, crc_room


def encode_members(
    batch: Message,
    items: Iterable[tuple[int, bytes, bytes]],
    rules: EncodeRules,
    store_host: tuple[str, int],
    born_timestamp: int = 0,
) -> EncodedRecords | Refusal:
    """Encode the members of a batch, each as a record of its own.

    * `batch`: What they share; its body is ignored.
    * `items`: Flag, body and properties field of each member.
    * `rules`, `store_host`, `born_timestamp`: As in `encode_message`.

    The batch's own properties, rewritten from its map, follow each member's (4.8.0 and later). Release 5.3.3 puts no
    separator between a member's properties and the property CRC unless the batch has properties too. A member whose
    properties grow beyond 32,767 bytes is refused here; RocketMQ writes an unreadable record.
    """
    head = _Head.of(batch, rules, store_host, born_timestamp)
    refusal = head.refuse()
    gives_shared = rules.features.gives_members_batch_properties
    shared = to_utf8(format_properties(stored_properties(batch, rules.release), rules.release)) if gives_shared else b""
    encoded = EncodedRecords(bytearray(), head.v6_bits, head.store_host, [])
    for flag, body, own in items:
        joint = PROPERTY_SEPARATOR.encode() if own and shared and not ends_with_separator(own) else b""
        properties = own + joint + shared
        refusal = refusal or _refuse_member(rules, len(properties), head.size(len(body), len(properties)))
        if refusal is not None:
            return refusal
        encoded.starts.append(len(encoded.data))
        encoded.data += b"".join(head.parts(flag, body, properties, 0))
    if not rules.features.limits_bodies and len(encoded.data) > rules.max_message_size:
        reason = f"a batch of {len(encoded.data)} bytes, at most {rules.max_message_size} are allowed"
        return Refusal(PutMessageStatus.MESSAGE_ILLEGAL, reason)
    return encoded


def _refuse_member(rules: EncodeRules, properties: int, record: int) -> Refusal | None:
    if properties + rules.crc_reserved > MAX_PROPERTIES_SIZE:
        reason = f"a member's properties take {properties} bytes, at most {MAX_PROPERTIES_SIZE} can be stored"
        return Refusal(PutMessageStatus.MESSAGE_ILLEGAL, reason)
    if not rules.features.limits_bodies and record > rules.max_message_size:
        reason = f"a member of {record} bytes, at most {rules.max_message_size} are allowed"
        return Refusal(PutMessageStatus.MESSAGE_ILLEGAL, reason)
    return None


_BLANK: Final = struct.Struct(">ii")


def room_for_records(room: int) -> int:
    """Return how many bytes of records fit into the last `room` bytes of a segment; negative if no blank fits."""
    return room - BLANK_SIZE


def has_room(size: int, room: int) -> bool:
    """Return whether records of `size` bytes fit into a segment with `room` bytes left."""
    return size <= room_for_records(room)


def blank_head(room: int) -> bytes:
    """Return the bytes that close a segment with `room` bytes left.

    That is the head of a blank record that spans all of them: RocketMQ, too, writes no more since 4.9.1. No writer
    leaves fewer bytes than a head; in a foreign file that does, they become zeros.
    """
    return _BLANK.pack(room, MagicCode.BLANK) if room >= BLANK_SIZE else bytes(room)


def place_records(sizes: Iterable[int], room: int, segment_size: int) -> list[tuple[int, int]]:
    """Place records one after the other.

    * `sizes`: Bytes of each record.
    * `room`: Bytes left in the segment in which the log ends; 0 without one.
    * `segment_size`: Bytes of each segment after that.

    Returns: For each record the number of its segment, 0 for the one with `room` bytes left, and its position there, in
    bytes from the segment's start; in segment 0 from the end of the log. A segment that is followed by another is
    closed by `blank_head`.
    """
    segment = position = 0
    places = []
    for row, size in enumerate(sizes):
        if not has_room(size, room):
            segment, position, room = segment + 1, 0, segment_size
            if not has_room(size, room):
                raise InvalidOptionError(f"record {row} {too_large(size, segment_size)}")
        places.append((segment, position))
        position += size
        room -= size
    return places


def fill_segments(starts: npt.NDArray[np.int64], room: int, segment_size: int) -> Iterator[slice]:
    """Yield the records that go to each segment; equal to `place_records`.

    * `starts`: int64, shape (n + 1,): where each record begins if they are placed back to back, and where the last one
      ends.

    Yields: Rows that are placed back to back: first those in the segment with `room` bytes left, which may be empty,
    then those in each segment after it.
    """
    row, count = 0, starts.size - 1
    while True:
        stop = int(np.searchsorted(starts, starts[row] + room_for_records(room), side="right")) - 1
        stop = max(stop, row)
        yield slice(row, stop)
        if stop == count:
            return
        row, room = stop, segment_size
        if not has_room(size := int(starts[row + 1] - starts[row]), room):
            raise InvalidOptionError(f"record {row} {too_large(size, segment_size)}")


def misfit(starts: npt.NDArray[np.int64], segment_size: int) -> str | None:
    """Return why a record of some, see `fill_segments`, has no room in a segment of its own; None if all have."""
    largest = int(np.diff(starts).max(initial=0))
    return None if has_room(largest, segment_size) else too_large(largest, segment_size)


def too_large(size: int, segment_size: int) -> str:
    """Return what is said of a record, or of a body, for which no segment has room; without a subject."""
    return (
        f"has {size} bytes: expected at most {room_for_records(segment_size)}, for which a segment of "
        f"{segment_size} bytes has room; leave it out, or write to a store with larger segments"
    )
