# SPDX-License-Identifier: Apache-2.0
"""Reading the messages of a log as Arrow batches."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from store_core.errors import CorruptRecordError, SegmentVanishedError
from store_core.files.segment_source import open_segment
from store_core.format.columnar.chain import Chain, Place
from store_core.format.columnar.decode_batch import decode_records
from store_core.format.columnar.lockstep import count_sound
from store_core.format.columnar.records import Records
from store_core.format.columns import CORRUPT_RECORD
from store_core.format.damage.salvage import Damage, Salvage
from store_core.format.record.decode import corrupt_record_error
from store_core.format.record.scan import StopReason, check_record
from store_core.store.memory import keep_freed_memory
from store_core.store.read.read_chunk import ReadChunk
from store_core.store.read.row_filter import RowFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment, SegmentBytes
    from store_core.format.columnar.chain import Run
    from store_core.format.columnar.decode_batch import DecodedBatch, Fault
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions
    from store_core.store.read.stored_topics import TopicWatch

__all__ = ["read_range"]

_log: Final = logging.getLogger("store_core")

_DAMAGED_PIECE: Final = 16 << 20
"""Maximum damaged bytes in one row."""

_SOUND_AGAIN: Final = 1 << 20
"""Bytes of undamaged records after which a chain is followed again: a chain's records are measured only once."""

_WAYS_ON: Final = "mode=PERMISSIVE returns these bytes as a row with _corrupt_record"


def read_range(
    part: ReadRange,
    options: ReadOptions,
    mapped: Mapping[Segment, Chain] | None = None,
    watch: TopicWatch | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read one range of a plan; ranges can be read in any order, by any process that sees the files.

    Parameters
    ----------
    part : ReadRange
    options : ReadOptions
        The options of the plan; columns may differ, and store times may be narrower.
    mapped : mapping of Segment to Chain, optional
        Segments already mapped, and their chains as far as they were walked; the records picked in them were checked.
    watch : TopicWatch, optional
        Is told the topics that are read.

    Yields
    ------
    pyarrow.RecordBatch
        With at least one row, in log order.

    Raises
    ------
    CorruptRecordError
        In mode FAILFAST, after the rows before the damage.
    SegmentVanishedError
        If the segment was deleted since the plan was made, unless `fail_on_data_loss` is off.
    """
    if not part.may_hold(options):
        return
    keep_freed_memory()
    try:
        opened = open_segment(part.segment)
    except SegmentVanishedError as error:
        if options.fail_on_data_loss:
            raise
        _log.warning("%s", error)
        return
    with opened:
        known = (mapped or {}).get(part.segment)
        checked = part.checked(opened.raw) if known is None else part
        yield from _RangeReader(checked, options, _chain(part.segment, opened, known), watch).batches()


def _chain(segment: Segment, opened: SegmentBytes, known: Chain | None) -> Chain:
    """Return the segment's chain, reusing the one that planning followed, and its mapping, if any."""
    if known is None:
        return Chain(segment.view(opened))
    return replace(known, segment=replace(known.segment, next_data=opened.next_data))


class _RangeReader:
    def __init__(
        self,
        part: ReadRange,
        options: ReadOptions,
        chain: Chain,
        watch: TopicWatch | None,
    ) -> None:
        self._range = part
        self._options = options
        start = self._start_offset = part.segment.start_offset
        self._begin, self._end, self._data_end = part.begin - start, part.end - start, part.data_end - start
        self._limit = min(self._end, self._data_end)
        self._walk_start = 0 if part.walk_start is None else part.walk_start - start
        self._whole = chain.segment.raw
        self._raw = self._whole[: max(part.data_end, part.torn_end) - start]
        self._chain = chain.up_to(self._data_end)
        self._salvage = Salvage(self._chain.segment, only_newer=part.is_last)
        self._chunk = ReadChunk()
        self._filter = RowFilter(options, watch)
        self._dropped = 0
        self._dropped_bytes = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for chunk in self._chunks():
            yield from self._rows(chunk)
        if self._filter.error_count:
            where = f"between offsets {self._range.begin} and {self._range.end}"
            _log.warning("%s: %s", self._range.segment.path, self._filter.error_text(where))
        if self._dropped:
            _log.warning(
                "%s: left out %d damaged ranges or records of %d bytes in all, between offsets %d and %d",
                self._range.segment.path,
                self._dropped,
                self._dropped_bytes,
                self._range.begin,
                self._range.end,
            )

    # -------------------------------------------------------------------------------------------------------- chunks

    def _chunks(self) -> Iterator[ReadChunk]:
        """Split what is read into one chunk per batch; in mode FAILFAST, raise at damage after the chunk before it."""
        if self._range.picks is not None:
            starts, sizes = self._range.picks.starts - self._start_offset, self._range.picks.sizes
            yield from self._fill(starts, np.append(0, sizes.cumsum()), len)
            yield self._chunk
            return
        place = yield from self._read_chain(self._chain.runs(self._walk_start, self._limit), Place(self._walk_start))
        while place.position < self._limit:
            place = yield from self._read_salvage(place)
            rest = self._chain.runs(place.position, self._limit, window=_SOUND_AGAIN)
            place = yield from self._read_chain(rest, place)
        for damage in self._torn_tail():
            yield from self._take_damage(damage)
        yield self._chunk

    def _read_chain(self, runs: Iterator[Run], place: Place) -> Generator[ReadChunk, None, Place]:
        """Take the chain's records; return where the chain breaks, or the first record that is not sound."""
        for run in runs:
            sound = yield from self._take_sound(run)
            if sound < run.starts.size:
                last_sound = int(run.starts[sound - 1]) if sound else place.last_sound
                return Place(int(run.starts[sound]), last_sound)
            place = run.place
        return place

    def _read_salvage(self, place: Place) -> Generator[ReadChunk, None, Place]:
        """Take what is found after a break; return where the segment is sound enough to follow its chain again."""
        for part in self._salvage.parts(place, self._limit):
            if isinstance(part, Damage):
                yield from self._take_damage(part)
                continue
            mine = part.between(self._begin, self._limit)
            if mine is not None:
                yield from self._fill(mine.starts, mine.bounds, len)
            if part.size >= _SOUND_AGAIN:
                return part.place
        return Place(self._limit)

    def _take_sound(self, run: Run) -> Generator[ReadChunk, None, int]:
        """Measure records and take those of the range; return how many precede the first unsound one."""
        first = int(np.searchsorted(run.starts, self._begin))
        before = count_sound(self._raw, run.starts[:first], self._start_offset)
        mine = run.between(self._begin, self._limit)
        if before < first or mine is None:
            return before
        return first + (yield from self._fill(mine.starts, mine.bounds, _count_sound))

    def _fill(
        self, starts: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64], count_sound: Callable[[Records], int]
    ) -> Generator[ReadChunk, None, int]:
        """Put records, whose sizes are the differences of `bounds`, into chunks up to the first unsound one.

        Returns how many.
        """
        taken = 0
        while taken < starts.size:
            count = self._chunk.room(bounds[taken:], self._options.max_records_per_batch)
            if not count:
                yield self._full_chunk()
                continue
            records = self._records(starts[taken : taken + count])
            sound = count_sound(records)
            if sound < count:
                records = self._records(records.starts[:sound])
            self._chunk.take(records, int(bounds[taken + sound] - bounds[taken]))
            taken += sound
            if sound < count:
                break
        return taken

    def _take_damage(self, damage: Damage) -> Iterator[ReadChunk]:
        error = self._damage_error(damage)
        if error is not None:
            yield self._full_chunk()
            raise error
        for begin, end in self._damaged_rows(damage):
            if not self._chunk.take_damage(begin, end, self._options.max_records_per_batch):
                yield self._full_chunk()
                self._chunk.take_damage(begin, end, self._options.max_records_per_batch)

    def _full_chunk(self) -> ReadChunk:
        """Return the current chunk, and start another."""
        full, self._chunk = self._chunk, ReadChunk()
        return full

    def _torn_tail(self) -> Iterator[Damage]:
        """Find what follows the records, unless a writer has finished the record since the plan was made."""
        at, verify_crc = self._data_end, self._options.verify_crc
        if self._raw.size > at < self._end:
            check = check_record(self._whole.data, at, self._start_offset, verify_crc=verify_crc)
            if check.reason is not None:
                yield Damage(at, self._raw.size, check, is_followed=False)

    def _records(self, starts: npt.NDArray[np.int64]) -> Records:
        segment = self._range.segment.name
        return Records(self._raw, starts, segment, self._start_offset, self._options.property_parser)

    def _damage_error(self, damage: Damage) -> CorruptRecordError | None:
        """Make the error for damage that ends the read; None for damage that is skipped."""
        if not self._options.is_failfast or not damage.begin < self._end or not damage.end > self._begin:
            return None
        path = self._range.segment.path
        is_cut_off = self._range.is_cut and not damage.is_followed and damage.check.reason is StopReason.TORN
        if is_cut_off and not self._options.fail_on_data_loss:
            _log.warning("%s: the file ends inside the record at offset %d", path, self._start_offset + damage.begin)
            return None
        advice = f"mode=DROPMALFORMED continues {self._goes_on_at(damage)}; {_WAYS_ON}."
        if is_cut_off:
            advice = (
                f"The file is shorter than the others: it was truncated, or only partly copied. To read what is there: "
                f"fail_on_data_loss=false (failOnDataLoss in Spark), or mode=DROPMALFORMED; {_WAYS_ON}."
            )
        elif damage.check.reason is StopReason.WRONG_OFFSET and not damage.begin:
            advice = f"If the file was renamed, give it the name that its first record implies. {advice}"
        return corrupt_record_error(damage.check, self._raw.data, damage.begin, self._start_offset, path, advice)

    def _goes_on_at(self, damage: Damage) -> str:
        where = f"offset {self._start_offset + damage.end}"
        return f"at the next sound record, {where}" if damage.is_followed else f"after it, {where}"

    def _damaged_rows(self, damage: Damage) -> list[tuple[int, int]]:
        """Return the pieces of damage that become rows of this range."""
        pieces = _pieces(damage.begin, damage.end)
        mine = [(begin, end) for begin, end in pieces if self._begin <= begin < self._end]
        return self._kept(mine)

    def _kept(self, pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
        if self._options.is_permissive or self._options.is_failfast:
            return pieces if self._options.is_permissive else []
        self._dropped += len(pieces)
        self._dropped_bytes += sum(end - begin for begin, end in pieces)
        return []

    # ---------------------------------------------------------------------------------------------------------- rows

    def _rows(self, chunk: ReadChunk) -> Iterator[pa.RecordBatch]:
        records, faults = self._select(self._joined(chunk.records))
        damaged = chunk.damaged
        while len(records) or faults or damaged:
            decoded = self._decode(records, self._options.columns)
            stop = int(decoded.pending[0]) if decoded.pending.size else self._raw.size
            found = sorted([*decoded.faults, *(fault for fault in faults if fault.position < stop)], key=_position)
            yield from self._finished(decoded, found, [piece for piece in damaged if piece[0] < stop])
            records, faults = self._records(decoded.pending), [fault for fault in faults if fault.position >= stop]
            damaged = [piece for piece in damaged if piece[0] >= stop]

    def _joined(self, pieces: list[Records]) -> Records:
        if len(pieces) == 1:
            return pieces[0]
        return self._records(np.concatenate([np.empty(0, np.int64), *(piece.starts for piece in pieces)]))

    def _select(self, records: Records) -> tuple[Records, list[Fault]]:
        """Select the requested records, without touching data that this does not need, above all bodies."""
        records = records.only(self._in_time(records))
        if not self._filter.columns:
            return records, []
        decoded = self._decode(records, self._filter.columns)
        mask = self._filter.select(decoded.batch, decoded.positions + self._start_offset)
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
        return decode_records(
            records,
            columns,
            verify_crc=self._options.verify_crc,
            decompress=self._options.decompress,
            nullable=self._options.is_permissive,
        )

    def _finished(
        self, decoded: DecodedBatch, faults: list[Fault], damaged: list[tuple[int, int]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the decoded rows, with rows for damage in their places."""
        batch = decoded.batch
        if faults and self._options.is_failfast:
            batch = batch.slice(0, int(np.searchsorted(decoded.positions, faults[0].position)))
        else:
            pieces = [piece for fault in faults for piece in _pieces(fault.position, fault.position + fault.size)]
            damaged = [*damaged, *self._kept(pieces)]
            batch = self._merged(batch, decoded.positions, damaged) if damaged else batch
        if batch.num_rows:
            yield batch
        if faults and self._options.is_failfast:
            raise self._fault_error(faults[0].error)

    def _fault_error(self, error: CorruptRecordError) -> CorruptRecordError:
        """Add the file's path and the ways to continue to a record's error."""
        path = self._range.segment.path
        advice = f"{error.advice} mode=DROPMALFORMED leaves the record out; {_WAYS_ON}.".strip()
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
        known = {
            "physical_offset": [self._start_offset + begin for begin, _ in damaged],
            "store_size": [end - begin for begin, end in damaged],
            "segment": [self._range.segment.name] * len(damaged),
        }
        if CORRUPT_RECORD in schema.names:
            known[CORRUPT_RECORD] = [self._raw[begin:end].tobytes() for begin, end in damaged]
        nothing = [None] * len(damaged)
        arrays = [pa.array(known.get(column.name, nothing), column.type) for column in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _position(fault: Fault) -> int:
    return fault.position


def _count_sound(records: Records) -> int:
    """Count the records before the first unsound one."""
    sound = records.spans.sound
    return len(records) if sound.all() else int(sound.argmin())


def _pieces(begin: int, end: int) -> list[tuple[int, int]]:
    return [(piece, min(piece + _DAMAGED_PIECE, end)) for piece in range(begin, end, _DAMAGED_PIECE)]
