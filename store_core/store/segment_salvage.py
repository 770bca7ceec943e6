# SPDX-License-Identifier: Apache-2.0
"""What can be saved of a segment, how sure each record is, and where salvaged records go.

In a new log they are complete again, one after the other, in segments closed by blank records.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store_core.files.access import naming
from store_core.files.names import COMMIT_LOG
from store_core.files.segment_source import Segment, SegmentBytes, open_ahead
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import StorePaths, store_roots
from store_core.format.columnar.chain import Chain, Place, Window
from store_core.format.columnar.encode_batch import EncodedBatch, complete_batch
from store_core.format.columnar.records import Decoding, Records, decode_records
from store_core.format.columnar.spans import record_crcs
from store_core.format.columns import DEFAULT_COLUMNS, arrow_schema
from store_core.format.layout import BLANK_SIZE, V6_BITS
from store_core.format.properties import CRC_RESERVED
from store_core.format.record.encode import blank_head, fill_segments
from store_core.format.record.scan import StopReason
from store_core.format.salvage import CandidateFinder, Damage, SalvageWalk
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import SegmentEnd, segment_ends
from store_core.store.new_directory import NewDirectory
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_options import ReadOptions
from store_core.store.salvage_tiles import FoundBy, PropertyCrc, SalvageFormat, Tile, TileKind
from store_core.store.segment_diff import without_overlap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from io import BufferedWriter
    from pathlib import Path

    import numpy.typing as npt

    from store_core.format.segment_view import SegmentView
    from store_core.store.read.ranges import ReadRange


def property_crcs(records: Records) -> list[PropertyCrc]:
    """Return for each sound record what its checksum over the whole record says."""
    stops = records.spans.stops
    with_room = np.flatnonzero(stops - records.spans.properties_start >= CRC_RESERVED)
    found = [PropertyCrc.NONE] * len(records)
    checked = record_crcs(records.raw, records.starts[with_room], stops[with_room])
    for row, is_right in zip(with_room[checked.rows].tolist(), checked.is_right.tolist(), strict=True):
        found[row] = PropertyCrc.MATCH if is_right else PropertyCrc.MISMATCH
    return found


SALVAGED_COLUMNS: Final = (*DEFAULT_COLUMNS, "msg_id")
"""What is decoded, and so checked, of each record."""

_DECODING: Final = Decoding(verify_property_crc=False)
"""A record that does not match the checksum over all of it is salvaged: `_graded` says so."""

_ROWS: Final = 1 << 14
_BATCH_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class SalvagePart:
    """A segment, and how far its records go."""

    segment: Segment
    end: int  # physical offset at which the log ends, or that of the segment's end; its first byte if it has no record
    torn_end: int  # physical offset one past the torn tail that begins at `end`; equal to `end` without any
    stale: int = -1  # physical offset of the first older record after the end; -1 without any
    is_last: bool = False  # whether the log ends in this segment
    is_live: bool = False  # whether a broker may be writing what follows the end


@dataclass(frozen=True, slots=True, eq=False)
class Salvaged:
    """Records that proved themselves."""

    records: Records
    batch: pa.RecordBatch  # their rows
    found_by: FoundBy
    property_crcs: list[PropertyCrc]


@dataclass(slots=True)
class SegmentSalvage:
    """Iterates over the records of one segment that prove themselves.

    These are the rows that reading in mode DROPMALFORMED has, and the lost ranges are those that mode PERMISSIVE
    returns in ``_corrupt_record``; but records that do not match the checksum over all of them are graded, not lost.
    """

    part: SalvagePart
    tiles: list[Tile] = field(default_factory=list)  # what every byte of the segment is, when the iteration is complete
    grades: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Records by how they were found and what their property CRC says; as `tiles`."""
    covered: int = 0
    """Records in the rest of a closed file that would prove themselves, and are not salvaged; as `tiles`."""

    def __iter__(self) -> Iterator[Salvaged]:
        segment = self.part.segment
        with open_ahead(segment) as opened:
            view = segment.view(opened).up_to(self.part.end - segment.start_offset)
            salvage = SalvageWalk(view, only_newer=self.part.is_last)
            found_by, position = FoundBy.CHAIN, 0
            for found in salvage.parts():
                if isinstance(found, Damage):
                    found_by, position = FoundBy.AFTER_DAMAGE, found.end
                    reason = found.check.reason or StopReason.BAD_MAGIC
                    self._tile(found.begin, found.end, TileKind.LOST, reason=reason.value)
                else:
                    position = found.stop
                    yield from self._salvaged(found, found_by)
            is_too_short = salvage.reason is StopReason.UNWRITTEN and position < view.size
            self._tile_rest(opened, position, is_too_short=is_too_short)

    def _tile(self, begin: int, end: int, kind: TileKind, records: int = 0, reason: str = "") -> None:
        """Note what a range is, by its positions in the segment: nothing if it is empty; one with records before it."""
        if begin >= end:
            return
        first = self.part.segment.start_offset
        last = self.tiles[-1] if self.tiles else None
        if last is not None and last.kind is kind is TileKind.RECORDS and last.end == first + begin:
            self.tiles[-1] = last._replace(end=first + end, records=last.records + records)
        else:
            self.tiles.append(Tile(first + begin, first + end, kind, records, reason))

    def _salvaged(self, window: Window, found_by: FoundBy) -> Iterator[Salvaged]:
        """Decode the records of a window; those that can't be, or whose bodies are wrong, are lost."""
        run, bounds = window.run, window.run.bounds
        first = 0
        while first < run.starts.size:
            by_size = int(np.searchsorted(bounds, bounds[first] + _BATCH_BYTES, "right")) - 1
            stop = max(min(first + _ROWS, by_size), first + 1)
            decoded = decode_records(self._records(window, run.starts[first:stop]), SALVAGED_COLUMNS, _DECODING)
            faults = {fault.position + window.base: fault.error.problem for fault in decoded.faults}
            self._tile_records(run.starts[first:stop] + window.base, int(bounds[stop]) + window.base, faults)
            if len(decoded.positions):
                yield self._graded(self._records(window, decoded.positions), decoded.batch, found_by)
            first = stop

    def _records(self, window: Window, starts: npt.NDArray[np.int64]) -> Records:
        return Records(window.raw, starts, self.part.segment.name, self.part.segment.start_offset + window.base)

    def _graded(self, records: Records, batch: pa.RecordBatch, found_by: FoundBy) -> Salvaged:
        checks = property_crcs(records)
        self.grades.update((found_by.value, check.value) for check in checks)
        return Salvaged(records, batch, found_by, checks)

    def _tile_records(self, starts: npt.NDArray[np.int64], stop: int, faults: dict[int, str]) -> None:
        """Note which records of a stretch were salvaged, and which were lost."""
        bounds = np.append(starts, stop)
        cuts = np.searchsorted(starts, sorted(faults)).tolist()
        begin = 0
        for cut in [*cuts, starts.size]:
            self._tile(int(bounds[begin]), int(bounds[cut]), TileKind.RECORDS, cut - begin)
            if cut < starts.size:
                lost = faults[int(starts[cut])]
                self._tile(int(bounds[cut]), int(bounds[cut + 1]), TileKind.LOST, reason=lost)
            begin = cut + 1

    def _tile_rest(self, opened: SegmentBytes, position: int, *, is_too_short: bool) -> None:
        """Note what follows the records: the rest of a closed file, a torn tail, older records, or nothing.

        The rest of a file that has zeros for a blank record can't have lost a record if it is too short for one.
        """
        part, first, size = self.part, self.part.segment.start_offset, self.part.segment.size
        check = part.segment.view(opened).check(position, verify_crc=True)
        if is_too_short or check.reason is StopReason.END_OF_FILE:
            self._tile(position, size, TileKind.FILLER)
            self.covered = _count_covered(part.segment.view(opened), position + BLANK_SIZE)
            return
        torn_end = max(part.torn_end - first, position)
        kind = TileKind.IN_PROGRESS if part.is_live else TileKind.LOST
        reason = "" if part.is_live or check.reason is None else check.reason.value
        self._tile(position, torn_end, kind, reason=reason)
        stale = part.stale - first if part.stale >= 0 else size
        self._tile(torn_end, stale, TileKind.UNWRITTEN)
        self._tile(stale, size, TileKind.STALE)


def _count_covered(segment: SegmentView, begin: int) -> int:
    """Count the records after a blank record that are in their place, with right bodies: damage may have put it there.

    Stale bytes, which RocketMQ 4.3.0 leaves there, were written for other places.
    """
    candidates, covered, unread = CandidateFinder(segment), 0, segment.size
    position = candidates.next(begin)
    while position is not None and unread > 0:
        check = segment.check(position, verify_crc=True)
        unread -= check.size
        covered += check.reason is None
        position = candidates.next(position + (1 if check.reason is not None else check.size))
    return covered


_READ: Final = ReadOptions(columns=SALVAGED_COLUMNS, mode=ReadMode.PERMISSIVE, fail_on_data_loss=False)
"""As a reader that wants all it can get; its plan decides where the log ends."""


def plan_salvage(paths: StorePaths) -> tuple[tuple[SalvagePart, ...], tuple[str, ...]]:
    """Return a part for each segment file, in log order, and notes."""
    from store_core.store.read.read_plan import plan_ranges  # noqa: PLC0415 -- what help shows needs the kinds alone

    segments = without_overlap(Log.of(paths, packed="refused").segments)
    plan = plan_ranges(paths, _READ)
    is_live = any(map(is_lock_held, store_roots(paths)))
    ends = {end.segment.path: end for end in segment_ends(segments, verify_crc=True)}
    ranges = {part.segment.path: part for part in plan.ranges}
    parts = [_part(each, ranges.get(each.path), ends.get(each.path), is_live=is_live) for each in segments]
    return tuple(parts), plan.notes


def _part(segment: Segment, read: ReadRange | None, end: SegmentEnd | None, *, is_live: bool) -> SalvagePart:
    data_end = segment.start_offset if read is None else min(read.data_end, segment.end_offset)
    if end is None or data_end > end.end_offset:  # no end of the log, or another kind of file, which is read whole
        return SalvagePart(segment, data_end, data_end, is_last=read is not None and read.is_last)
    stale = segment.start_offset + end.found.stale if end.found.stale >= 0 else -1
    return SalvagePart(segment, data_end, segment.start_offset + end.tail_end, stale, is_last=True, is_live=is_live)


class NewLog:
    """Writes the log of a new store, from offset 0 on.

    Each record keeps its bytes, so its queue offset, times and hosts, except for its physical offset, and for its
    property CRC, which covers that and is made anew where it was right.

    * `segment_size`: Bytes of each segment.
    """

    def __init__(self, root: Path, segment_size: int) -> None:
        self._directory = root / COMMIT_LOG
        self._directory.mkdir()
        self._segment_size = segment_size
        self._offset = 0
        self._file: BufferedWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with naming(self._directory):
                self._file.truncate(self._segment_size)  # a hole, as RocketMQ creates its files
                self._file.close()

    def append(self, piece: Path) -> None:
        """Append the records of a file in which they follow one another."""
        size = piece.stat().st_size
        if not size:
            return
        segment = Segment(str(piece), 0, size)
        with open_ahead(segment) as opened:
            for window in Chain(segment.view(opened)).windows(Place(), size, _ROWS):
                bounds = window.run.bounds
                for first in range(0, bounds.size - 1, _ROWS):
                    self._append(window.raw, bounds[first : first + _ROWS + 1])

    def _append(self, raw: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> None:
        records = Records(raw, bounds[:-1], "", 0)
        batch = _encoded(records, bounds)
        times = records.heads.column("store_timestamp")
        offsets = records.heads.leading("queue_offset")
        kinds = [check is PropertyCrc.MATCH for check in property_crcs(records)]
        room = -self._offset % self._segment_size if self._file is not None else 0
        for number, rows in enumerate(fill_segments(batch.starts, room, self._segment_size)):
            if number:
                self._roll()
            for has_crc, some in _alike(kinds, rows):
                graded = replace(batch, append_property_crc=has_crc)
                self._write(complete_batch(graded, some, self._offset, offsets, times))

    def _roll(self) -> None:
        """Close the segment with a blank record, and begin the next one."""
        if self._file is not None:
            self._write(memoryview(blank_head(-self._offset % self._segment_size)))
            with naming(self._directory):
                self._file.truncate(self._segment_size)
                self._file.close()
            self._offset += -self._offset % self._segment_size
        self._file = (self._directory / f"{self._offset:020d}").open("xb")

    def _write(self, data: memoryview) -> None:
        if self._file is None:
            raise AssertionError("no segment was begun")
        with naming(self._directory):
            self._file.write(data)
        self._offset += len(data)


def _encoded(records: Records, bounds: npt.NDArray[np.int64]) -> EncodedBatch:
    """Return records as a batch to complete; it needs no queues, since the records have their offsets."""
    rows = np.arange(len(records), dtype=np.int32)
    data = records.raw[bounds[0] : bounds[-1]].copy()
    v6_bits = (records.heads.leading("sys_flag") & V6_BITS).astype(np.uint8)
    return EncodedBatch(data, bounds - bounds[0], (), rows, np.zeros(rows.size, np.bool_), v6_bits)


def _alike(kinds: Sequence[bool], rows: slice) -> Iterator[tuple[bool, slice]]:
    """Split rows into stretches with, or without, a property CRC."""
    for has_crc, numbers in groupby(range(rows.start, rows.stop), kinds.__getitem__):
        listed = list(numbers)
        yield has_crc, slice(listed[0], listed[-1] + 1)


PIECES: Final = "pieces"
"""Directory of salvaged records on their way into a new store."""

SALVAGED_SCHEMA: Final = pa.schema(
    [
        *arrow_schema(SALVAGED_COLUMNS),
        pa.field("found_by", pa.string(), nullable=False),
        pa.field("property_crc", pa.string(), nullable=False),
    ]
)
"""Columns of a Parquet file: those of a message, and its grade."""


@dataclass(frozen=True, slots=True)
class SalvageOutput(NewDirectory):
    """A target that does not exist yet, and the directory beside it where it is made; use it in a ``with`` block."""

    format: SalvageFormat

    def __enter__(self) -> Self:
        NewDirectory.__enter__(self)  # `super` does not know the class that slots make
        if self.format is SalvageFormat.STORE:
            (self.work / PIECES).mkdir()
        return self

    def piece_path(self, start_offset: int) -> Path:
        """Return where the records of a segment go."""
        if self.format is SalvageFormat.STORE:
            return self.work / PIECES / f"{start_offset:020d}"
        return self.work / f"part-{start_offset:020d}.parquet"


def write_piece(output: SalvageOutput, start_offset: int, found: Iterable[Salvaged]) -> None:
    """Write the records of a segment; a task that runs twice replaces its file by an equal one."""
    path = output.piece_path(start_offset)
    attempt = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with naming(path):
            if output.format is SalvageFormat.STORE:
                _write_records(attempt, found)
            else:
                _write_rows(attempt, found)
        attempt.rename(path)
    finally:
        attempt.unlink(missing_ok=True)


def _write_records(path: Path, found: Iterable[Salvaged]) -> None:
    with path.open("wb") as file:
        for piece in found:
            records = piece.records
            places = zip(records.starts.tolist(), records.spans.stops.tolist(), strict=True)
            file.writelines(records.raw.data[start:stop] for start, stop in places)


def _write_rows(path: Path, found: Iterable[Salvaged]) -> None:
    with pq.ParquetWriter(path, SALVAGED_SCHEMA, compression="zstd") as writer:
        for piece in found:
            writer.write_batch(_graded(piece))


def _graded(piece: Salvaged) -> pa.RecordBatch:
    rows = piece.batch.num_rows
    found_by = pa.array([piece.found_by.value] * rows, pa.string())
    checks = pa.array([check.value for check in piece.property_crcs], pa.string())
    return pa.RecordBatch.from_arrays([*piece.batch.columns, found_by, checks], schema=SALVAGED_SCHEMA)
