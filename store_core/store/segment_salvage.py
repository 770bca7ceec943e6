# SPDX-License-Identifier: Apache-2.0
"""What can be saved of a segment, and how sure each record is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.segment_source import Segment, SegmentBytes, open_ahead
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import StorePaths, store_roots
from store_core.format.columnar.checksums import record_crcs
from store_core.format.columnar.decode_batch import Decoding, decode_records
from store_core.format.columnar.records import Records
from store_core.format.columns import DEFAULT_COLUMNS
from store_core.format.layout import BLANK_SIZE
from store_core.format.properties import CRC_RESERVED
from store_core.format.record.scan import StopReason
from store_core.format.salvage import CandidateFinder, Damage, SalvageWalk
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import SegmentEnd, segment_ends
from store_core.store.compared_log import without_overlap
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_options import ReadOptions
from store_core.store.salvage_tiles import FoundBy, PropertyCrc, Tile, TileKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from store_core.format.columnar.chain import Window
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
