# SPDX-License-Identifier: Apache-2.0
"""The rows of a chunk of the log."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import LEFT_OUT, CorruptRecordError
from store_core.format.columnar.arrow_slices import fixed_array, numbers, texts, true_mask
from store_core.format.columnar.records import DecodedBatch, Decoding, Fault, Records, decode_records, is_covered
from store_core.format.columns import CORRUPT_RECORD, STORE
from store_core.format.filter.sql92_columns import evaluate_maps
from store_core.format.filter.sql92_parser import Sql92Expression, failure_of
from store_core.format.layout import TRANSACTION_MASK, TransactionType
from store_core.format.words import agreeing, counted
from store_core.store.read.option_values import checked_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.format.filter.message_selector import MessageSelector
    from store_core.store.read.read_options import ReadOptions

    _Mask = npt.NDArray[np.bool_]
    _Predicate = Callable[[pa.RecordBatch], _Mask]


_UNIQUE_KEYS: Final = ("unique_key", "uniq_msg_id")
_FIRST: Final = np.iinfo(np.int64).min
_LAST: Final = np.iinfo(np.int64).max


class RowFilter:
    """Filters rows by topic, queue, tag, key, id, position, queue offset, and a consumer's filter.

    * `unseen`: Topics of which no row was examined yet; those of rows that are, are taken out.

    * `columns`: Columns that `select` needs; empty if every row is requested.
    * `error_count`: Rows that pass all other filters, but on which the consumer's SQL92 expression failed; they are
      left out.
    * `first_error`: Where and why the first of these failed; empty if there is none.
    """

    def __init__(self, options: ReadOptions, unseen: set[str] | None = None) -> None:
        selector = options.selector
        self._rules = tuple(_rules(options, selector))
        self._sql = None if selector is None else selector.sql
        names = [name for names, _ in self._rules for name in names]
        self.columns = tuple(dict.fromkeys([*names, "properties"] if self._sql else names))
        self.error_count = 0
        self.first_error = ""
        self._unseen = unseen

    def select(self, batch: pa.RecordBatch, offsets: npt.NDArray[np.int64]) -> _Mask:
        """Return a mask of the requested rows, shape (rows,).

        * `batch`: Rows with the filter's columns.
        * `offsets`: int64, shape (rows,): physical offsets of the rows.
        """
        mask = np.ones(batch.num_rows, np.bool_)
        if self._unseen:
            asked, topics = texts(list(self._unseen)), batch.column("topic")
            self._unseen.difference_update(pc.unique(topics.filter(pc.is_in(topics, value_set=asked))).to_pylist())
        for _, rule in self._rules:
            mask &= rule(batch)
        return mask if self._sql is None else self._evaluated(self._sql, batch, mask, offsets)

    def error_text(self, where: str) -> str:
        """Return a message about the rows that the expression failed on."""
        return (
            f"the filter failed on {counted(self.error_count, 'message')} {where}, which therefore do not match, as in "
            f"RocketMQ's broker; the first is {self.first_error}"
        )

    def _evaluated(
        self, sql: Sql92Expression, batch: pa.RecordBatch, mask: _Mask, offsets: npt.NDArray[np.int64]
    ) -> _Mask:
        """Evaluate an expression on the rows that pass all other rules."""
        properties = batch.column("properties")
        verdicts = evaluate_maps(sql, properties if mask.all() else properties.filter(pa.array(mask)))
        self.error_count += verdicts.error_count
        if verdicts.error_count and not self.first_error:
            row = int(np.flatnonzero(mask)[verdicts.first_error])
            reason = failure_of(sql, dict(properties[row].as_py() or ()))
            self.first_error = f"at offset {offsets[row]}, {reason}"
        mask[mask] = verdicts.matches
        return mask


def _rules(options: ReadOptions, selector: MessageSelector | None) -> Iterator[tuple[tuple[str, ...], _Predicate]]:
    """Yield each rule with the columns it needs."""
    if options.topic:
        yield ("topic",), _one_of("topic", texts([checked_text("topic", topic) for topic in options.topic]))
    if options.topics_pattern is not None:
        yield ("topic",), _topic_matches(re.compile(options.topics_pattern))
    if options.queue_id:
        yield ("queue_id",), _one_of("queue_id", fixed_array(np.array(options.queue_id, np.int32)))
    if options.tag:
        yield ("tags",), _one_of("tags", texts(options.tag))
    yield from _identity_rules(options)
    if selector is not None:
        yield ("sys_flag",), _is_queued
        if not selector.is_all and selector.sql is None:
            yield ("tags",), _one_of("tags", texts(sorted(selector.tags.tags)))
    if options.start.queues or options.end.queues:
        yield ("topic", "queue_id", "queue_offset"), _QueueBounds(options)


def _identity_rules(options: ReadOptions) -> Iterator[tuple[tuple[str, ...], _Predicate]]:
    """Yield the rules that name single messages."""
    if options.key is not None:
        yield ("keys", *_UNIQUE_KEYS), _has_key(options.key)
    if options.unique_key is not None:
        yield _UNIQUE_KEYS, _has_unique_key(options.unique_key)
    if options.msg_id is not None:
        yield ("msg_id",), _one_of("msg_id", texts([options.msg_id]))
    if options.physical_offset is not None:
        yield (
            ("physical_offset",),
            _one_of("physical_offset", fixed_array(np.array([options.physical_offset], np.int64))),
        )


def _one_of(column: str, values: pa.Array) -> _Predicate:
    """Make the rule that a column has one of some values; null never matches."""
    return lambda batch: true_mask(pc.is_in(batch.column(column), value_set=values))


def _is_queued(batch: pa.RecordBatch) -> _Mask:
    """Return which records are in a queue, the only ones a consumer gets: not prepared and rolled-back ones."""
    kinds = numbers(batch.column("sys_flag")) & TRANSACTION_MASK
    mask: _Mask = np.isin(kinds, [kind.value for kind in TransactionType if kind.is_queued])
    return mask


def _topic_matches(pattern: re.Pattern[str]) -> _Predicate:
    """Make the rule that a pattern matches the whole topic; each distinct topic is tested once per batch."""

    def rule(batch: pa.RecordBatch) -> _Mask:
        topics = batch.column("topic").dictionary_encode()
        matches = [pattern.fullmatch(topic) is not None for topic in topics.dictionary.to_pylist()]
        mask: _Mask = np.array(matches, np.bool_)[numbers(topics.indices)]
        return mask

    return rule


def _has_key(key: str) -> _Predicate:
    """Make the rule that a message has a key, as RocketMQ indexes keys: each word of KEYS, and UNIQ_KEY."""
    unique, (wanted,) = _has_unique_key(key), texts([key])

    def rule(batch: pa.RecordBatch) -> _Mask:
        mask = unique(batch)
        keys = batch.column("keys")
        hits = true_mask(pc.equal(pc.list_flatten(keys), wanted))
        mask[numbers(pc.list_parent_indices(keys))[hits]] = True
        return mask

    return rule


def _has_unique_key(key: str) -> _Predicate:
    """Make the rule that a message has a key as UNIQ_KEY: as the last one, or the first, in a client's batch."""
    (wanted,) = texts([key])
    return lambda batch: np.any([true_mask(pc.equal(batch.column(name), wanted)) for name in _UNIQUE_KEYS], axis=0)


def has_message_named(records: Records, options: ReadOptions) -> bool:
    """Return whether one of some sound records is named by the options that name single messages."""
    for columns, rule in _identity_rules(options):
        arrays = [records.column(name) for name in columns]
        if rule(pa.RecordBatch.from_arrays(arrays, list(columns))).any():
            return True
    return False


class _QueueBounds:
    """The rule that queue offsets lie within the bounds of each named queue, both ends inclusive."""

    def __init__(self, options: ReadOptions) -> None:
        self._bounds: dict[str, dict[int, tuple[int, int]]] = {}
        for topic, queue, offset in options.start.queues:
            self._bounds.setdefault(topic, {})[queue] = (offset, _LAST)
        for topic, queue, offset in options.end.queues:
            queues = self._bounds.setdefault(topic, {})
            queues[queue] = (queues.get(queue, (_FIRST, _LAST))[0], offset - 1)

    def __call__(self, batch: pa.RecordBatch) -> _Mask:
        topics = batch.column("topic").dictionary_encode()
        codes = numbers(topics.indices)
        mask = np.ones(batch.num_rows, np.bool_)
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            if topic in self._bounds:
                rows = np.flatnonzero(codes == code)
                mask[rows] = self._within(topic, batch, rows)
        return mask

    def _within(self, topic: str, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> _Mask:
        queue_ids = numbers(batch.column("queue_id"))[rows]
        offsets = numbers(batch.column("queue_offset"))[rows]
        mask = np.ones(rows.size, np.bool_)
        for queue, (first, last) in self._bounds[topic].items():
            mask &= (queue_ids != queue) | ((offsets >= first) & (offsets <= last))
        return mask


@dataclass(frozen=True, slots=True, eq=False)
class RecordBytes:
    """Bytes of one or more places of a segment that hold records, one place behind the other."""

    raw: npt.NDArray[np.uint8]  # uint8, shape (m,)
    begins: npt.NDArray[np.int64]  # int64, shape (n,), ascending: where each place begins in `raw`
    offsets: npt.NDArray[np.int64]  # int64, shape (n,): the physical offset of each

    @classmethod
    def at(cls, raw: npt.NDArray[np.uint8], physical_offset: int) -> Self:
        """Return bytes as they lie in a segment, from a physical offset on."""
        return cls(raw, np.zeros(1, np.int64), np.array([physical_offset], np.int64))

    def start_offsets(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | int:
        """Return what to add to positions in them to get their physical offsets; int64, of the same shape, or one."""
        if self.begins.size == 1:
            return int(self.offsets[0] - self.begins[0])
        found: npt.NDArray[np.int64] = (self.offsets - self.begins)[
            np.searchsorted(self.begins, positions, "right") - 1
        ]
        return found


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """The content of one batch: records, and damaged ranges between them, as positions in the same bytes."""

    window: RecordBytes
    records: Records
    damaged: Sequence[tuple[int, int]] = ()


_log: Final = logging.getLogger("store_core")

WAYS_ON: Final = "mode=PERMISSIVE returns these bytes as a row with _corrupt_record"
"""What an error advises, whatever else."""

_WAYS_ON_WITHOUT_VALUE: Final = "mode=PERMISSIVE returns its row without the body"
_TIMES: Final = ("store_timestamp", "born_timestamp")
_DAMAGED_PIECE: Final = 16 << 20
"""Maximum damaged bytes in one row."""


class ChunkRows:
    """Makes rows of one segment.

    * `dropped`, `dropped_bytes`: How many damaged ranges or records were left out, and their size.
    * `first_dropped`: Physical offset of the first of them; -1 without any.
    """

    def __init__(self, segment: Segment, options: ReadOptions, unseen: set[str] | None) -> None:
        self._segment = segment
        self._options = options
        self._window = RecordBytes.at(np.empty(0, np.uint8), 0)
        self.filter = RowFilter(options, unseen)
        self.dropped = 0
        self.dropped_bytes = 0
        self.first_dropped = -1

    def records(self, window: RecordBytes, starts: npt.NDArray[np.int64]) -> Records:
        """Return the records that start at some positions of a window."""
        segment, parser = self._segment, self._options.property_parser
        found = Records(window.raw, starts, segment.name, window.start_offsets(starts), parser, segment.entries)
        found.store = self._options.store_name
        return found

    def kept(self, window: RecordBytes, damaged: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the damaged ranges of a window that become rows; the others are counted, unless they are an error."""
        if self._options.is_permissive or self._options.is_failfast:
            return damaged if self._options.is_permissive else []
        if damaged and not self.dropped:
            begin = np.array(damaged[0][:1], np.int64)
            self.first_dropped = int((begin + window.start_offsets(begin))[0])
        self.dropped += len(damaged)
        self.dropped_bytes += sum(end - begin for begin, end in damaged)
        return []

    def batches(self, chunk: ReadChunk) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a chunk; in mode FAILFAST, raise at the first record that can't be decoded."""
        self._window = chunk.window
        records, faults = self._select(chunk.records)
        damaged = list(chunk.damaged)
        while len(records) or faults or damaged:
            decoded = self._decode(records, self._options.columns)
            stop = int(decoded.pending[0]) if decoded.pending.size else self._window.raw.size
            found = [*decoded.faults, *(fault for fault in faults if fault.position < stop)]
            found.sort(key=lambda fault: fault.position)
            yield from self._finished(decoded, found, [piece for piece in damaged if piece[0] < stop])
            records, faults = self._records(decoded.pending), [fault for fault in faults if fault.position >= stop]
            damaged = [piece for piece in damaged if piece[0] >= stop]

    def log_left_out(self, begin: int, end: int) -> None:
        """Log what was left out of a range of physical offsets, in which all rows were read."""
        if self.filter.error_count:
            where = f"between offsets {begin} and {end}"
            _log.warning("%s: %s", self._segment.path, self.filter.error_text(where))
        if self.dropped:
            _log.warning(
                "%s: left out %s of %d bytes in all, %s offset %d",
                self._segment.path,
                f"{self.dropped:,} {agreeing(self.dropped, 'damaged range or record', 'damaged ranges or records')}",
                self.dropped_bytes,
                agreeing(self.dropped, "at", "the first at"),
                self.first_dropped,
                extra=LEFT_OUT,
            )

    def _records(self, starts: npt.NDArray[np.int64]) -> Records:
        return self.records(self._window, starts)

    def _select(self, records: Records) -> tuple[Records, list[Fault]]:
        """Select the requested records, without touching data that this does not need, above all bodies."""
        records = records.only(self._in_time(records))
        if not self.filter.columns:
            return records, []
        decoded = self._decode(records, self.filter.columns)
        mask = self.filter.select(decoded.batch, decoded.positions + self._window.start_offsets(decoded.positions))
        if decoded.positions.size == len(records):
            return records.only(mask), []
        return self._records(decoded.positions[mask]), list(decoded.faults)

    def _in_time(self, records: Records) -> npt.NDArray[np.bool_]:
        mask = np.ones(len(records), np.bool_)
        first, end = self._options.starting_timestamp, self._options.ending_timestamp
        if first is None and end is None:
            return mask
        times = records.heads.column("store_timestamp")
        if first is not None:
            mask &= times >= first
        if end is not None:
            mask &= times < end
        return mask

    def _decode(self, records: Records, columns: Sequence[str]) -> DecodedBatch:
        how = Decoding(
            verify_crc=self._options.verify_crc,
            verify_property_crc=self._verifies_record(columns),
            decompress=self._options.decompress,
            nullable=self._options.is_permissive,
            nearest_times=self._options.nearest_times,
        )
        return decode_records(records, columns, how)

    def _verifies_record(self, columns: Sequence[str]) -> bool:
        """Return whether records are compared with the checksum over all of them: once, by the filter's columns."""
        is_checked = columns is not self.filter.columns and is_covered(self.filter.columns)
        return self._options.verify_crc and not is_checked

    def _finished(
        self, decoded: DecodedBatch, faults: list[Fault], damaged: list[tuple[int, int]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the decoded rows, with rows for damage in their places."""
        batch = decoded.batch
        self._note_times(decoded)
        if faults and self._options.is_failfast:
            batch = batch.slice(0, int(np.searchsorted(decoded.positions, faults[0].position)))
        else:
            pieces = [piece for fault in faults for piece in pieces_of(fault.position, fault.position + fault.size)]
            damaged = [*damaged, *self.kept(self._window, pieces)]
            batch = self._merged(batch, decoded.positions, damaged) if damaged else batch
        if batch.num_rows:
            yield batch
        if faults and self._options.is_failfast:
            raise self._fault_error(faults[0])

    def _note_times(self, decoded: DecodedBatch) -> None:
        """Say once in a read that a time is null: of the first such record."""
        for name in {*_TIMES} & {*decoded.batch.schema.names}:
            column = decoded.batch[name]
            if column.null_count and name not in self._options.told:
                record = self._records(decoded.positions[column.is_null().index(True).as_py() :][:1])
                place = f"{self._segment.path}: the record at offset {record.offset(0)}"
                number = int(record.heads.column(name)[0])
                tell_null_time(self._options, place, name, number, f"; column {name}_ms has the stored number")

    def _fault_error(self, fault: Fault) -> CorruptRecordError:
        """Add the file's path and the ways to continue to a record's error."""
        path, error = self._segment.path, fault.error
        ways_on = _WAYS_ON_WITHOUT_VALUE if fault.is_sound else WAYS_ON
        advice = f"{error.advice} mode=DROPMALFORMED leaves the record out; {ways_on}.".strip()
        return type(error)(error.problem, path, error.offset, error.expected, error.found, error.next_bytes, advice)

    def _merged(
        self, batch: pa.RecordBatch, positions: npt.NDArray[np.int64], damaged: list[tuple[int, int]]
    ) -> pa.RecordBatch:
        begins = np.array([begin for begin, _ in damaged], np.int64)
        table = pa.Table.from_batches([batch, self._damaged_batch(damaged, batch.schema)])
        order = np.argsort(np.concatenate([positions, begins]), kind="stable")
        return table.combine_chunks().take(order).combine_chunks().to_batches()[0]

    def _damaged_batch(self, damaged: list[tuple[int, int]], schema: pa.Schema) -> pa.RecordBatch:
        """Make the rows of damaged ranges: position, bytes, and nulls."""
        begins = np.array([begin for begin, _ in damaged], np.int64)
        known = {
            "physical_offset": (begins + self._window.start_offsets(begins)).tolist(),
            "store_size": [end - begin for begin, end in damaged],
            "segment": [self._segment.name] * len(damaged),
            STORE: [self._options.store_name] * len(damaged),
        }
        if CORRUPT_RECORD in schema.names:
            known[CORRUPT_RECORD] = [self._window.raw[begin:end].tobytes() for begin, end in damaged]
        nothing = [None] * len(damaged)
        arrays = [pa.array(known.get(column.name, nothing), column.type) for column in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def tell_null_time(options: ReadOptions, place: str, name: str, number: int, advice: str = "") -> None:
    """Say that a time is null because no table holds it, once in a read."""
    if name not in options.told:
        options.told.add(name)
        text = "%s: its %s is %d ms since 1970, outside the years 1 to 9999, so it is null, as are others like it%s"
        _log.warning(text, place, name, number, advice)


def pieces_of(begin: int, end: int) -> list[tuple[int, int]]:
    """Return a damaged range in pieces that fit into a row each."""
    return [(piece, min(piece + _DAMAGED_PIECE, end)) for piece in range(begin, end, _DAMAGED_PIECE)]
