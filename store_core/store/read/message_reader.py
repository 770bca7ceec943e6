# SPDX-License-Identifier: Apache-2.0
"""Reading the messages of a log as Arrow batches."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import LEFT_OUT, CorruptRecordError, SegmentVanishedError
from store_core.files.remote.picked_bytes import PickedBytes
from store_core.files.segment_source import open_pages, open_picks
from store_core.format.columnar.chain import Chain, Place, Run
from store_core.format.columnar.lockstep import count_sound, count_sound_leads
from store_core.format.damage.salvage import Damage, Salvage
from store_core.format.record.decode import corrupt_record_error
from store_core.format.record.framing import check_frame
from store_core.format.record.scan import StopReason
from store_core.snapshot.log_end import segment_end
from store_core.store.memory import keep_freed_memory
from store_core.store.read.chunk_rows import WAYS_ON, ChunkRows, pieces_of
from store_core.store.read.entry_notes import covered_note
from store_core.store.read.pick_windows import PickWindows
from store_core.store.read.read_chunk import ReadChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from store_core.files.segment_source import PagedBytes, Segment
    from store_core.format.columnar.records import Records
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions
    from store_core.store.read.stored_topics import TopicWatch

__all__ = ["read_range"]

_log: Final = logging.getLogger("store_core")

_SOUND_AGAIN: Final = 1 << 20
"""Bytes of undamaged records after which a chain is followed again: a chain's records are measured only once."""


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
        Segments already mapped, and their chains as far as they were walked.
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
            yield from _read_picks(part, opened, options, watch)
            return
        checked = part.checked(opened)
        for batch in _RangeReader(checked, options, _chain(part.segment, opened, known), watch, opened).batches():
            yield batch
            opened.check_size()
        opened.check_unchanged()


def _read_picks(
    part: ReadRange, windows: PickWindows, options: ReadOptions, watch: TopicWatch | None
) -> Iterator[pa.RecordBatch]:
    """Read picked records if they are what their units say, else all of the range."""
    wrong = windows.check(is_kept=True)
    if wrong is not None:
        yield from read_range(part.scanned(wrong), options, None, watch)
        return
    rows = ChunkRows(part.segment, np.empty(0, np.uint8), options, watch)
    for window in windows.checked():
        yield from rows.window_batches(window)
    rows.log_left_out(part.begin, part.end)


def _opened(part: ReadRange, options: ReadOptions, known: Chain | None) -> PagedBytes | PickWindows:
    """Open a range's segment; where planning has loaded its records from elsewhere, take what that keeps."""
    if part.picks is None:
        data_end = min(part.end, part.data_end) - part.segment.start_offset
        return open_pages(part.segment, data_end, options.least_left_out)
    if part.segment.is_read:
        return PickWindows(part.picks, part.segment, part.data_end, options.max_records_per_batch)
    kept = None if known is None else known.segment.pages
    return kept if isinstance(kept, PickedBytes) else open_picks(part.segment)


def _chain(segment: Segment, opened: PagedBytes, known: Chain | None) -> Chain:
    """Return the segment's chain, reusing the one that planning followed, and its mapping, if any."""
    if known is None:
        return Chain(segment.view(opened))
    if not segment.is_mapped:
        return replace(known, segment=segment.view(opened))
    return replace(known, segment=replace(known.segment, next_data=opened.next_data))


class _RangeReader:
    def __init__(
        self,
        part: ReadRange,
        options: ReadOptions,
        chain: Chain,
        watch: TopicWatch | None,
        opened: PagedBytes,
    ) -> None:
        self._range = part
        self._opened = opened
        self._options = options
        start = self._start_offset = part.segment.start_offset
        self._lead = part.segment.framing.lead
        self._walk_start = part.walk_begin - start
        self._whole = chain.segment.raw
        self._whole_chain = chain
        self._raw = self._whole if part.is_by_tail else self._whole[: max(part.data_end, part.torn_end) - start]
        self._set_ends(part)
        self._chunk = ReadChunk()
        self._rows = ChunkRows(part.segment, self._raw, options, watch, self._chain.segment.pages)

    def _set_ends(self, part: ReadRange) -> None:
        """Set the positions of frames: a range is of records, which begin `lead` bytes after their frames."""
        start, lead = self._start_offset, self._lead
        self._begin, self._end = part.begin - start - lead, part.end - start - lead
        self._data_end = part.data_end - start
        self._limit = min(self._end, self._data_end)
        self._chain = self._whole_chain.up_to(self._data_end)
        self._salvage = Salvage(self._chain.segment, only_newer=part.is_last)

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = self._rows
        self._opened.check_size()
        for chunk in self._chunks():
            self._opened.check_size()
            yield from rows.batches(chunk)
            if chunk.records:
                self._chain.segment.pages.drop(int(chunk.records[-1].starts[-1]) - self._lead)
        rows.log_left_out(self._range.begin, self._range.end)

    # -------------------------------------------------------------------------------------------------------- chunks

    def _chunks(self) -> Iterator[ReadChunk]:
        """Split what is read into one chunk per batch; in mode FAILFAST, raise at damage after the chunk before it."""
        if self._range.picks is not None:
            starts, sizes = self._range.picks.starts - self._start_offset, self._range.picks.sizes
            yield from self._fill(starts, np.append(0, sizes.cumsum()), len)
            yield self._chunk
            return
        place = yield from self._read_chain(self._chain.runs(self._walk_start, self._limit), Place(self._walk_start))
        if self._range.is_by_tail and place.position < self._limit:
            self._find_end()
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
            sound = yield from self._take_sound(run, place)
            if sound < run.starts.size:
                last_sound = int(run.starts[sound - 1]) if sound else place.last_sound
                return Place(int(run.starts[sound]), last_sound)
            place = run.place
        return place

    def _find_end(self) -> None:
        """Find where the log ends, now that its last segment is known to be damaged: by all of its bytes."""
        part, options = self._range, self._options
        least = options.least_left_out
        end = segment_end(
            part.segment,
            is_first=False,
            verify_crc=options.verify_crc,
            has_tail=False,
            open_bytes=lambda segment: open_pages(segment, segment.size, least),
        )
        found = part.up_to(end)
        if found.data_end != part.data_end:
            _log.warning("%s: the log ends at offset %d", part.segment.path, found.data_end)
            self._set_ends(replace(found, end=min(found.end, part.end) if part.end < part.data_end else found.end))

    def _read_salvage(self, place: Place) -> Generator[ReadChunk, None, Place]:
        """Take what is found after a break; return where the segment is sound enough to follow its chain again."""
        self._chain.segment.pages.load(max(place.last_sound, 0), self._chain.segment.size)
        for part in self._salvage.parts(place, self._limit):
            if isinstance(part, Damage):
                yield from self._take_damage(part)
                continue
            mine = part.between(self._begin, self._limit)
            if mine is not None:
                yield from self._fill(mine.starts + self._lead, mine.bounds, len)
            if part.size >= _SOUND_AGAIN:
                return part.place
        self._note_covered()
        return Place(self._limit)

    def _note_covered(self) -> None:
        """Say that a blank record hides sound ones; only the range that has the first of these does."""
        if max(self._begin, 0) <= self._salvage.covered < self._limit:
            blank, covered = (self._start_offset + at for at in (self._salvage.stop, self._salvage.covered))
            _log.warning("%s", covered_note(self._range.segment.path, blank, covered))

    def _take_sound(self, run: Run, after: Place) -> Generator[ReadChunk, None, int]:
        """Measure records and take those of the range; return how many precede the first unsound one."""
        segment = self._chain.segment
        led = count_sound_leads(segment, run.starts, after.last_sound)
        if not led:
            return 0
        run = run if led == run.starts.size else Run(run.starts[:led], int(run.starts[led]))
        first = int(np.searchsorted(run.starts, self._begin))
        before = count_sound(segment.of_records().raw, run.starts[:first], segment.of_records().start_offset)
        if first == run.starts.size == before:
            segment.pages.drop(int(run.starts[-1]))
        mine = run.between(self._begin, self._limit)
        if before < first or mine is None:
            return before
        return first + (yield from self._fill(mine.starts + self._lead, mine.bounds, _count_sound))

    def _fill(
        self, starts: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64], count_sound: Callable[[Records], int]
    ) -> Generator[ReadChunk, None, int]:
        """Put records, whose frames have the differences of `bounds` as sizes, into chunks up to the first unsound one.

        Returns how many.
        """
        taken = 0
        while taken < starts.size:
            count = self._chunk.room(bounds[taken:], self._options.max_records_per_batch)
            if not count:
                yield self._full_chunk()
                continue
            if self._range.picks is not None:
                self._load(starts[taken : taken + count], bounds[taken : taken + count + 1])
            records = self._rows.records(starts[taken : taken + count])
            sound = count_sound(records)
            if sound < count:
                records = self._rows.records(records.starts[:sound])
            self._chunk.take(records, int(bounds[taken + sound] - bounds[taken]))
            taken += sound
            if sound < count:
                break
        return taken

    def _load(self, starts: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64]) -> None:
        """Load records that are read at their places."""
        if not self._range.segment.is_mapped:
            begins, ends = starts - self._lead, starts + np.diff(bounds)
            self._opened.load_many(list(zip(begins.tolist(), ends.tolist(), strict=True)))

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
            framing = self._range.segment.framing
            self._chain.segment.pages.load(at, self._whole.size)
            check = check_frame(self._whole.data, at, self._start_offset, framing, verify_crc=verify_crc)
            if check.reason is not None:
                yield Damage(at, self._raw.size, check, is_followed=False)

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
        return corrupt_record_error(damage.check, self._raw.data, damage.begin, self._start_offset, path, advice)

    def _goes_on_at(self, damage: Damage) -> str:
        where = f"offset {self._start_offset + damage.end}"
        return f"at the next sound record, {where}" if damage.is_followed else f"after it, {where}"

    def _damaged_rows(self, damage: Damage) -> list[tuple[int, int]]:
        """Return the pieces of damage that become rows of this range."""
        pieces = pieces_of(damage.begin, damage.end)
        return self._rows.kept([(begin, end) for begin, end in pieces if self._begin <= begin < self._end])


def _count_sound(records: Records) -> int:
    """Count the records before the first unsound one."""
    sound = records.spans.sound
    return len(records) if sound.all() else int(sound.argmin())
