# SPDX-License-Identifier: Apache-2.0
"""Reading the messages of a log as Arrow batches."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import LEFT_OUT, CorruptRecordError, SegmentVanishedError
from store_core.files.machine import keep_freed_memory
from store_core.files.remote_bytes import RemoteBytes
from store_core.files.segment_source import Segment, SegmentBytes, open_segment
from store_core.format.columnar.chain import Chain, Place, Run, Window, count_sound, count_sound_leads
from store_core.format.record.decode import corrupt_record_error
from store_core.format.record.scan import StopReason
from store_core.format.salvage import Damage, SalvageWalk
from store_core.format.segment_view import HEAD
from store_core.snapshot.log_end import covered_note, segment_end
from store_core.store.read.chunk_rows import WAYS_ON, ChunkRows, ReadChunk, RecordBytes, pieces_of
from store_core.store.read.picks import Picks, PickWindows
from store_core.store.read.ranges import ReadRange

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from store_core.store.read.read_options import ReadOptions


_log: Final = logging.getLogger("store_core")

_GATHERED: Final = 8 << 20
"""Bytes of records and damaged ranges up to which they become one batch."""

_SOUND_AGAIN: Final = 1 << 20
"""Bytes of undamaged records after which a chain is followed again: a chain's records are measured only once."""


def read_range(
    part: ReadRange,
    options: ReadOptions,
    mapped: Mapping[Segment, Chain] | None = None,
    unseen: set[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read one range of a plan; ranges can be read in any order, by any process that sees the files.

    Parameters
    ----------
    part : ReadRange
    options : ReadOptions
        The options of the plan; columns may differ, and store times may be narrower.
    mapped : mapping of Segment to Chain, optional
        Segments already mapped, and their chains as far as they were walked.
    unseen : set of str, optional
        Topics of which no record was read yet: those of records that are read are taken out.

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
        known = (mapped or {}).get(part.segment)
        opened = _opened(part, options, known)
    except SegmentVanishedError as error:
        if options.fail_on_data_loss:
            raise
        lost = "%s. What it had from offset %d to %d is lost"
        _log.warning(lost, error.problem, part.begin, part.end, extra=LEFT_OUT)
        return
    with opened:
        if isinstance(opened, PickWindows):
            yield from _read_picks(part, opened, options, unseen)
        else:
            yield from _RangeReader(part, options, opened, known, unseen).batches()
            opened.check_unchanged()


def _read_picks(
    part: ReadRange, windows: PickWindows, options: ReadOptions, unseen: set[str] | None
) -> Iterator[pa.RecordBatch]:
    """Read picked records if they are what their units say, else all of the range."""
    wrong = windows.check()
    if wrong is not None:
        yield from read_range(part.scanned(wrong), options, None, unseen)
        return
    rows = ChunkRows(part.segment, options, unseen)
    for window in windows.checked():
        place = RecordBytes(window.raw, window.positions, window.picks.starts)
        yield from rows.batches(ReadChunk(place, rows.records(place, window.positions)))
    rows.log_left_out(part.begin, part.end)


def _opened(part: ReadRange, options: ReadOptions, known: Chain | None) -> SegmentBytes | PickWindows:
    """Open a range's segment; where planning has loaded its records from elsewhere, take what that keeps."""
    if part.picks is not None:
        kept = None if known is None else known.segment.source
        opened = kept if isinstance(kept, RemoteBytes) else None
        return PickWindows(part.picks, part.segment, part.data_end, options.max_records_per_batch, opened)
    data_end = min(part.end, part.data_end) - part.segment.start_offset
    return open_segment(part.segment, data_end)


class _Gathered:
    """Records and damaged ranges of several places, copied one behind the other: a batch of each would be slow.

    * `starts`, `damaged`: Records, and damaged ranges, as positions in what was added.
    * `size`: Bytes that were added.
    """

    def __init__(self) -> None:
        self.starts: list[npt.NDArray[np.int64]] = []
        self.damaged: list[tuple[int, int]] = []
        self.size = 0
        self._pieces: list[npt.NDArray[np.uint8]] = []
        self._places: list[tuple[int, int]] = []

    @property
    def rows(self) -> int:
        """Records and damaged ranges."""
        return sum(each.size for each in self.starts) + len(self.damaged)

    def add(self, raw: npt.NDArray[np.uint8], offset: int) -> int:
        """Copy the bytes at a physical offset; return their position."""
        at = self.size
        self._pieces.append(raw.copy())
        self._places.append((at, offset))
        self.size += raw.size
        return at

    def chunk(self, rows: ChunkRows) -> ReadChunk:
        """Return what was gathered."""
        window = RecordBytes(np.concatenate(self._pieces), *np.array(self._places, np.int64).T)
        starts = np.concatenate([np.empty(0, np.int64), *self.starts])
        return ReadChunk(window, rows.records(window, starts), self.damaged)


class _RangeReader:
    """Reads a range window by window, and where it is damaged, by a search in the rest of its segment."""

    def __init__(
        self,
        part: ReadRange,
        options: ReadOptions,
        opened: SegmentBytes,
        known: Chain | None,
        unseen: set[str] | None,
    ) -> None:
        self._range = part
        self._view = part.segment.view(opened)
        self._known = () if known is None else known.kept
        self._options = options
        start = self._start_offset = part.segment.start_offset
        self._lead = part.segment.framing.lead
        self._walk_start = part.walk_begin - start
        self._rows = ChunkRows(part.segment, options, unseen)
        self._gathered = _Gathered()
        self._set_ends(part)

    def _set_ends(self, part: ReadRange) -> None:
        """Set the positions of frames: a range is of records, which begin `lead` bytes after their frames."""
        start, lead = self._start_offset, self._lead
        self._begin, self._end = part.begin - start - lead, part.end - start - lead
        self._data_end = part.data_end - start
        self._torn_end = part.segment.size if part.is_by_tail else max(part.data_end, part.torn_end) - start
        self._limit = min(self._end, self._data_end)
        self._chain = Chain(self._view.up_to(self._data_end), self._known)
        self._salvage = SalvageWalk(self._chain.segment, only_newer=part.is_last)

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = self._rows
        for chunk in self._chunks():
            yield from rows.batches(chunk)
        rows.log_left_out(self._range.begin, self._range.end)

    # -------------------------------------------------------------------------------------------------------- chunks

    def _chunks(self) -> Iterator[ReadChunk]:
        """Split what is read into one chunk per batch; in mode FAILFAST, raise at damage after the chunk before it."""
        place = yield from self._read_windows(Place(self._walk_start))
        if self._range.is_by_tail and place.position < self._limit:
            self._find_end()
        while place.position < self._limit:
            place = yield from self._read_salvage(place)
            yield from self._gathered_chunk()
            place = yield from self._read_windows(place)
        yield from self._torn_tail()
        yield from self._gathered_chunk()

    def _read_windows(self, place: Place) -> Generator[ReadChunk, None, Place]:
        """Take the chain's records; return where the chain breaks, or the first record that is not sound."""
        for window in self._chain.windows(place, self._limit, self._options.max_records_per_batch):
            sound = yield from self._take_sound(window)
            starts = window.run.starts
            if sound:
                place = Place(
                    window.base + (int(starts[sound]) if sound < starts.size else window.run.stop),
                    window.base + int(starts[sound - 1]),
                )
            if sound < starts.size:
                break
        return place

    def _find_end(self) -> None:
        """Find where the log ends, now that its last segment is known to be damaged: by all of its bytes."""
        part, options = self._range, self._options
        end = segment_end(part.segment, is_first=False, verify_crc=options.verify_crc, has_tail=False)
        found = part.up_to(end)
        if found.data_end != part.data_end:
            _log.warning("%s: the log ends at offset %d", part.segment.path, found.data_end)
            self._set_ends(replace(found, end=min(found.end, part.end) if part.end < part.data_end else found.end))

    def _read_salvage(self, place: Place) -> Generator[ReadChunk, None, Place]:
        """Take what is found after a break; return where the segment is sound enough to follow its chain again."""
        salvage = self._salvage
        for part in salvage.parts(place, self._limit):
            if isinstance(part, Damage):
                yield from self._take_damage(part)
                continue
            mine = part.run.between(self._begin - part.base, self._limit - part.base)
            if mine is not None:
                yield from self._gather_records(part, mine)
            if part.run.size >= _SOUND_AGAIN:
                return part.place
        if max(self._begin, 0) <= salvage.covered < self._limit:  # only the range that has the first of these says it
            blank, covered = (self._start_offset + at for at in (salvage.stop, salvage.covered))
            _log.warning("%s", covered_note(self._range.segment.path, blank, covered))
        return Place(self._limit)

    def _take_sound(self, window: Window) -> Generator[ReadChunk, None, int]:
        """Measure records and take those of the range; return how many precede the first unsound one."""
        run, base, raw, lead = window.run, window.base, window.raw, self._lead
        offset = self._start_offset + base
        led = count_sound_leads(raw, run.starts, offset, self._view.framing, window.previous)
        if not led:
            return 0
        run = run if led == run.starts.size else Run(run.starts[:led], int(run.starts[led]))
        first = int(np.searchsorted(run.starts, self._begin - base))
        before = count_sound(raw[lead:], run.starts[:first], offset + lead)
        mine = run.between(self._begin - base, self._limit - base)
        if before < first or mine is None:
            return before
        place, starts, most = RecordBytes.at(raw, offset), mine.starts + lead, self._options.max_records_per_batch
        for begin in range(0, starts.size, most):
            records = self._rows.records(place, starts[begin : begin + most])
            sound = records.spans.sound
            if not sound.all():
                count = int(sound.argmin())
                yield ReadChunk(place, self._rows.records(place, records.starts[:count]))
                return first + begin + count
            yield ReadChunk(place, records)
        return first + starts.size

    def _take_damage(self, damage: Damage) -> Iterator[ReadChunk]:
        error = self._damage_error(damage)
        if error is not None:
            yield from self._gathered_chunk()
            raise error
        for begin, end in self._damaged_rows(damage):
            at = self._gathered.add(self._view.chunk(begin, end), self._start_offset + begin)
            self._gathered.damaged.append((at, at + end - begin))
            if self._is_full():
                yield from self._gathered_chunk()

    def _gather_records(self, window: Window, run: Run) -> Iterator[ReadChunk]:
        """Copy the records of a run of a window."""
        bounds, most = run.bounds, self._options.max_records_per_batch
        first = 0
        while first < run.starts.size:
            stop = min(first + most - self._gathered.rows, run.starts.size)
            begin, end = int(bounds[first]), int(bounds[stop])
            at = self._gathered.add(window.raw[begin:end], self._start_offset + window.base + begin)
            self._gathered.starts.append(run.starts[first:stop] + (self._lead + at - begin))
            first = stop
            if self._is_full():
                yield from self._gathered_chunk()

    def _is_full(self) -> bool:
        return self._gathered.rows >= self._options.max_records_per_batch or self._gathered.size >= _GATHERED

    def _gathered_chunk(self) -> Iterator[ReadChunk]:
        """Yield what was gathered, if anything."""
        gathered, self._gathered = self._gathered, _Gathered()
        if gathered.rows:
            yield gathered.chunk(self._rows)

    def _torn_tail(self) -> Iterator[ReadChunk]:
        """Take what follows the records, unless a writer has finished the record since the plan was made."""
        at, verify_crc = self._data_end, self._options.verify_crc
        if not self._torn_end > at < self._end:
            return
        check = self._view.check(at, verify_crc=verify_crc)
        if check.reason is not None:
            yield from self._take_damage(Damage(at, self._torn_end, check, is_followed=False))

    def _damage_error(self, damage: Damage) -> CorruptRecordError | None:
        """Make the error for damage that ends the read; None for damage that is skipped."""
        if not self._options.is_failfast or not damage.begin < self._end or not damage.end > self._begin:
            return None
        path = self._range.segment.path
        is_cut_off = self._range.is_cut and not damage.is_followed and damage.check.reason is StopReason.TORN
        if is_cut_off and not self._options.fail_on_data_loss:
            begin = self._start_offset + damage.begin
            _log.warning("%s: the file ends inside the record at offset %d", path, begin, extra=LEFT_OUT)
            return None
        advice = f"mode=DROPMALFORMED continues {self._goes_on_at(damage)}; {WAYS_ON}."
        if is_cut_off:
            advice = (
                f"The file is shorter than the others: it was truncated, or only partly copied. To read what is there: "
                f"failOnDataLoss=false, or mode=DROPMALFORMED; {WAYS_ON}."
            )
        elif damage.check.reason is StopReason.WRONG_OFFSET and not damage.begin:
            advice = f"If the file was renamed, give it the name that its first record implies. {advice}"
        head = self._view.chunk(damage.begin, min(damage.begin + HEAD, self._view.size)).data
        return corrupt_record_error(damage.check, head, 0, self._start_offset + damage.begin, path, advice)

    def _goes_on_at(self, damage: Damage) -> str:
        where = f"offset {self._start_offset + damage.end}"
        return f"at the next sound record, {where}" if damage.is_followed else f"after it, {where}"

    def _damaged_rows(self, damage: Damage) -> list[tuple[int, int]]:
        """Return the pieces of damage that become rows of this range."""
        pieces = pieces_of(damage.begin, damage.end)
        mine = [(begin, end) for begin, end in pieces if self._begin <= begin < self._end]
        return self._rows.kept(RecordBytes.at(np.empty(0, np.uint8), self._start_offset), mine)


def records_at(
    segments: Sequence[Segment], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the sound records at some physical offsets, in log order; where there is none of that size, no row.

    * `segments`: Of the log, in order.
    * `starts`, `sizes`: int64, shape (n,): physical offsets, in any order and perhaps repeated, and bytes.
    """
    starts, rows = np.unique(starts, return_index=True)
    every = Picks.of(starts, sizes[rows])
    for segment in segments:
        picks = every.between(segment.start_offset, segment.end_offset)
        if picks is None:
            continue
        try:
            with PickWindows(picks.inside(segment), segment, segment.end_offset) as windows:
                sound = [part for part in windows.right() if len(part)]
        except SegmentVanishedError:
            if options.fail_on_data_loss:
                raise
            continue
        for part in sound:
            end = segment.end_offset
            yield from read_range(ReadRange(segment, segment.start_offset, end, end, picks=part), options)
