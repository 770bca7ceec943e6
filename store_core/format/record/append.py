# SPDX-License-Identifier: Apache-2.0
"""Completion of encoded records with what is known only inside the put lock, and the copy into their file.

RocketMQ: ``CommitLog.DefaultAppendMessageCallback.doAppend``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from store_core.format.crc32 import crc32
from store_core.format.layout import field_position, head_dtype
from store_core.format.message import CRC_MASK, AppendMessageResult, AppendMessageStatus
from store_core.format.properties import CRC_RESERVED, PROPERTY_CRC, property_crc_digits
from store_core.format.record.record_head import message_id
from store_core.format.segment_room import blank_head, has_room

__all__ = ["EncodedRecords", "do_append", "write_blank"]


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
    _complete(encoded, positions, first, store_timestamp, append_property_crc=append_property_crc)
    view[: len(encoded.data)] = encoded.data
    count = len(positions) if message_num is None else message_num
    status = AppendMessageStatus.PUT_OK
    return AppendMessageResult(status, physical_offset, len(encoded.data), ids, store_timestamp, first, count)


def _complete(
    encoded: EncodedRecords, positions: list[int], queue_offset: int, store_timestamp: int, *, append_property_crc: bool
) -> None:
    data = encoded.data
    time_position = _TIME_POSITIONS[encoded.v6_bits]
    stored_time = store_timestamp if encoded.fixed_timestamp is None else encoded.fixed_timestamp
    stops = [*encoded.starts[1:], len(data)]
    for index, (start, stop) in enumerate(zip(encoded.starts, stops, strict=True)):
        _OFFSETS.pack_into(data, start + _OFFSETS_POSITION, queue_offset + index, positions[index])
        _TIME.pack_into(data, start + time_position, stored_time)
        if append_property_crc:
            crc = crc32(memoryview(data)[start : stop - CRC_RESERVED]) & CRC_MASK
            data[stop - CRC_RESERVED : stop] = f"{PROPERTY_CRC}\x01{property_crc_digits(crc)}\x02".encode()
