# SPDX-License-Identifier: Apache-2.0
"""The records of one batch as columns, each made on request; intermediate results are made once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

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
from store_core.format.columnar.spans import EntryLog, Heads, Spans, entry_column, measure
from store_core.format.columns import HEAD_FIELDS, property_of, table_times
from store_core.format.layout import (
    COMPRESSION_MASK,
    TRANSACTION_MASK,
    CompressionType,
    MessageSysFlag,
    TransactionType,
)
from store_core.format.properties import KEYS, TAGS, UNIQ_KEY, PropertyParser
from store_core.format.record.scan import format_host

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from store_core.errors import CorruptRecordError


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
