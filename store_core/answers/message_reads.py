# SPDX-License-Identifier: Apache-2.0
"""How answers about messages read them: several reads share a scan, and single records are looked up."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.message_scan import PART_BYTES
from store_core.errors import SegmentVanishedError
from store_core.files.store_kind import has_queues
from store_core.files.store_path import store_roots
from store_core.format.columnar.arrow_slices import true_mask
from store_core.format.columns import CORRUPT_RECORD, arrow_schema
from store_core.format.properties import PropertyParser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.snapshot.store import Store
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions
    from store_core.store.read.read_plan import ReadPlan


ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
"""Of a retry and a dead letter: the offset message id of the first message."""
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
"""Of a dead letter of RocketMQ 5: the topic of the message that failed last."""
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
"""Of a dead letter of RocketMQ 5: the id of the message that failed last."""

REPLAY_ID: Final = "REPLAY_ID"
"""Of a replayed message: the name of the replay."""
REPLAY_ORIGIN_MESSAGE_ID: Final = "REPLAY_ORIGIN_MESSAGE_ID"
"""Of a replayed message: the offset message id of the record that was replayed."""
REPLAY_ORIGIN_TOPIC: Final = "REPLAY_ORIGIN_TOPIC"
"""Of a replayed message: the topic of that record."""


@dataclass(frozen=True, slots=True)
class MessageRead:
    """One read."""

    options: ReadOptions
    reduced: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    """Makes of each batch the rows that are kept; a function of a module, since it is pickled."""
    flag_bits: int = 0
    """If not 0: only records with one of these bits in ``sys_flag`` are kept by `reduced`, and damage."""

    def rows_of(self, part: ReadRange) -> pa.Table:
        """Return what is kept of a range."""
        from store_core.store.read.message_reader import read_range

        return self.table_of(read_range(part, self.options))

    def table_of(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return what is kept of rows."""
        return pa.Table.from_batches([self.kept(self._empty()), *map(self.kept, batches)])

    def whole(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the rows of several ranges."""
        nothing = pa.Table.from_batches([self.kept(self._empty())])
        return pa.concat_tables([nothing, *tables]).combine_chunks()

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what is kept of a batch."""
        return batch if self.reduced is None else self.reduced(batch)

    def _empty(self) -> pa.RecordBatch:
        schema = arrow_schema(self.options.columns, nullable=self.options.is_permissive)
        return pa.RecordBatch.from_pylist([], schema)


def read_of(
    columns: Sequence[str],
    reduced: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    *,
    is_permissive: bool = False,
    flag_bits: int = 0,
    **options: object,
) -> MessageRead:
    """Return a read that goes on after damage, and makes rows of it if it is permissive.

    * `flag_bits`: As of `MessageRead`.
    * `options`: As of `store_core.ReadOptions.parse`.
    """
    from store_core.store.read.read_options import ReadOptions

    mode = "PERMISSIVE" if is_permissive else "DROPMALFORMED"
    fixed = {"mode": mode, "fail_on_data_loss": False, "max_partition_bytes": PART_BYTES}
    parsed = ReadOptions.parse(columns=tuple(columns), **fixed, **options)
    return MessageRead(replace(parsed, nearest_times=True), reduced, flag_bits)


_COLUMNS: Final = ("physical_offset", "store_size", "magic_code", "topic", "sys_flag")
"""Columns of the scan."""

_CHECKED: Final = frozenset({"body", CORRUPT_RECORD})
"""Columns by which a record that is whole may be damage: not those of the scan."""

_KNOWN: Final = _COLUMNS[:2]
"""What is known of damage."""

_SOUND: Final = "magic_code"
"""A column that each message has, and that rows of damaged ranges lack."""


def can_share_scan(read: MessageRead) -> bool:
    """Return whether a read takes only some records, and a scan of topics and flags can choose them."""
    from store_core.store.read.chunk_rows import RowFilter

    options = read.options
    if options.is_permissive and set(options.columns) & _CHECKED:
        return False  # each record with a broken body is a row
    has_times = options.starting_timestamp is not None or options.ending_timestamp is not None
    needed = RowFilter(options).columns
    is_some = bool(needed or read.flag_bits)
    return is_some and set(needed) <= set(_COLUMNS) and not has_times and CORRUPT_RECORD not in options.columns


def rows_by_one_scan(reads: Mapping[str, tuple[MessageRead, ReadRange]]) -> list[tuple[str, pa.Table]]:
    """Return the rows of several reads of a range, as `MessageRead.rows_of` of each, by one scan.

    * `reads`: By name. Ranges that begin at one offset of one segment, without picks; in a growing log, ends may
      differ.
    """
    from store_core.store.read.message_reader import read_range
    from store_core.store.read.option_values import ReadMode

    chosen = {name: _Chosen(read, part) for name, (read, part) in reads.items()}
    widest = max((part for _, part in reads.values()), key=lambda part: (part.data_end, part.end))
    options = next(iter(reads.values()))[0].options
    is_permissive = any(read.options.is_permissive for read, _ in reads.values())
    mode = ReadMode.PERMISSIVE if is_permissive else ReadMode.DROPMALFORMED
    scan = replace(options, columns=_COLUMNS, mode=mode, topic=(), topics_pattern=None)
    topics = _topics_of([read for read, _ in reads.values()])
    bits = reduce(or_, (read.flag_bits for read, _ in reads.values()))
    for batch in read_range(widest, scan):
        rows = batch if topics is None else _narrowed(batch, topics, bits)
        for each in chosen.values() if rows.num_rows else ():
            each.add(rows)
    return [(name, each.table()) for name, each in chosen.items()]


def _topics_of(reads: Sequence[MessageRead]) -> pa.Array | None:
    """Return the topics of all reads that choose by topic alone; None if one chooses by something else."""
    from store_core.store.read.chunk_rows import RowFilter

    topical = [read for read in reads if RowFilter(read.options).columns]
    if any(read.options.topics_pattern is not None or not read.options.topic for read in topical):
        return None
    return pa.array(dict.fromkeys(topic for read in topical for topic in read.options.topic), pa.string())


def _narrowed(batch: pa.RecordBatch, topics: pa.Array, bits: int) -> pa.RecordBatch:
    """Return the rows that any read may choose, and those of damage."""
    mask = true_mask(pc.is_in(batch.column("topic"), value_set=topics))
    flags = batch.column("sys_flag")
    if flags.null_count:
        mask |= true_mask(flags.is_null())
        flags = pc.fill_null(flags, 0)
    mask |= (flags.to_numpy() & bits) != 0
    return batch.filter(pa.array(mask)) if mask.any() else batch.slice(0, 0)


class _Chosen:
    """The records of a range that one read needs, and the damage in it."""

    def __init__(self, read: MessageRead, part: ReadRange) -> None:
        from store_core.store.read.chunk_rows import RowFilter

        self._read = read
        self._part = part
        self._filter = RowFilter(read.options)
        self._end, self._lead = min(part.end, part.data_end), part.segment.framing.lead
        self._records: list[npt.NDArray[np.int64]] = []
        self._damage: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take what is needed of some rows of the scan."""
        offsets = batch.column("physical_offset").to_numpy()
        mask = offsets < self._end + self._lead
        if batch.column(_SOUND).null_count:
            is_damage = batch.column(_SOUND).is_null().to_numpy(zero_copy_only=False)
            is_kept = is_damage & (offsets < self._end)
            if self._read.options.is_permissive and is_kept.any():
                self._damage.append(batch.select(_KNOWN).filter(pa.array(is_kept)))
            mask &= ~is_damage
        if self._read.flag_bits:
            flags = pc.fill_null(batch.column("sys_flag"), 0).to_numpy()
            mask &= (flags & self._read.flag_bits) != 0
        if self._filter.columns and mask.any():
            mask &= self._filter.select(batch, offsets)
        if mask.any():
            sizes = batch.column("store_size").to_numpy()
            self._records.append(np.stack([offsets[mask], sizes[mask]]).astype(np.int64))

    def table(self) -> pa.Table:
        """Return what the read keeps of them, in log order."""
        return self._read.table_of(self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        batches = self._messages()
        if not self._damage:
            yield from batches
            return
        schema = arrow_schema(self._read.options.columns, nullable=True)
        damage = [_with_nulls(each, schema) for each in self._damage]
        yield from pa.Table.from_batches([*batches, *damage], schema).sort_by(_KNOWN[0]).combine_chunks().to_batches()

    def _messages(self) -> Iterator[pa.RecordBatch]:
        from store_core.store.read.message_reader import read_range
        from store_core.store.read.picks import NO_QUEUE, Picks

        if self._records:
            starts, sizes = np.concatenate(self._records, axis=1)
            queues = np.full(starts.size, NO_QUEUE, np.int32)
            picks = Picks(starts, sizes, queues, np.zeros(starts.size, np.int64))
            yield from read_range(replace(self._part, picks=picks), self._read.options)


def _with_nulls(damage: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of damage with all columns of a read."""
    arrays = [
        damage.column(field.name) if field.name in _KNOWN else pa.nulls(damage.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class ReadPart:
    """A piece of the log, and the ranges of it that reads need: several if one scan chooses the records of all."""

    ranges: tuple[tuple[str, ReadRange], ...]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """What the reads found."""

    tables: dict[str, pa.Table]  # by the name of the read, in log order
    notes: tuple[str, ...]  # what an operator should know of the log


class ReadJob:
    """Reads a log for several reads at once, in parts; see `store_core.store.parts.Job`.

    A read that queues give a look-up for reads what that picked. The others share one scan of the log where they can,
    which chooses the records of each: see `rows_by_one_scan`.

    * `reads`: By name. All see the log as of the store's moment.
    """

    def __init__(self, store: Store, reads: Mapping[str, MessageRead]) -> None:
        self.reads = dict(reads)
        plans = self._plans(store)
        self.notes = tuple(dict.fromkeys(note for plan in plans.values() for note in plan.notes))
        self.parts = self._parts(plans)

    def plan(self) -> Sequence[ReadPart]:
        """Return the parts: what each read needs of each segment."""
        return self.parts

    def _parts(self, plans: Mapping[str, ReadPlan]) -> Sequence[ReadPart]:
        found = [(name, _without_tail(part)) for name, plan in plans.items() for part in plan.ranges]
        shared: dict[tuple[str, int], list[tuple[str, ReadRange]]] = {}
        parts = []
        for name, part in found:
            if part.picks is None and part.segment.is_plain and can_share_scan(self.reads[name]):
                shared.setdefault((part.segment.path, part.begin), []).append((name, part))
            else:
                parts.append(ReadPart(((name, part),)))
        parts += [ReadPart(tuple(ranges)) for ranges in shared.values()]
        return sorted(parts, key=lambda each: each.ranges[0][1].begin)  # of each read, in log order

    def _plans(self, store: Store) -> dict[str, ReadPlan]:
        """Plan each read; where no queue can look anything up, reads that share a scan share its plan, too."""
        plans: dict[str, ReadPlan] = {}
        shared: ReadPlan | None = None
        can_look_up = any(map(has_queues, store_roots(store.paths)))
        for name, read in self.reads.items():
            can_share = not can_look_up and can_share_scan(read)
            plans[name] = shared if can_share and shared is not None else _planned(store, read)
            shared = plans[name] if can_share else shared
        return plans

    def run(self, part: ReadPart) -> list[tuple[str, pa.Table]]:
        """Read one part."""
        if len(part.ranges) == 1 and not self._is_scanned_alone(*part.ranges[0]):
            return [(name, self.reads[name].rows_of(each)) for name, each in part.ranges]
        return rows_by_one_scan({name: (self.reads[name], each) for name, each in part.ranges})

    def _is_scanned_alone(self, name: str, part: ReadRange) -> bool:
        """Return whether even one read by flags is faster if a scan chooses its few records: it has no filter."""
        read = self.reads[name]
        return bool(read.flag_bits) and part.picks is None and part.segment.is_plain and can_share_scan(read)

    def merge(self, partials: Iterable[list[tuple[str, pa.Table]]]) -> FoundRows:
        """Put the rows of each read together."""
        found: dict[str, list[pa.Table]] = {name: [] for name in self.reads}
        for name, table in (each for partial in partials for each in partial):
            found[name].append(table)
        return FoundRows({name: self.reads[name].whole(tables) for name, tables in found.items()}, self.notes)


def _planned(store: Store, read: MessageRead) -> ReadPlan:
    """Plan a read; the last bodies tell where the log ends, whether the others are checked or not."""
    from store_core.store.read.read_plan import plan_ranges

    return plan_ranges(store, replace(read.options, verify_crc=True))


def _without_tail(part: ReadRange) -> ReadRange:
    """Return a range without what a dead writer left after the log's end: that is no damage in it."""
    return replace(part, end=min(part.end, part.data_end), torn_end=0)


class SegmentOffsets(NamedTuple):
    """A segment, and offsets in it."""

    segment: Segment
    offsets: tuple[int, ...]


class RecordLookUp:
    """Finds records; see `store_core.store.parts.Job`. Its result has a row for each record, by its offset.

    * `segments`: Of the log, in order.
    * `offsets`: Physical offsets, where records may be or not.
    * `release`: By which properties are parsed.
    """

    def __init__(self, segments: Sequence[Segment], offsets: Iterable[int], release: str) -> None:
        self.segments = tuple(segments)
        self.offsets = sorted(set(offsets))
        self.parser = PropertyParser.of_release(release)

    def plan(self) -> Sequence[SegmentOffsets]:
        """Return the parts: the segments with any of the offsets."""
        parts = []
        for segment in self.segments:
            first, stop = (bisect_left(self.offsets, at) for at in (segment.start_offset, segment.end_offset))
            if first < stop:
                parts.append(SegmentOffsets(segment, tuple(self.offsets[first:stop])))
        return parts

    def run(self, part: SegmentOffsets) -> list[dict[str, Any]]:
        """Return the records of a segment; where there is none that carries its own offset, nothing."""
        from store_core.store.segment_diff import record_rows, records_of

        try:
            found = records_of(part.segment, part.offsets, self.parser)
            return [row for records in found for row in record_rows(records)]
        except SegmentVanishedError:
            return []

    def merge(self, partials: Iterable[list[dict[str, Any]]]) -> dict[int, dict[str, Any]]:
        """Put the records together."""
        return {row["physical_offset"]: row for rows in partials for row in rows}


MISSING_BYTES: Final = "bytes of segments that are missing from the log: their records are in no table"
"""What the fact `missing_bytes` is."""


def missing_line(missing_bytes: int) -> str:
    """Return what a report says of missing files."""
    return f"{missing_bytes:,} bytes of the log are missing: what was in them is not counted"
