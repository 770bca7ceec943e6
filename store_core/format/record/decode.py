# SPDX-License-Identifier: Apache-2.0
"""One record, readable: its message, and those of a client's batch in it.

`store_core.format.columnar.records` decodes many records at once and must agree with this module.

Such a body is exploded into records (``putMessages``), or stored as it is: an inner batch of a BatchCQ topic (RocketMQ
5.0 and later).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import CorruptRecordError, InvalidOptionError
from store_core.format.layout import BATCH_ITEM_HEAD, head_dtype
from store_core.format.message import Message, MessageExt
from store_core.format.properties import (
    CRC_NAME,
    CRC_RESERVED,
    MAX_PROPERTIES_SIZE,
    PROPERTY_CRC,
    PropertyParser,
    crc_property,
    decode_text,
    format_properties,
    parse_properties,
    to_utf8,
)
from store_core.format.record.scan import (
    RecordCheck,
    RecordSpans,
    StopReason,
    body_crc,
    check_record,
    format_host,
    message_id,
    read_sys_flag,
)
from store_core.format.release import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_PROBLEMS: Final = {
    StopReason.LIMIT: "no record",
    StopReason.END_OF_FILE: "blank record",
    StopReason.UNWRITTEN: "unwritten bytes",
    StopReason.TORN: "torn record",
    StopReason.BAD_MAGIC: "bad magic code",
    StopReason.BAD_SIZE: "bad record size",
    StopReason.SIZE_MISMATCH: "record lengths do not add up",
    StopReason.WRONG_OFFSET: "wrong physical offset",
    StopReason.BAD_CRC: "bad body CRC",
    StopReason.WRONG_INDEX: "wrong index of a DLedger entry",
    StopReason.EARLIER_TERM: "term of a DLedger entry that goes back",
}
_SHOWN_BYTES: Final = 16


def corrupt_record_error(  # noqa: PLR0913 -- what was found, where, and what to do about it
    check: RecordCheck, data: memoryview, position: int, start_offset: int, file: str, advice: str = ""
) -> CorruptRecordError:
    """Return the error that explains why there is no record at `position`."""
    reason = check.reason or StopReason.LIMIT
    return CorruptRecordError(
        _PROBLEMS[reason],
        file,
        start_offset + position,
        check.expected or "a message record",
        check.found or reason.value,
        bytes(data[position : position + _SHOWN_BYTES]),
        advice,
    )


def decode_message(  # noqa: PLR0913 -- what to read, how strictly, and how to name it in an error
    data: memoryview,
    position: int,
    start_offset: int | None = 0,
    *,
    file: str = "<memory>",
    parser: PropertyParser = PropertyParser.FIRST_SEPARATOR,
    verify_crc: bool = True,
) -> MessageExt:
    """Decode the record at a position of a segment.

    * `data`: The segment's bytes (format ``B``).
    * `position`: Start of the record, in bytes from the segment's start.
    * `start_offset`: Physical offset of the segment's first byte, which the record must agree with; None leaves that
      unchecked.
    * `file`: Name of the segment for errors.
    * `parser`: How properties are parsed; see `PropertyParser.of_release`.
    * `verify_crc`: Whether the body must match its checksum, and the record the one over all of it, if it carries one.

    RocketMQ 5.3.3: ``MessageDecoder.decode``.
    """
    check = check_record(data, position, start_offset, verify_crc=verify_crc)
    if check.spans is None:
        raise corrupt_record_error(check, data, position, start_offset or 0, file)
    if verify_crc and (error := property_crc_error(data, position, start_offset or 0, check.spans, file)):
        raise error
    stored = bytes(data[check.spans.topic_start : check.spans.topic_stop])
    topic = decode_topic(stored, (start_offset or 0) + position, file)
    return _message(data, position, check.spans, topic, parser)


def property_crc_error(
    data: memoryview, position: int, start_offset: int, spans: RecordSpans, file: str
) -> CorruptRecordError | None:
    """Return the error of a record that does not match the checksum over all of it, the property ``__CRC32#``.

    It is the last property, and covers what precedes it: head, body, topic and the other properties. A record without
    it has no such error.

    * `data`, `position`, `start_offset`, `file`: As of `decode_message`.
    * `spans`: Of the record, which is sound otherwise.

    RocketMQ 5.2 and later, with ``enabledAppendPropCRC``: ``CommitLog.checkMessageAndReturnSize``.
    """
    begin = spans.properties_stop - CRC_RESERVED
    stored = bytes(data[max(begin, 0) : spans.properties_stop])
    if begin < spans.properties_start or not stored.startswith(CRC_NAME):
        return None
    expected = crc_property(body_crc(data[position:begin]))
    if stored == expected:
        return None
    shown, found = (each[len(CRC_NAME) : -1].decode("ascii", "replace") for each in (expected, stored))
    problem, place = "bad checksum over the record", start_offset + position
    return CorruptRecordError(problem, file, place, f"property {PROPERTY_CRC} {shown}", repr(found))


def _message(data: memoryview, position: int, spans: RecordSpans, topic: str, parser: PropertyParser) -> MessageExt:
    head = _head(data, position)
    text = decode_text(bytes(data[spans.properties_start : spans.properties_stop]))
    born, store = head["born_host"], head["store_host"]
    return MessageExt(
        topic=topic,
        queue_id=int(head["queue_id"]),
        queue_offset=int(head["queue_offset"]),
        physical_offset=int(head["physical_offset"]),
        store_size=int(head["total_size"]),
        store_timestamp=int(head["store_timestamp"]),
        born_timestamp=int(head["born_timestamp"]),
        store_host=format_host(store["address"].tobytes(), int(store["port"])),
        born_host=format_host(born["address"].tobytes(), int(born["port"])),
        body=bytes(data[spans.body_start : spans.body_stop]),
        body_crc=int(head["body_crc"]),
        flag=int(head["flag"]),
        sys_flag=int(head["sys_flag"]),
        reconsume_times=int(head["reconsume_times"]),
        prepared_transaction_offset=int(head["prepared_transaction_offset"]),
        magic_code=int(head["magic_code"]),
        msg_id=message_id(store.tobytes(), int(head["physical_offset"])),
        properties=parse_properties(text, parser),
    )


def _head(data: memoryview, position: int) -> np.void:
    head: np.void = np.frombuffer(data, head_dtype(read_sys_flag(data, position)), 1, position)[0]
    return head


def decode_topic(data: bytes, offset: int, file: str) -> str:
    """Decode a topic, which must be UTF-8.

    RocketMQ would read malformed bytes as U+FFFD and file the record under that name. Here a name that no producer can
    have sent is reported as damage.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecordError("topic is not UTF-8", file, offset, "UTF-8", repr(data), data, "") from error


@dataclass(frozen=True, slots=True)
class InnerMessage:
    """One message of an inner batch; topic, times, hosts and the like are those of the record.

    Attributes
    ----------
    queue_offset : int
        Index in the queue: the batch's own, plus the message's number in the batch.
    flag : int
        The application's own flag.
    body : bytes
    properties : mapping of str to str
        The message's own; the batch's are those of the record.
    """

    queue_offset: int
    flag: int
    body: bytes
    properties: Mapping[str, str]


def unwrap_inner_batch(body: bytes, queue_offset: int = 0) -> list[InnerMessage]:
    """Unwrap the body of an inner batch.

    Parameters
    ----------
    body : bytes
        The body of a record whose `sys_flag` has both bits, INNER_BATCH_FLAG and NEED_UNWRAP_FLAG; decompressed if the
        record is compressed as well.
    queue_offset : int
        Column ``queue_offset`` of the record: the index of the first message.

    Raises
    ------
    ValueError
        If a length is negative or runs past the body.

    Notes
    -----
    RocketMQ 5.3.3: ``MessageDecoder.decodeMessages``.
    """
    return [
        InnerMessage(queue_offset + number, flag, bytes(item), parse_properties(decode_text(bytes(text))))
        for number, (flag, item, text) in enumerate(decode_items(body))
    ]


_HEAD: Final = struct.Struct(">" + "i" * len(BATCH_ITEM_HEAD.fields))
_LENGTH: Final = struct.Struct(">h")


def encode_item(flag: int, body: bytes, properties: bytes) -> bytes:
    """Encode one message of a batch as a client does (``MessageDecoder.encodeMessage``)."""
    size = _HEAD.size + len(body) + _LENGTH.size + len(properties)
    return b"".join((_HEAD.pack(size, 0, 0, flag, len(body)), body, _LENGTH.pack(len(properties)), properties))


def client_batch(messages: Sequence[Message], release: str = DEFAULT_RELEASE) -> Message:
    """Return one message whose body holds others, as a client builds it (``MessageBatch.generateFromList``).

    Topic, queue, hosts, born time and flags of the batch are those of the first message; each item keeps its own flag,
    body and properties.
    """
    if not messages:
        raise InvalidOptionError("a batch needs at least one message")
    first = messages[0]
    body = b"".join(_item(message, first, number, release) for number, message in enumerate(messages))
    return replace(first, body=body, flag=0, tags=None, keys=None, properties=None, properties_string=None)


def _item(message: Message, first: Message, number: int, release: str) -> bytes:
    if message.topic != first.topic or message.wait_store_msg_ok != first.wait_store_msg_ok:
        raise InvalidOptionError(f"message {number} of a batch has another topic or wait_store_msg_ok than the first")
    if message.delay_level:
        raise InvalidOptionError(f"message {number} of a batch has a delay level")
    if message.body is None:
        raise InvalidOptionError(f"message {number} of a batch has no body")
    text = message.properties_string
    if text is None:
        text = format_properties(message.property_map(), release)
    properties = text if isinstance(text, bytes) else to_utf8(text)
    if len(properties) > MAX_PROPERTIES_SIZE:
        raise InvalidOptionError(f"message {number} of a batch has {len(properties)} bytes of properties")
    return encode_item(message.flag, message.body, properties)


def decode_items(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield flag, body and properties of each item of a batch.

    Sizes, magic codes and checksums of items are ignored, as in ``MessageExtEncoder.encode``.
    """
    position = 0
    while position < len(data):
        if len(data) - position < _HEAD.size:
            raise ValueError(f"a batch ends {len(data) - position} bytes into an item's head of {_HEAD.size}")
        *_, flag, body_length = _HEAD.unpack_from(data, position)
        body_stop = position + _HEAD.size + body_length
        if body_length < 0 or body_stop + _LENGTH.size > len(data):
            raise ValueError(f"an item at {position} of a batch of {len(data)} bytes claims a body of {body_length}")
        properties_length = _LENGTH.unpack_from(data, body_stop)[0]
        stop = body_stop + _LENGTH.size + properties_length
        if properties_length < 0 or stop > len(data):
            raise ValueError(f"an item at {position} of a batch claims properties of {properties_length} bytes")
        yield flag, data[position + _HEAD.size : body_stop], data[body_stop + _LENGTH.size : stop]
        position = stop
