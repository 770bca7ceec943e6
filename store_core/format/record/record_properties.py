# SPDX-License-Identifier: Apache-2.0
"""Reading of one record's properties without its body."""

from __future__ import annotations

import struct
from typing import Final

from store_core.format.layout import MIN_RECORD_SIZE, MagicCode
from store_core.format.properties import PropertyParser, decode_text, parse_properties
from store_core.format.record.decode import corrupt_record_error
from store_core.format.record.record_head import head_reader, head_shape
from store_core.format.record.scan import check_record

__all__ = ["record_properties"]

_I16: Final = struct.Struct(">h")
_read_kind: Final = head_reader("total_size", "magic_code", "sys_flag")
_V1: Final = MagicCode.MESSAGE_V1.value
_MOST_TOPIC: Final = 127


def record_properties(record: memoryview, parser: PropertyParser = PropertyParser.FIRST_SEPARATOR) -> dict[str, str]:
    """Return the properties of a record; the body is not read.

    Parameters
    ----------
    record : memoryview
        Format ``B``, from the record's first byte on.

    Notes
    -----
    RocketMQ: ``MessageDecoder.decodeProperties``, which trusts the lengths.
    """
    start, stop = _plain_span(record) or _checked_span(record)
    return parse_properties(decode_text(bytes(record[start:stop])), parser)


def _plain_span(record: memoryview) -> tuple[int, int] | None:
    """Return the properties' span in a V1 record with positive lengths that add up; None: use `_checked_span`."""
    room = len(record)
    if room < MIN_RECORD_SIZE:
        return None
    size, magic, sys_flag = _read_kind(record, 0)
    shape = head_shape(sys_flag)
    if magic != _V1 or not shape.size < size <= room:
        return None
    (body_size,) = shape.read_body_length(record, 0)
    topic_start = shape.size + body_size + 1
    if body_size < 0 or topic_start + _I16.size > size:
        return None
    topic_length = record[topic_start - 1]
    topic_stop = topic_start + topic_length
    if topic_length > _MOST_TOPIC or topic_stop + _I16.size > size:
        return None
    start = topic_stop + _I16.size
    is_whole = start + _I16.unpack_from(record, topic_stop)[0] == size
    return (start, size) if is_whole else None


def _checked_span(record: memoryview) -> tuple[int, int]:
    check = check_record(record, 0, None, verify_crc=False)
    if check.spans is None:
        raise corrupt_record_error(check, record, 0, 0, "<record>")
    return check.spans.properties_start, check.spans.properties_stop
