# SPDX-License-Identifier: Apache-2.0
"""Many records into Arrow columns: only those asked for, and no Python object a record.

Equal, row by row, to `store_core.format.decode.decode_message`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from store_core.errors import CorruptRecordError, UnsafeSizeError
from store_core.format.columns import HEAD_FIELDS, arrow_schema
from store_core.format.compression import BodyTooLargeError, expand_body
from store_core.format.decode import corrupt_record_error, decode_topic
from store_core.format.hosts import host_column, message_id_column
from store_core.format.java_hash import hash_codes
from store_core.format.message import CRC_MASK
from store_core.format.properties import KEYS, TAGS, UNIQ_KEY, PropertyParser
from store_core.format.property_columns import PropertyColumns, split_key_column
from store_core.format.scan import check_record
from store_core.format.slices import as_text, fixed_array, repeat_text, take_slices
from store_core.format.spans import Heads, Spans, measure
from store_core.format.sys_flag import (
    COMPRESSION_MASK,
    TRANSACTION_MASK,
    CompressionType,
    MessageSysFlag,
    TransactionType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

__all__ = ["DecodedBatch", "Fault", "decode_batch"]

_MICROSECONDS: Final = 1000
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_LAST_MILLISECOND: Final = np.iinfo(np.int64).max // _MICROSECONDS
_EXPANDED_BATCH: Final = 256 << 20
"""Most bytes that the compressed bodies of one batch may expand to together."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A record that could not be decoded: its position in the segment, its size, and why."""

    position: int
    size: int
    error: CorruptRecordError


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """Rows of the records that could be decoded, and the faults of the others.

    Attributes
    ----------
    batch : pyarrow.RecordBatch
        The columns asked for, in that order.
    positions : numpy.ndarray
        int64, shape (rows,): where each row's record starts in the segment.
    faults : tuple of Fault
        Ascending by position.
    pending : numpy.ndarray
        int64: the last of the starts given, left for another call because their expanded bodies would not fit into one
        batch; nearly always none.
    """

    batch: pa.RecordBatch
    positions: npt.NDArray[np.int64]
    faults: tuple[Fault, ...]
    pending: npt.NDArray[np.int64]


def decode_batch(  # noqa: PLR0913 -- the records, the columns, and how strictly they are read
    raw: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    columns: Sequence[str],
    *,
    segment: str,
    start_offset: int,
    parser: PropertyParser = PropertyParser.FIRST_SEPARATOR,
    verify_crc: bool = True,
    decompress: bool = False,
    nullable: bool = False,
) -> DecodedBatch:
    """Decode records into the columns asked for.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,), contiguous: the segment from its first byte to its last.
    starts : numpy.ndarray
        int64, shape (n,), ascending: record starts that a chain led to, see `store_core.format.lockstep.chain`.
    columns : sequence of str
        Canonical column names, see `store_core.format.columns`.
    segment : str
        File name of the segment, for errors and the column ``segment``.
    start_offset : int
        Physical offset of the segment's first byte.
    parser : PropertyParser
        How properties that are not plain are read.
    verify_crc : bool
        Whether bodies must match their checksums; only where the column ``body`` is asked for.
    decompress : bool
        Whether the column ``body`` holds expanded bodies.
    nullable : bool
        Whether the schema declares every column nullable.

    Returns
    -------
    DecodedBatch
        Records whose parts do not add up, whose topic is asked for and not UTF-8, or whose body is asked for and
        damaged, are faults and not in the batch.
    """
    rows = _Rows(raw, starts, segment, start_offset, parser)
    faults = rows.structural_faults()
    if not faults:
        faults = rows.content_faults(columns, verify_crc=verify_crc, decompress=decompress)
    schema = arrow_schema(columns, nullable=nullable)
    if not faults and rows.fitting == starts.size:
        batch = pa.RecordBatch.from_arrays([rows.column(name) for name in columns], schema=schema)
        return DecodedBatch(batch, starts, (), starts[:0])
    kept = starts[: rows.fitting]
    kept = kept[~np.isin(kept, [fault.position for fault in faults])]
    again = decode_batch(
        raw,
        kept,
        columns,
        segment=segment,
        start_offset=start_offset,
        parser=parser,
        verify_crc=verify_crc,
        decompress=decompress,
        nullable=nullable,
    )
    merged = tuple(sorted([*faults, *again.faults], key=lambda fault: fault.position))
    return DecodedBatch(again.batch, again.positions, merged, np.concatenate([again.pending, starts[rows.fitting :]]))


@dataclass
class _Rows:
    """The records of one batch; what several columns share is made once, when the first of them asks."""

    raw: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    segment: str
    start_offset: int
    parser: PropertyParser
    expanded: list[bytes] | None = None

    def __post_init__(self) -> None:
        self.fitting = self.starts.size

    @cached_property
    def heads(self) -> Heads:
        return Heads(self.raw, self.starts)

    @cached_property
    def spans(self) -> Spans:
        return measure(self.heads, self.start_offset)

    @cached_property
    def packed_topics(self) -> pa.BinaryArray:
        return take_slices(self.raw, self.spans.topic_start, self.spans.topic_stop)

    @cached_property
    def properties(self) -> PropertyColumns:
        return PropertyColumns(take_slices(self.raw, self.spans.properties_start, self.spans.stops), self.parser)

    @cached_property
    def tags(self) -> pa.StringArray:
        return self.properties.value(TAGS)

    def structural_faults(self) -> list[Fault]:
        """Find records whose parts do not add up, or that belong elsewhere."""
        if self.spans.sound.all():
            return []
        data = self.raw.data
        faults = []
        for position in self.starts[~self.spans.sound].tolist():
            check = check_record(data, position, self.start_offset)
            error = corrupt_record_error(check, data, position, self.start_offset, self.segment)
            faults.append(Fault(position, check.size, error))
        return faults

    def content_faults(self, columns: Sequence[str], *, verify_crc: bool, decompress: bool) -> list[Fault]:
        """Find records whose topic or body, if asked for, can't be given."""
        faults: list[Fault] = []
        if "topic" in columns:
            faults += self._topic_faults()
        if "body" in columns and verify_crc:
            faults += self._crc_faults()
        if "body" in columns and decompress and not faults:
            faults += self._expand()
        if "compression" in columns:
            faults += self._compression_faults()
        return list({fault.position: fault for fault in reversed(faults)}.values())

    def _fault(self, row: int, error: CorruptRecordError) -> Fault:
        position = int(self.starts[row])
        return Fault(position, int(self.spans.stops[row]) - position, error)

    def _topic_faults(self) -> list[Fault]:
        if as_text(self.packed_topics) is not None:
            return []
        faults = []
        for row, topic in enumerate(self.packed_topics.to_pylist()):
            try:
                decode_topic(topic, self.start_offset + int(self.starts[row]), self.segment)
            except CorruptRecordError as error:
                faults.append(self._fault(row, error))
        return faults

    def _crc_faults(self) -> list[Fault]:
        view = self.raw.data
        bounds = zip(self.spans.body_start.tolist(), self.spans.body_stop.tolist(), strict=True)
        crcs = (
            np.fromiter((zlib.crc32(view[start:stop]) for start, stop in bounds), np.int64, self.starts.size) & CRC_MASK
        )
        wrong = (crcs != self.heads.leading("body_crc")) & (self.spans.body_stop > self.spans.body_start)
        return [self._fault(row, self._crc_error(row)) for row in np.flatnonzero(wrong).tolist()]

    def _crc_error(self, row: int) -> CorruptRecordError:
        data = self.raw.data
        position = int(self.starts[row])
        check = check_record(data, position, self.start_offset, verify_crc=True)
        return corrupt_record_error(check, data, position, self.start_offset, self.segment)

    def _compression_faults(self) -> list[Fault]:
        flags = self.heads.leading("sys_flag")
        packed = (flags & MessageSysFlag.COMPRESSED_FLAG) != 0
        illegal = packed & ((flags & COMPRESSION_MASK) > MessageSysFlag.COMPRESSION_ZLIB_TYPE)
        return [
            self._fault(
                row, self._body_error(row, "unknown compression type", "1 to 3 in bits 8 to 10", hex(flags[row]))
            )
            for row in np.flatnonzero(illegal).tolist()
        ]

    def _body_error(self, row: int, problem: str, expected: str, found: str) -> CorruptRecordError:
        return CorruptRecordError(problem, self.segment, self.start_offset + int(self.starts[row]), expected, found)

    def _expand(self) -> list[Fault]:
        """Expand the compressed bodies; the rows that can't be are faults."""
        flags = self.heads.leading("sys_flag")
        if not (flags & MessageSysFlag.COMPRESSED_FLAG).any():
            return []
        faults = self._compression_faults()
        illegal = {fault.position for fault in faults}
        self.expanded = []
        room = _EXPANDED_BATCH
        for row, start in enumerate(self.starts.tolist()):
            body = self.raw[self.spans.body_start[row] : self.spans.body_stop[row]].tobytes()
            kind = CompressionType.NONE if start in illegal or not body else CompressionType.of(int(flags[row]))
            try:
                body = expand_body(body, kind)
            except ValueError as error:
                faults.append(self._fault(row, self._expand_error(row, kind, error)))
            room -= len(body) if kind is not CompressionType.NONE else 0
            if room < 0 and row:
                self.fitting = row
                break
            self.expanded.append(body)
        return [fault for fault in faults if fault.position < self.starts[self.fitting - 1] + 1]

    def _expand_error(self, row: int, kind: CompressionType, error: ValueError) -> CorruptRecordError:
        offset = self.start_offset + int(self.starts[row])
        if isinstance(error, BodyTooLargeError):
            return UnsafeSizeError(
                "compressed body is too large",
                self.segment,
                offset,
                "at most 64 MiB expanded",
                str(error),
                b"",
                "Read it with decompress=false.",
            )
        return CorruptRecordError(
            "compressed body can't be expanded", self.segment, offset, f"{kind.name} data", str(error)
        )

    def column(self, name: str) -> pa.Array:
        """Make one column."""
        make = _MAKERS.get(name)
        return make(self) if make else fixed_array(self.heads.column(HEAD_FIELDS.get(name, name)))

    def body(self) -> pa.BinaryArray:
        if self.expanded is not None:
            return pa.array(self.expanded, pa.binary())
        return take_slices(self.raw, self.spans.body_start, self.spans.body_stop)

    def timestamp(self, name: str) -> pa.TimestampArray:
        """Give milliseconds as microseconds; times beyond Arrow's range become its first or last."""
        times = np.clip(self.heads.column(name), -_LAST_MILLISECOND, _LAST_MILLISECOND)
        times *= _MICROSECONDS
        return fixed_array(times, _TIMESTAMP)

    def named(self, mask: int, names: dict[int, str]) -> pa.StringArray:
        """Name each record by some bits of its sys_flag."""
        bits = fixed_array(self.heads.leading("sys_flag") & mask).dictionary_encode()
        texts = pa.array([names[value] for value in bits.dictionary.to_pylist()], pa.string())
        return texts.take(bits.indices)


_TRANSACTION_NAMES: Final = {kind.value: kind.name for kind in TransactionType}
_COMPRESSION_BITS: Final = COMPRESSION_MASK | MessageSysFlag.COMPRESSED_FLAG


def _compression_name(bits: int) -> str:
    try:
        return CompressionType.of(bits).name
    except ValueError:
        return ""


_COMPRESSION_NAMES: Final = {
    bits: _compression_name(bits) for bits in range(_COMPRESSION_BITS + 1) if bits & _COMPRESSION_BITS == bits
}
_MAKERS: Final[dict[str, Callable[[_Rows], Any]]] = {
    "topic": lambda rows: as_text(rows.packed_topics),
    "store_timestamp": lambda rows: rows.timestamp("store_timestamp"),
    "born_timestamp": lambda rows: rows.timestamp("born_timestamp"),
    "store_host": lambda rows: host_column(rows.heads, "store_host"),
    "born_host": lambda rows: host_column(rows.heads, "born_host"),
    "tags": lambda rows: rows.tags,
    "keys": lambda rows: split_key_column(rows.properties.value(KEYS)),
    "properties": lambda rows: rows.properties.map(),
    "body": _Rows.body,
    "msg_id": lambda rows: message_id_column(rows.heads),
    "unique_key": lambda rows: rows.properties.value(UNIQ_KEY),
    "tags_code": lambda rows: fixed_array(hash_codes(rows.tags).astype(np.int64)),
    "segment": lambda rows: repeat_text(rows.segment, rows.starts.size),
    "transaction_type": lambda rows: rows.named(TRANSACTION_MASK, _TRANSACTION_NAMES),
    "compression": lambda rows: rows.named(int(_COMPRESSION_BITS), _COMPRESSION_NAMES),
    "_corrupt_record": lambda rows: pa.nulls(rows.starts.size, pa.binary()),
}
