# SPDX-License-Identifier: Apache-2.0
"""The records of one batch as columns, each made on request, and their decoding into the requested Arrow columns.

Each row equals `store_core.format.record.decode.decode_message` of its record; a record that can't be decoded has a
`Fault`, with the error that explains why. No Python object is made per record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from store_core.errors import CorruptRecordError, UnsafeSizeError
from store_core.format.columnar.arrow_slices import (
    as_text,
    fixed_array,
    numbers,
    repeat_text,
    take_rows,
    take_slices,
    texts,
)
from store_core.format.columnar.java_hashes import hash_codes
from store_core.format.columnar.property_columns import PropertyColumns, split_key_column
from store_core.format.columnar.spans import EntryLog, Heads, Spans, entry_column, measure, record_crcs, wrong_bodies
from store_core.format.columns import BODIES, CORRUPT_RECORD, HEAD_FIELDS, STORE, arrow_schema, property_of, table_times
from store_core.format.compression import MAX_EXPANDED_BODY, BodyTooLargeError, expand_body
from store_core.format.layout import (
    COMPRESSION_MASK,
    TRANSACTION_MASK,
    CompressionType,
    MessageSysFlag,
    TransactionType,
)
from store_core.format.properties import KEYS, TAGS, UNIQ_KEY, PropertyParser
from store_core.format.record.decode import corrupt_record_error, decode_topic, property_crc_error
from store_core.format.record.scan import check_record, format_host

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import numpy.typing as npt


_PORT_SIZE: Final = 4
_V4_SIZE: Final = np.dtype(np.int64).itemsize
"""Bytes of an IPv4 address with its port, which are handled as one number."""

_OFFSET: Final = np.dtype(">i8")


def host_column(heads: Heads, name: str) -> pa.StringArray:
    """Return a host of all records as text, as `store_core.format.record.scan.format_host` does for one.

    A broker has one address and a log few producers, so each distinct host of the batch is formatted once.

    * `name`: ``"born_host"`` or ``"store_host"``.
    """
    return _by_width(heads, lambda group: _host_texts(group[name]))


def _by_width(heads: Heads, convert: Callable[[npt.NDArray[np.void]], pa.StringArray]) -> pa.StringArray:
    """Convert the records of each head width separately, and restore their order."""
    pieces, rows = [], []
    for members, group in heads.groups():
        pieces.append(convert(group))
        if members is None:
            return pieces[0]
        rows.append(members)
    return take_rows(pa.concat_arrays(pieces), np.argsort(np.concatenate(rows)))


def _packed(column: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """Return a structured column as a table of bytes, shape (n, item size)."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(column.size, column.dtype.itemsize)


def _host_texts(hosts: npt.NDArray[np.void]) -> pa.StringArray:
    if not hosts.size:
        return pa.nulls(0, pa.string())
    size = hosts.dtype.itemsize
    packed = np.ascontiguousarray(hosts.view(f"V{size}"))
    words = packed.view(np.int64 if size == _V4_SIZE else np.int32).reshape(hosts.size, -1)
    if all((words[:, column] == words[0, column]).all() for column in range(words.shape[1])):
        return repeat_text(_format(packed[0].tobytes()), hosts.size)
    if size == _V4_SIZE:
        distinct = fixed_array(words[:, 0]).dictionary_encode()
        found = numbers(distinct.dictionary).view(packed.dtype).tolist()
    else:
        items = pa.Array.from_buffers(pa.binary(size), hosts.size, [None, pa.py_buffer(packed.view(np.uint8))])
        distinct = items.dictionary_encode()
        found = distinct.dictionary.to_pylist()
    return texts([_format(host) for host in found]).take(distinct.indices)


def _format(host: bytes) -> str:
    return format_host(host[:-_PORT_SIZE], int.from_bytes(host[-_PORT_SIZE:], signed=True))


def _message_ids(heads: npt.NDArray[np.void]) -> pa.StringArray:
    """Return the offset message ids of records, as `scan.message_id` does for one."""
    hosts, offsets = _packed(heads["store_host"]), heads["physical_offset"].copy().view(np.uint8)
    table = np.hstack([hosts, offsets.reshape(heads.size, _OFFSET.itemsize)])
    digits = table.tobytes().hex().upper().encode()
    width = 2 * table.shape[1]
    bounds = np.arange(heads.size + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.string(), heads.size, [None, pa.py_buffer(bounds), pa.py_buffer(digits)])


@dataclass(eq=False)
class Records:
    """Records of a segment that were found by following the chain."""

    raw: npt.NDArray[np.uint8]  # uint8, shape (m,), contiguous: the whole segment
    starts: npt.NDArray[np.int64]
    """int64, shape (n,), ascending: see `store_core.format.columnar.chain.chain`."""
    segment: str  # file name of the segment
    start_offset: int | npt.NDArray[np.int64]
    """Physical offset of the segment's first byte. Where records were read without what lies between them: int64, shape
    (n,), what to add to each one's start."""
    parser: PropertyParser = PropertyParser.FIRST_SEPARATOR  # how properties that are not plain are parsed
    entries: EntryLog | None = None  # the DLedger log in whose entries the records lie
    expanded: list[bytes | None] | None = None  # bodies to return instead of the stored ones
    has_nearest_times: bool = False
    """Whether times are as `store_core.format.columns.table_times` has them for what calculates with them."""
    store: str = ""  # what the store is called
    remarks: dict[int, CorruptRecordError] = field(default_factory=dict)
    """Why a value of a record is null that every record has, by where the record starts."""

    def __len__(self) -> int:
        """Return the number of records."""
        return self.starts.size

    def only(self, rows: npt.NDArray[np.bool_]) -> Records:
        """Return some of the records; this object itself if that is all."""
        if rows.all():
            return self
        start_offset = self.start_offset[rows] if isinstance(self.start_offset, np.ndarray) else self.start_offset
        chosen = Records(self.raw, self.starts[rows], self.segment, start_offset, self.parser, self.entries)
        chosen.remarks, chosen.store = self.remarks, self.store
        return chosen

    def start_offset_of(self, row: int) -> int:
        """Return what to add to the start of a record for its physical offset."""
        return int(self.start_offset[row]) if isinstance(self.start_offset, np.ndarray) else self.start_offset

    def offset(self, row: int) -> int:
        """Return the physical offset of a record."""
        return self.start_offset_of(row) + int(self.starts[row])

    @cached_property
    def heads(self) -> Heads:
        """Fixed parts of the records."""
        return Heads(self.raw, self.starts)

    @cached_property
    def spans(self) -> Spans:
        """Positions of the records' parts."""
        return measure(self.heads, self.start_offset)

    @cached_property
    def packed_topics(self) -> pa.BinaryArray:
        """Topics as stored."""
        return take_slices(self.raw, self.spans.topic_start, self.spans.topic_stop)

    @cached_property
    def topics(self) -> pa.StringArray | None:
        """Topics as text; None if any is not UTF-8."""
        return as_text(self.packed_topics)

    @cached_property
    def packed_properties(self) -> pa.BinaryArray:
        """Properties as stored."""
        return take_slices(self.raw, self.spans.properties_start, self.spans.stops)

    @cached_property
    def properties(self) -> PropertyColumns:
        """Properties, split into names and values."""
        return PropertyColumns(self.packed_properties, self.parser)

    @cached_property
    def tags(self) -> pa.StringArray:
        """Property TAGS."""
        return self.properties.value(TAGS)

    def column(self, name: str) -> pa.Array:
        """Return one column of `store_core.format.columns`; all records must be sound."""
        make, of_property = _MAKERS.get(name), property_of(name)
        if of_property is not None:
            return self.properties.value(of_property)
        return make(self) if make else fixed_array(self.heads.column(HEAD_FIELDS.get(name, name)))

    def body(self) -> pa.BinaryArray:
        """Return the bodies, the expanded ones if set."""
        if self.expanded is not None:
            return pa.array(self.expanded, pa.binary())
        return take_slices(self.raw, self.spans.body_start, self.spans.body_stop)

    def body_text(self) -> pa.StringArray:
        """Return the bodies as text; null where one is not UTF-8."""
        bodies = self.body()
        text = as_text(bodies)
        if text is not None:
            return text
        return pa.concat_arrays([as_text(bodies.slice(row, 1)) or pa.nulls(1, pa.string()) for row in range(len(self))])

    def corrupt_record(self) -> pa.BinaryArray:
        """Return the remarks as text; null for records without one."""
        if not self.remarks:
            return pa.nulls(len(self), pa.binary())
        remarks = [self.remarks.get(start) for start in self.starts.tolist()]
        return pa.array([None if remark is None else str(remark).encode() for remark in remarks], pa.binary())

    def timestamp(self, name: str) -> pa.TimestampArray:
        """Return a time column, ms converted to µs; null outside the range of tables."""
        return table_times(self.heads.column(name), is_nearest=self.has_nearest_times)

    def entry_column(self, name: str) -> pa.Array:
        """Return a field of the DLedger entries that hold the records; null in an ordinary log."""
        if self.entries is None:
            return pa.nulls(len(self), pa.int64())
        return fixed_array(entry_column(self.raw, self.starts, name))

    def is_committed(self) -> pa.BooleanArray:
        """Return which records are in committed entries; null where that is unknown, and in an ordinary log."""
        if self.entries is None or self.entries.committed_index is None:
            return pa.nulls(len(self), pa.bool_())
        are_committed = entry_column(self.raw, self.starts, "index") <= self.entries.committed_index
        return fixed_array(are_committed.view(np.uint8)).cast(pa.bool_())

    def named(self, mask: int, names: dict[int, str | None]) -> pa.StringArray:
        """Return the name for some bits of each record's sys_flag."""
        bits = fixed_array(self.heads.leading("sys_flag") & mask).dictionary_encode()
        found = [names[value] for value in bits.dictionary.to_pylist()]
        named = [pa.nulls(1, pa.string()) if name is None else repeat_text(name, 1) for name in found]
        return pa.concat_arrays([pa.nulls(0, pa.string()), *named]).take(bits.indices)


_TRANSACTION_NAMES: Final[dict[int, str | None]] = {kind.value: kind.name for kind in TransactionType}
_COMPRESSION_BITS: Final = int(COMPRESSION_MASK | MessageSysFlag.COMPRESSED_FLAG)


def _compression_name(bits: int) -> str | None:
    """Return the name of a compression; illegal ones have none."""
    try:
        return CompressionType.of(bits).name
    except ValueError:
        return None


_COMPRESSION_NAMES: Final[dict[int, str | None]] = {
    bits: _compression_name(bits) for bits in range(_COMPRESSION_BITS + 1) if bits & _COMPRESSION_BITS == bits
}
_MAKERS: Final[dict[str, Callable[[Records], Any]]] = {
    "topic": lambda records: records.topics,
    "store_timestamp": lambda records: records.timestamp("store_timestamp"),
    "born_timestamp": lambda records: records.timestamp("born_timestamp"),
    "store_host": lambda records: host_column(records.heads, "store_host"),
    "born_host": lambda records: host_column(records.heads, "born_host"),
    "tags": lambda records: records.tags,
    "keys": lambda records: split_key_column(records.properties.value(KEYS)),
    "properties": lambda records: records.properties.map(),
    "body": Records.body,
    "body_text": Records.body_text,
    "msg_id": lambda records: _by_width(records.heads, _message_ids),
    "unique_key": lambda records: records.properties.value(UNIQ_KEY),
    "uniq_msg_id": lambda records: records.properties.first(UNIQ_KEY),
    "properties_string": lambda records: records.packed_properties,
    "tags_code": lambda records: fixed_array(hash_codes(records.tags).astype(np.int64)),
    "segment": lambda records: repeat_text(records.segment, len(records)),
    "store": lambda records: repeat_text(records.store, len(records)),
    "transaction_type": lambda records: records.named(TRANSACTION_MASK, _TRANSACTION_NAMES),
    "compression": lambda records: records.named(_COMPRESSION_BITS, _COMPRESSION_NAMES),
    "dledger_index": lambda records: records.entry_column("index"),
    "dledger_term": lambda records: records.entry_column("term"),
    "dledger_committed": Records.is_committed,
    "_corrupt_record": Records.corrupt_record,
}


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
