# SPDX-License-Identifier: Apache-2.0
"""Decoding of many records into the requested Arrow columns, without a Python object per record.

Each row equals `store_core.format.record.decode.decode_message` of its record; a record that can't be decoded has a
`Fault`, with the error that explains why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from store_core.errors import CorruptRecordError, UnsafeSizeError
from store_core.format.columnar.checksums import record_crcs, wrong_bodies
from store_core.format.columns import BODIES, CORRUPT_RECORD, STORE, arrow_schema
from store_core.format.compression import MAX_EXPANDED_BODY, BodyTooLargeError, expand_body
from store_core.format.layout import CompressionType, MessageSysFlag
from store_core.format.record.decode import corrupt_record_error, decode_topic, property_crc_error
from store_core.format.record.scan import check_record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import numpy.typing as npt

    from store_core.format.columnar.records import Records


_EXPANDED_BATCH: Final = 256 << 20
"""Most bytes that the compressed bodies of one batch may expand to together."""

_UNCOVERED: Final = frozenset({STORE, "segment", CORRUPT_RECORD, "dledger_index", "dledger_term", "dledger_committed"})
"""Columns whose values are not in a record."""

_AS_STORED: Final = "decompress=false returns bodies as they are stored."


@dataclass(frozen=True, slots=True)
class Decoding:
    """How records are decoded."""

    verify_crc: bool = True
    """Whether bodies must match their checksums; only if one of the columns `BODIES` is requested."""
    verify_property_crc: bool = True
    """Whether records must match the checksum over all of them, if they carry one, and a column is requested that it
    covers."""
    decompress: bool = False  # whether the columns `BODIES` hold expanded bodies
    nullable: bool = False
    """Whether the schema declares every column nullable. A body that does not expand is null then, and
    ``_corrupt_record`` says why."""
    nearest_times: bool = False  # as of `store_core.format.columns.table_times`


@dataclass(frozen=True, slots=True)
class Fault:
    """A record that could not be decoded: its position in the segment, its size, and why."""

    position: int
    size: int
    error: CorruptRecordError
    is_sound: bool = False  # whether only one of its values can't be made, as the body that does not expand


def structural_faults(records: Records) -> list[Fault]:
    """Return records whose parts do not add up, or that claim another offset; nothing else of them can be read."""
    faults = []
    for row in np.flatnonzero(~records.spans.sound).tolist():
        position, start_offset = int(records.starts[row]), records.start_offset_of(row)
        check = check_record(records.raw.data, position, start_offset)
        error = corrupt_record_error(check, records.raw.data, position, start_offset, records.segment)
        faults.append(Fault(position, check.size, error))
    return faults


def content_faults(records: Records, columns: Collection[str], how: Decoding) -> list[Fault]:
    """Return records whose requested topic or body violates the format, or requested columns a checksum; one each."""
    faults: list[Fault] = []
    if "topic" in columns:
        faults += _topic_faults(records)
    if how.verify_crc and not BODIES.isdisjoint(columns):
        wrong = wrong_bodies(records.heads, records.spans)
        faults += [_fault(records, row, _crc_error(records, row)) for row in np.flatnonzero(wrong).tolist()]
    if how.verify_property_crc and is_covered(columns):
        faults += _property_crc_faults(records)
    return list({fault.position: fault for fault in reversed(faults)}.values())


def is_covered(columns: Collection[str]) -> bool:
    """Return whether the checksum over a whole record covers one of some columns."""
    return not _UNCOVERED.issuperset(columns)


def expand_bodies(records: Records) -> tuple[list[Fault], int]:
    """Expand the compressed bodies; return the faults of those that can't be, and how many records fit into a batch.

    A body that can't be expanded is None.
    """
    flags = records.heads.leading("sys_flag")
    if not (flags & MessageSysFlag.COMPRESSED_FLAG).any():
        return [], len(records)
    faults: list[Fault] = []
    bodies: list[bytes | None] = []
    room = _EXPANDED_BATCH
    for row in range(len(records)):
        body, fault = _expanded(records, row, int(flags[row]))
        room -= len(body or b"") if flags[row] & MessageSysFlag.COMPRESSED_FLAG else 0
        if room < 0 and row:
            return faults, row
        bodies.append(body)
        faults += [fault] if fault else []
    records.expanded = bodies
    return faults, len(records)


def unexpandable(records: Records) -> Iterator[Fault]:
    """Yield the records whose bodies no consumer can expand, whatever it has room for."""
    flags = records.heads.leading("sys_flag")
    for row in np.flatnonzero(flags & MessageSysFlag.COMPRESSED_FLAG).tolist():
        _, fault = _expanded(records, row, int(flags[row]))
        if fault and not isinstance(fault.error, UnsafeSizeError):
            yield fault


def _expanded(records: Records, row: int, sys_flag: int) -> tuple[bytes | None, Fault | None]:
    """Return the body of a record, expanded if it is compressed; or why it can't be."""
    body = records.raw[records.spans.body_start[row] : records.spans.body_stop[row]].tobytes()
    if not sys_flag & MessageSysFlag.COMPRESSED_FLAG or not body:
        return body, None
    try:
        return expand_body(body, CompressionType.of(sys_flag)), None
    except ValueError as error:
        position = int(records.starts[row])
        size = int(records.spans.stops[row]) - position
        return None, Fault(position, size, _expand_error(records, row, sys_flag, error), is_sound=True)


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


def _property_crc_faults(records: Records) -> list[Fault]:
    spans, data = records.spans, records.raw.data
    checked = record_crcs(records.raw, records.starts, spans.stops)
    faults = []
    for row in checked.rows[~checked.is_right].tolist():
        position, start_offset = int(records.starts[row]), records.start_offset_of(row)
        parts = check_record(data, position, start_offset).spans
        error = parts and property_crc_error(data, position, start_offset, parts, records.segment)
        faults += [_fault(records, row, error)] if error else []
    return faults


def _crc_error(records: Records, row: int) -> CorruptRecordError:
    data, position, start_offset = records.raw.data, int(records.starts[row]), records.start_offset_of(row)
    check = check_record(data, position, start_offset, verify_crc=True)
    return corrupt_record_error(check, data, position, start_offset, records.segment)


def _expand_error(records: Records, row: int, sys_flag: int, error: ValueError) -> CorruptRecordError:
    place, found, as_stored = (records.segment, records.offset(row)), str(error), (b"", _AS_STORED)
    if isinstance(error, BodyTooLargeError):
        bound = f"at most {MAX_EXPANDED_BODY} bytes"
        return UnsafeSizeError("compressed body is too large", *place, bound, found, *as_stored)
    try:
        expected = f"{CompressionType.of(sys_flag).name} data"
    except ValueError:
        problem, expected = "unknown compression type", "0 to 3 in bits 8 to 10 of sys_flag"
        return CorruptRecordError(problem, *place, expected, hex(sys_flag), *as_stored)
    return CorruptRecordError("compressed body can't be expanded", *place, expected, found, *as_stored)


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """Rows of the records that could be decoded, and the faults of the others."""

    batch: pa.RecordBatch  # the requested columns, in that order
    positions: npt.NDArray[np.int64]  # int64, shape (rows,): where each row's record starts in the segment
    faults: tuple[Fault, ...]  # ascending by position
    pending: npt.NDArray[np.int64]
    """int64: the last of the given starts, left for another call because their expanded bodies would not fit into one
    batch; nearly always empty."""


def decode_records(records: Records, columns: Sequence[str], how: Decoding) -> DecodedBatch:
    """Decode records into the requested columns.

    * `columns`: Canonical column names, see `store_core.format.columns`.

    Returns: Records whose parts do not add up, whose requested topic is not UTF-8, or whose requested body is damaged,
    are faults and not in the batch.
    """
    faults: list[Fault] = []
    starts, pending = records.starts, records.starts[:0]
    for find in (structural_faults, lambda rest: content_faults(rest, columns, how)):
        found = find(records)
        records = records.only(~np.isin(records.starts, [fault.position for fault in found])) if found else records
        faults += found
    if how.decompress and not BODIES.isdisjoint(columns):
        records, reached = _expand(records, faults, nullable=how.nullable)
        pending = starts[starts >= reached]
        faults = [fault for fault in faults if fault.position < reached]
    records.has_nearest_times = how.nearest_times
    arrays = [records.column(name) for name in columns]
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns, nullable=how.nullable))
    return DecodedBatch(batch, records.starts, tuple(sorted(faults, key=lambda fault: fault.position)), pending)


def _expand(records: Records, faults: list[Fault], *, nullable: bool) -> tuple[Records, int]:
    """Expand bodies until the batch is full; return the records in it, and where the others begin."""
    found, fitting = expand_bodies(records)
    reached = int(records.starts[fitting]) if fitting < len(records) else records.raw.size
    kept = np.arange(len(records)) < fitting
    if not nullable:
        faults += found
        kept &= ~np.isin(records.starts, [fault.position for fault in found])
    if not kept.all():
        records = records.only(kept)
        expand_bodies(records)
    records.remarks.update({fault.position: fault.error for fault in found if nullable})
    return records, reached
