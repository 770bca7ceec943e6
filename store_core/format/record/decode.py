# SPDX-License-Identifier: Apache-2.0
"""Decoding of one record as one message: the readable definition of correct reading.

`store_core.format.columnar.decode_batch` decodes many records at once and must agree with this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import CorruptRecordError
from store_core.format.layout import head_dtype
from store_core.format.message import MessageExt, body_crc
from store_core.format.properties import (
    PROPERTY_CRC,
    PropertyParser,
    decode_text,
    parse_properties,
    property_crc_digits,
)
from store_core.format.property_string import CRC_RESERVED
from store_core.format.record.host import format_host, message_id
from store_core.format.record.record_head import read_sys_flag
from store_core.format.record.scan import RecordCheck, StopReason, check_record

if TYPE_CHECKING:
    from store_core.format.record.scan import RecordSpans

__all__ = ["corrupt_record_error", "decode_message", "decode_topic", "property_crc_error"]

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
_CRC_NAME: Final = f"{PROPERTY_CRC}\x01".encode()


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

    Parameters
    ----------
    data : memoryview
        The segment's bytes (format ``B``).
    position : int
        Start of the record, in bytes from the segment's start.
    start_offset : int or None
        Physical offset of the segment's first byte, which the record must agree with; None leaves that unchecked.
    file : str
        Name of the segment for errors.
    parser : PropertyParser
        How properties are parsed; see `PropertyParser.of_release`.
    verify_crc : bool
        Whether the body must match its checksum, and the record the one over all of it, if it carries one.

    Raises
    ------
    CorruptRecordError
        If there is no sound record at the position, or its topic is not UTF-8.

    Notes
    -----
    RocketMQ 5.3.3: ``MessageDecoder.decode``.
    """
    check = check_record(data, position, start_offset, verify_crc=verify_crc)
    if check.spans is None:
        raise corrupt_record_error(check, data, position, start_offset or 0, file)
    if verify_crc and (error := property_crc_error(data, position, start_offset or 0, check.spans, file)):
        raise error
    return _message(data, position, start_offset or 0, check.spans, file, parser)


def property_crc_error(
    data: memoryview, position: int, start_offset: int, spans: RecordSpans, file: str
) -> CorruptRecordError | None:
    """Return the error of a record that does not match the checksum over all of it, the property ``__CRC32#``.

    It is the last property, and covers what precedes it: head, body, topic and the other properties. A record without
    it has no such error.

    Parameters
    ----------
    data, position, start_offset, file
        As of `decode_message`.
    spans : RecordSpans
        Of the record, which is sound otherwise.

    Notes
    -----
    RocketMQ 5.2 and later, with ``enabledAppendPropCRC``: ``CommitLog.checkMessageAndReturnSize``.
    """
    begin = spans.properties_stop - CRC_RESERVED
    stored = bytes(data[max(begin, 0) : spans.properties_stop])
    if begin < spans.properties_start or not stored.startswith(_CRC_NAME):
        return None
    expected = f"{PROPERTY_CRC}\x01{property_crc_digits(body_crc(data[position:begin]))}\x02".encode()
    if stored == expected:
        return None
    shown, found = (each[len(_CRC_NAME) : -1].decode("ascii", "replace") for each in (expected, stored))
    problem, place = "bad checksum over the record", start_offset + position
    return CorruptRecordError(problem, file, place, f"property {PROPERTY_CRC} {shown}", repr(found))


def _message(  # noqa: PLR0913 -- the pieces decode_message has at hand
    data: memoryview, position: int, start_offset: int, spans: RecordSpans, file: str, parser: PropertyParser
) -> MessageExt:
    head = _head(data, position)
    text = decode_text(bytes(data[spans.properties_start : spans.properties_stop]))
    born, store = head["born_host"], head["store_host"]
    return MessageExt(
        topic=decode_topic(bytes(data[spans.topic_start : spans.topic_stop]), start_offset + position, file),
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

    Raises
    ------
    CorruptRecordError
        If `data` is not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecordError("topic is not UTF-8", file, offset, "UTF-8", repr(data), data, "") from error
