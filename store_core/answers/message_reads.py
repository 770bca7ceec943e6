# SPDX-License-Identifier: Apache-2.0
"""How answers read messages: a few columns of all, one read, several that share a scan, and single records."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import SegmentVanishedError
from store_core.format.columns import arrow_schema
from store_core.format.properties import PropertyParser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from store_core.files.segment_source import Segment
    from store_core.snapshot.store import Store
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions


PART_BYTES: Final = 512 << 20
"""Bytes of a range, on any engine, so that all engines leave the same groups out of a table."""

_SOUND: Final = "magic_code"
"""A column that each message has, and that rows of damaged ranges lack."""

_COUNTED: Final = ("physical_offset", "store_size", _SOUND)


class Gathered(Protocol):
    """Facts about the messages of some ranges: picklable, and of bounded size."""

    def add(self, batch: pa.RecordBatch, segment: Segment) -> None:
        """Add messages, which are in a segment, in log order."""

    def absorb(self, other: Self, /) -> None:
        """Add what was gathered of later ranges."""


Found = TypeVar("Found", bound=Gathered)


@dataclass(frozen=True, slots=True)
class ScanCounts:
    """How much was read.

    * `messages`, `bytes`: Messages, and bytes of their records.
    * `damaged_ranges`, `damaged_bytes`: What is no message within the log, in pieces of 16 MiB at most, and what is
      missing between segments, one for each place; a torn tail after the log's end is not counted.
    """

    messages: int = 0
    bytes: int = 0
    damaged_ranges: int = 0
    damaged_bytes: int = 0

    def __add__(self, other: ScanCounts) -> ScanCounts:
        return ScanCounts(
            self.messages + other.messages,
            self.bytes + other.bytes,
            self.damaged_ranges + other.damaged_ranges,
            self.damaged_bytes + other.damaged_bytes,
        )

    @classmethod
    def of(cls, messages: pa.RecordBatch, damage: pa.RecordBatch) -> Self:
        """Count messages and damaged ranges."""
        sizes = (pc.sum(each["store_size"], min_count=0).as_py() for each in (messages, damage))
        return cls(messages.num_rows, next(sizes), damage.num_rows, next(sizes))


@dataclass(frozen=True, slots=True)
class Scanned(Generic[Found]):
    """The result of one range."""

    found: Found
    counts: ScanCounts


class MessageScan(Generic[Found]):
    """A job that gathers something of each message, and counts them; see `store_core.store.parts.Job`.

    Damage ends nothing: what is no message is counted. Bodies are read, and checked, only if a column needs them,
    except those of the last records, which tell where the log ends.

    * `columns`: Columns of the batches, which may have others, too.
    * `nothing`: Returns what is gathered of no message; it is pickled.

    * `missing`: What is missing between segments, as damage.
    """

    def __init__(self, store: Store, columns: Sequence[str], nothing: Callable[[], Found]) -> None:
        from store_core.files.store_path import store_roots
        from store_core.store.read.option_values import ReadMode
        from store_core.store.read.read_options import ReadOptions
        from store_core.store.read.read_plan import plan_ranges

        self.nothing = nothing
        self.options = ReadOptions(
            verify_crc=False,
            columns=tuple(dict.fromkeys([*columns, *_COUNTED])),
            mode=ReadMode.PERMISSIVE,
            max_partition_bytes=PART_BYTES,
            fail_on_data_loss=False,
            nearest_times=True,
        )
        plan = plan_ranges(store, replace(self.options, verify_crc=True))  # where the log ends
        self.store = str(store_roots(store.paths)[0])
        self.ranges, self.notes = plan.ranges, plan.notes
        missing = sum(end - begin for begin, end in plan.missing)
        self.missing = ScanCounts(damaged_ranges=len(plan.missing), damaged_bytes=missing)

    def plan(self) -> Sequence[ReadRange]:
        """Return the ranges."""
        return self.ranges

    def run(self, part: ReadRange) -> Scanned[Found]:
        """Read a range."""
        from store_core.store.read.message_reader import read_range

        found, counts = self.nothing(), ScanCounts()
        for batch in read_range(part, self.options):
            messages, damage = messages_and_damage(batch, part)
            counts += ScanCounts.of(messages, damage)
            if messages.num_rows:
                found.add(messages, part.segment)
        return Scanned(found, counts)

    def merge(self, scanned: Iterable[Scanned[Found]]) -> tuple[Found, ScanCounts]:
        """Merge the results of all ranges."""
        found, counts = self.nothing(), self.missing
        for each in scanned:
            found.absorb(each.found)
            counts += each.counts
        return found, counts


def messages_and_damage(batch: pa.RecordBatch, part: ReadRange) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return messages and damaged ranges, without the torn tail."""
    if not batch.column(_SOUND).null_count:
        return batch, batch.slice(0, 0)
    is_damage = pc.is_null(batch.column(_SOUND))
    is_inside = pc.less(batch.column("physical_offset"), part.data_end)
    return batch.filter(pc.invert(is_damage)), batch.filter(pc.and_(is_damage, is_inside))


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
    """One read: its options, and what is kept of its rows."""

    options: ReadOptions
    reduced: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    """Makes of each batch the rows that are kept; a function of a module, since it is pickled."""
    flag_bits: int = 0
    """If not 0: a shared scan chooses records with one of these bits in ``sys_flag``, in place of those of topics."""

    def rows_of(self, part: ReadRange) -> pa.Table:
        """Return what is kept of a range."""
        from store_core.store.read.message_reader import read_range

        return self.table(read_range(part, self.options))

    def table(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return what is kept of rows."""
        schema = arrow_schema(self.options.columns, nullable=self.options.is_permissive)
        every = [pa.RecordBatch.from_pylist([], schema), *batches]
        return pa.Table.from_batches(every if self.reduced is None else map(self.reduced, every))

    def chosen(self, scanned: pa.RecordBatch) -> pa.BooleanArray:
        """Return which messages of a shared scan are read."""
        if self.flag_bits:
            return pc.not_equal(pc.bit_wise_and(scanned["sys_flag"], self.flag_bits), 0)
        return pc.is_in(scanned["topic"], value_set=pa.array(self.options.topic, pa.string()))


def read_of(
    columns: Sequence[str],
    reduced: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    *,
    flag_bits: int = 0,
    **options: object,
) -> MessageRead:
    """Return a read that goes on after damage.

    * `flag_bits`: As of `MessageRead`.
    * `options`: As of `store_core.ReadOptions.parse`.
    """
    from store_core.store.read.read_options import ReadOptions

    fixed = {"mode": "DROPMALFORMED", "fail_on_data_loss": False, "max_partition_bytes": PART_BYTES}
    parsed = ReadOptions.parse(columns=tuple(columns), **fixed, **options)
    return MessageRead(replace(parsed, nearest_times=True), reduced, flag_bits)


class ReadJob:
    """Reads a log; see `store_core.store.parts.Job`. Its result is a table, in log order."""

    def __init__(self, store: Store, read: MessageRead) -> None:
        self._read = read
        self._ranges, self.notes = _planned(store, read.options)

    def plan(self) -> Sequence[ReadRange]:
        """Return the ranges."""
        return self._ranges

    def run(self, part: ReadRange) -> pa.Table:
        """Read a range."""
        return self._read.rows_of(part)

    def merge(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Put the rows together."""
        return pa.concat_tables([self._read.table(()), *tables]).combine_chunks()


_PLACE: Final = ("physical_offset", "store_size")
_SCANNED: Final = (*_PLACE, "magic_code", "topic", "sys_flag")


@dataclass(frozen=True, slots=True)
class FoundRows:
    """What reads found, in log order."""

    tables: dict[str, pa.Table]  # by the name of the read
    damage: pa.Table  # `physical_offset` and `store_size` of what is no message


class SharedScan:
    """Reads a log for several reads at once, and finds its damage; see `store_core.store.parts.Job`.

    A scan of few columns chooses the records of all: reads alone would follow the log once each.

    * `reads`: By name. Each has topics, or flags.
    * `notes`: As of `ReadJob`.
    """

    def __init__(self, store: Store, reads: Mapping[str, MessageRead]) -> None:
        from store_core.store.read.option_values import ReadMode

        self._reads = dict(reads)
        options = next(iter(reads.values())).options
        self._scan = replace(options, columns=_SCANNED, mode=ReadMode.PERMISSIVE, topic=())
        self._ranges, self.notes = _planned(store, self._scan)

    def plan(self) -> Sequence[ReadRange]:
        """Return the ranges."""
        return self._ranges

    def run(self, part: ReadRange) -> FoundRows:
        """Scan a range, then read the chosen records; all records where single ones can't be read, as in archives."""
        from store_core.store.read.message_reader import read_range

        places: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._reads}
        damage: list[pa.RecordBatch] = []
        for batch in read_range(part, self._scan):
            messages, damaged = messages_and_damage(batch, part)
            damage.append(damaged.select(_PLACE))
            for name, read in self._reads.items():
                places[name].append(messages.select(_PLACE).filter(read.chosen(messages)))
        if not part.segment.is_plain:
            return FoundRows({name: read.rows_of(part) for name, read in self._reads.items()}, _joined(damage))
        tables = {name: read.table(_picked(part, places[name], read.options)) for name, read in self._reads.items()}
        return FoundRows(tables, _joined(damage))

    def merge(self, found: Iterable[FoundRows]) -> FoundRows:
        """Put the rows of all ranges together."""
        every = [FoundRows({name: read.table(()) for name, read in self._reads.items()}, _joined([])), *found]
        tables = {name: pa.concat_tables([each.tables[name] for each in every]) for name in self._reads}
        return FoundRows(tables, pa.concat_tables([each.damage for each in every]))


def _planned(store: Store, options: ReadOptions) -> tuple[tuple[ReadRange, ...], tuple[str, ...]]:
    """Return ranges without what a dead writer left after the log's end, which is no damage in it; and notes."""
    from store_core.store.read.read_plan import plan_ranges

    plan = plan_ranges(store, replace(options, verify_crc=True))  # the last bodies tell where the log ends
    return tuple(replace(each, end=min(each.end, each.data_end), torn_end=0) for each in plan.ranges), plan.notes


def _joined(places: Iterable[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(places, pa.schema([("physical_offset", pa.int64()), ("store_size", pa.int32())]))


def _picked(part: ReadRange, places: Iterable[pa.RecordBatch], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range that start at some places."""
    from store_core.store.read.message_reader import read_range
    from store_core.store.read.picks import NO_QUEUE, Picks

    found = _joined(places)
    if found.num_rows:
        starts, sizes = (found[name].to_numpy().astype(np.int64) for name in _PLACE)
        picks = Picks(starts, sizes, np.full(starts.size, NO_QUEUE, np.int32), np.zeros(starts.size, np.int64))
        yield from read_range(replace(part, picks=picks), options)


class SegmentOffsets(NamedTuple):
    """A segment, and offsets in it."""

    segment: Segment
    offsets: tuple[int, ...]


class RecordLookUp:
    """Finds records; see `store_core.store.parts.Job`. Its result has a row for each record, by its offset.

    * `segments`: Of the log, in order.
    * `offsets`: Physical offsets, where records may be or not.
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
