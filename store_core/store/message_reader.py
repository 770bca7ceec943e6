# SPDX-License-Identifier: Apache-2.0
"""Messages of a log as Arrow batches."""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from store_core.errors import CorruptRecordError, SegmentVanishedError
from store_core.files.segment_source import open_segment
from store_core.format.columns import CORRUPT_RECORD
from store_core.format.decode import corrupt_record_error
from store_core.format.decode_batch import decode_records
from store_core.format.records import Records
from store_core.format.salvage import Damage, Run, SegmentWalk
from store_core.format.scan import StopReason, check_record
from store_core.store.memory import keep_freed_memory
from store_core.store.read_chunk import ReadChunk
from store_core.store.row_filter import RowFilter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import SegmentBytes
    from store_core.format.decode_batch import DecodedBatch, Fault
    from store_core.store.read_options import ReadOptions
    from store_core.store.read_plan import ReadRange, WalkedSegment
    from store_core.store.stored_topics import TopicWatch

__all__ = ["read_range"]

_log: Final = logging.getLogger("store_core")

_DAMAGED_PIECE: Final = 16 << 20
"""Most damaged bytes in one row."""

_WAYS_ON: Final = "mode=PERMISSIVE gives these bytes a row with _corrupt_record"


def read_range(
    part: ReadRange,
    options: ReadOptions,
    walked: WalkedSegment | None = None,
    watch: TopicWatch | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read one range of a plan; ranges can be read in any order, by any process that sees the files.

    Parameters
    ----------
    part : ReadRange
    options : ReadOptions
        Those the plan was made with; the columns may differ, and store times may be narrower.
    walked : WalkedSegment, optional
        A segment that need not be mapped and walked again, if it is the one of this range.
    watch : TopicWatch, optional
        What has to see the topics that are read.

    Yields
    ------
    pyarrow.RecordBatch
        Of at least one row, in the order of the log.

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
        segment = open_segment(part.segment)
    except SegmentVanishedError as error:
        if options.fail_on_data_loss:
            raise
        _log.warning("%s", error)
        return
    with segment:
        mine = walked if walked is not None and walked.segment == part.segment else None
        yield from _RangeReader(part, options, segment, mine, watch).batches()


class _RangeReader:
    def __init__(
        self,
        part: ReadRange,
        options: ReadOptions,
        segment: SegmentBytes,
        walked: WalkedSegment | None,
        watch: TopicWatch | None,
    ) -> None:
        self._range = part
        self._options = options
        start = self._start_offset = part.segment.start_offset
        self._begin, self._end, self._data_end = part.begin - start, part.end - start, part.data_end - start
        self._whole = segment.raw if walked is None else walked.raw
        self._raw = self._whole[: max(part.data_end, part.torn_end) - start]
        self._known = () if walked is None else walked.runs
        self._next_data = segment.next_data
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
        """Cut the walk into what becomes batches; in mode FAILFAST, raise at damage behind the chunk before it."""
        chunk = ReadChunk()
        walk = SegmentWalk(
            self._raw[: self._data_end],
            self._start_offset,
            only_newer=self._range.is_last,
            until=self._end,
            next_data=self._next_data,
            measured_from=self._begin,
            known=self._known,
            start=self._range.walk_start,
        )
        for part in chain(walk, self._torn_tail()):
            if isinstance(part, Run):
                bounds = self._bounds(part)
                while bounds.size > 1:
                    taken, unsound = self._take(chunk, bounds, is_proven=part.is_proven)
                    bounds = bounds[taken:]
                    if unsound:
                        walk.go_back(int(bounds[0]), _before(part.starts, int(bounds[0])))
                        break
                    if bounds.size > 1:
                        yield chunk
                        chunk = ReadChunk()
                continue
            error = self._damage_error(part)
            if error is not None:
                yield chunk
                raise error
            for begin, end in self._damaged_rows(part):
                if not chunk.take_damage(begin, end, self._options.max_records_per_batch):
                    yield chunk
                    chunk = ReadChunk()
                    chunk.take_damage(begin, end, self._options.max_records_per_batch)
        yield chunk

    def _torn_tail(self) -> Iterator[Damage]:
        """Find what lies after the records, unless a writer has finished the record since the plan was made."""
        at, verify_crc = self._data_end, self._options.verify_crc
        if self._raw.size > at < self._end:
            check = check_record(self._whole.data, at, self._start_offset, verify_crc=verify_crc)
            if check.reason is not None:
                yield Damage(at, self._raw.size, check, is_followed=False)

    def _take(self, chunk: ReadChunk, bounds: npt.NDArray[np.int64], *, is_proven: bool) -> tuple[int, bool]:
        """Hand a chunk the next records; tell how many, and whether the one behind them is not sound."""
        count = chunk.room(bounds, self._options.max_records_per_batch)
        records = self._records(bounds[:count])
        sound = count if is_proven else _count_sound(records)
        if sound < count:
            records = self._records(bounds[:sound])
        chunk.take(records, int(bounds[sound] - bounds[0]))
        return sound, sound < count

    def _records(self, starts: npt.NDArray[np.int64]) -> Records:
        segment = self._range.segment.name
        return Records(self._raw, starts, segment, self._start_offset, self._options.property_parser)

    def _bounds(self, run: Run) -> npt.NDArray[np.int64]:
        """Return the starts in the range and, behind them, where the last of these records ends."""
        first, last = np.searchsorted(run.starts, (self._begin, self._end))
        stop = run.stop if last == run.starts.size else run.starts[last]
        return np.append(run.starts[first:last], stop)

    def _damage_error(self, damage: Damage) -> CorruptRecordError | None:
        """Make the error for damage that ends the read, None for damage that is gone over."""
        if not self._options.is_failfast or not damage.begin < self._end or not damage.end > self._begin:
            return None
        path = self._range.segment.path
        is_cut_off = self._range.is_cut and not damage.is_followed and damage.check.reason is StopReason.TORN
        if is_cut_off and not self._options.fail_on_data_loss:
            _log.warning("%s: the file ends inside the record at offset %d", path, self._start_offset + damage.begin)
            return None
        advice = f"mode=DROPMALFORMED goes on {self._goes_on_at(damage)}; {_WAYS_ON}."
        if is_cut_off:
            advice = (
                f"The file is shorter than the others: it was cut, or copied in part. To read what is there: "
                f"fail_on_data_loss=false (failOnDataLoss in Spark), or mode=DROPMALFORMED; {_WAYS_ON}."
            )
        elif damage.check.reason is StopReason.WRONG_OFFSET and not damage.begin:
            advice = f"If the file was renamed, give it the name that its first record tells. {advice}"
        return corrupt_record_error(damage.check, self._raw.data, damage.begin, self._start_offset, path, advice)

    def _goes_on_at(self, damage: Damage) -> str:
        where = f"offset {self._start_offset + damage.end}"
        return f"at the next sound record, {where}" if damage.is_followed else f"behind it, {where}"

    def _damaged_rows(self, damage: Damage) -> list[tuple[int, int]]:
        """Return the pieces of damage that are rows of this range."""
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
        """Choose the records asked for; what they do not need, bodies above all, is not touched."""
        records = records.only(self._in_time(records))
        if not self._filter.columns:
            return records, []
        decoded = self._decode(records, self._filter.columns)
        mask = self._filter.select(decoded.batch, decoded.positions + self._start_offset)
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
        """Yield the rows that were decoded, with those of damage in their places."""
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
        """Add to a record's error the file's path and the ways on."""
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
        """Make the rows of damaged ranges: their place, their bytes, and nulls."""
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
    """Count the records before the first that is not sound."""
    sound = records.spans.sound
    return len(records) if sound.all() else int(sound.argmin())


def _before(starts: npt.NDArray[np.int64], position: int) -> int:
    """Return the start before a position, -1 if there is none."""
    index = int(np.searchsorted(starts, position))
    return int(starts[index - 1]) if index else -1


def _pieces(begin: int, end: int) -> list[tuple[int, int]]:
    return [(piece, min(piece + _DAMAGED_PIECE, end)) for piece in range(begin, end, _DAMAGED_PIECE)]
