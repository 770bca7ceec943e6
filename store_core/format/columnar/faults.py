# SPDX-License-Identifier: Apache-2.0
"""Records of a batch that can't be decoded, each with the error that explains why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import CorruptRecordError, UnsafeSizeError
from store_core.format.columnar.checksums import body_crcs
from store_core.format.compression import MAX_EXPANDED_BODY, BodyTooLargeError, expand_body
from store_core.format.record.decode import corrupt_record_error, decode_topic
from store_core.format.record.scan import check_record
from store_core.format.sys_flag import COMPRESSION_MASK, CompressionType, MessageSysFlag

if TYPE_CHECKING:
    from collections.abc import Collection

    from store_core.format.columnar.records import Records

__all__ = ["Fault", "content_faults", "expand_bodies", "structural_faults"]

_EXPANDED_BATCH: Final = 256 << 20
"""Most bytes that the compressed bodies of one batch may expand to together."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A record that could not be decoded: its position in the segment, its size, and why."""

    position: int
    size: int
    error: CorruptRecordError


def structural_faults(records: Records) -> list[Fault]:
    """Return records whose parts do not add up, or that claim another offset; nothing else of them can be read."""
    faults = []
    for row in np.flatnonzero(~records.spans.sound).tolist():
        position, start_offset = int(records.starts[row]), records.start_offset_of(row)
        check = check_record(records.raw.data, position, start_offset)
        error = corrupt_record_error(check, records.raw.data, position, start_offset, records.segment)
        faults.append(Fault(position, check.size, error))
    return faults


def content_faults(records: Records, columns: Collection[str], *, verify_crc: bool) -> list[Fault]:
    """Return records whose requested topic, body or compression violates the format; one fault each."""
    faults: list[Fault] = []
    if "topic" in columns:
        faults += _topic_faults(records)
    if "body" in columns and verify_crc:
        faults += _crc_faults(records)
    if "compression" in columns:
        faults += _compression_faults(records)
    return list({fault.position: fault for fault in reversed(faults)}.values())


def expand_bodies(records: Records) -> tuple[list[Fault], int]:
    """Expand the compressed bodies; return the faults of those that can't be, and how many records fit into a batch."""
    flags = records.heads.leading("sys_flag")
    if not (flags & MessageSysFlag.COMPRESSED_FLAG).any():
        return [], len(records)
    faults = {fault.position: fault for fault in _compression_faults(records)}
    bodies: list[bytes] = []
    room = _EXPANDED_BATCH
    for row, position in enumerate(records.starts.tolist()):
        body = records.raw[records.spans.body_start[row] : records.spans.body_stop[row]].tobytes()
        if flags[row] & MessageSysFlag.COMPRESSED_FLAG and body and position not in faults:
            kind = CompressionType.of(int(flags[row]))
            try:
                body = expand_body(body, kind)
            except ValueError as error:
                faults[position] = _fault(records, row, _expand_error(records, row, kind, error))
            room -= len(body)
        if room < 0 and row:
            return [fault for fault in faults.values() if fault.position < position], row
        bodies.append(body)
    records.expanded = bodies
    return list(faults.values()), len(records)


def _fault(records: Records, row: int, error: CorruptRecordError) -> Fault:
    position = int(records.starts[row])
    return Fault(position, int(records.spans.stops[row]) - position, error)


def _topic_faults(records: Records) -> list[Fault]:
    if records.topics is not None:
        return []
    faults = []
    for row, topic in enumerate(records.packed_topics.to_pylist()):
        try:
            decode_topic(topic, records.offset(row), records.segment)
        except CorruptRecordError as error:
            faults.append(_fault(records, row, error))
    return faults


def _crc_faults(records: Records) -> list[Fault]:
    spans = records.spans
    found = body_crcs(records.raw, spans.body_start, spans.body_stop)
    wrong = (found != records.heads.leading("body_crc")) & (spans.body_stop > spans.body_start)
    return [_fault(records, row, _crc_error(records, row)) for row in np.flatnonzero(wrong).tolist()]


def _crc_error(records: Records, row: int) -> CorruptRecordError:
    data, position, start_offset = records.raw.data, int(records.starts[row]), records.start_offset_of(row)
    check = check_record(data, position, start_offset, verify_crc=True)
    return corrupt_record_error(check, data, position, start_offset, records.segment)


def _compression_faults(records: Records) -> list[Fault]:
    flags = records.heads.leading("sys_flag")
    packed = (flags & MessageSysFlag.COMPRESSED_FLAG) != 0
    illegal = packed & ((flags & COMPRESSION_MASK) > MessageSysFlag.COMPRESSION_ZLIB_TYPE)
    return [
        _fault(
            records, row, _error(records, row, "unknown compression type", "0 to 3 in bits 8 to 10", hex(flags[row]))
        )
        for row in np.flatnonzero(illegal).tolist()
    ]


def _error(records: Records, row: int, problem: str, expected: str, found: str) -> CorruptRecordError:
    return CorruptRecordError(problem, records.segment, records.offset(row), expected, found)


def _expand_error(records: Records, row: int, kind: CompressionType, error: ValueError) -> CorruptRecordError:
    if isinstance(error, BodyTooLargeError):
        offset = records.offset(row)
        bound = f"at most {MAX_EXPANDED_BODY} bytes"
        advice = "Read it with decompress=false."
        return UnsafeSizeError("compressed body is too large", records.segment, offset, bound, str(error), b"", advice)
    return _error(records, row, "compressed body can't be expanded", f"{kind.name} data", str(error))
