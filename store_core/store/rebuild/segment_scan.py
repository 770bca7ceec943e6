# SPDX-License-Identifier: Apache-2.0
"""A segment's part of a rebuild, and the reading of it for units of queues and index entries, across damage.

Segments are read independently, in any order and by any process; `store_core.store.rebuild.job` combines the results
in log order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.errors import UnsafeSizeError
from store_core.files.segment_source import Segment, SegmentBytes, open_segment
from store_core.format.columnar.chain import Place, Run, Window, count_sound
from store_core.format.columnar.records import Records, unexpandable
from store_core.format.columnar.spans import record_crcs
from store_core.format.layout import MessageSysFlag
from store_core.format.properties import INNER_BASE, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, INNER_NUM
from store_core.format.record.scan import StopReason, check_record
from store_core.format.salvage import CandidateFinder, Damage, SalvageWalk, store_timestamps
from store_core.format.segment_view import Piece, SegmentView
from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest, QueueNumbering, RequestBatch
from store_core.queue.dispatch.dispatch_reader import DispatchReader, WindowReader
from store_core.queue.dispatch.rocketmq_check import Strictness
from store_core.queue.dispatch.stored_batch import StoredBatch
from store_core.queue.index_format import MessageKeys
from store_core.queue.queue_assignment import (
    BatchAssignment,
    QueueUnits,
    RefusedUnit,
    UnfitListsError,
    UnitBuffer,
    UnitRows,
    assign_batch,
    lmq_units,
)
from store_core.queue.queue_path import has_lists
from store_core.snapshot.log_end import FoundEnd, TornTail, find_end
from store_core.store.read.ranges import CheckKind, Coverage
from store_core.store.rebuild.findings import LostRanges
from store_core.store.rebuild.index_files import NO_DIFFERENCES, IndexComparison, IndexDifferences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.queue.queue_path import QueueRules
    from store_core.store.rebuild.findings import LostRange
    from store_core.store.rebuild.plan import RebuildRules


_RETRIES: Final = 16
"""Records of a run that may fail to dispatch before the rest of it is tried one by one."""

_BATCH_ROWS: Final = 1 << 14
_BAD_BODY: Final = StopReason.BAD_CRC.value


class SalvagedReader:
    """Iterates over the records of one segment that prove themselves: batches, each with the segment.

    These are the records that reading in mode DROPMALFORMED finds (`store_core.format.salvage.SalvageWalk`), except
    those that the release can't dispatch, such as a V2 record before 5.x. As in a broker, names need not be UTF-8.

    * `segment`: The segment up to the log's end.
    * `check_crc`: Whether to leave out records whose bodies do not match their checksums.
    * `is_last`: Whether the log ends in this segment, so that it may hold older bytes.
    * `is_proven`: Whether to leave out records that do not match their checksum over the whole record.

    * `position`: After the iteration: where the segment's records end.
    * `is_continued`: After the iteration: whether a blank record leads to the next segment.
    * `lost`: Ranges without a record before `position`.
    """

    def __init__(
        self, segment: SegmentView, rules: QueueRules, *, check_crc: bool, is_last: bool, is_proven: bool = False
    ) -> None:
        self.position = 0
        self.is_continued = False
        self.lost = LostRanges()
        self._start_offset = segment.start_offset
        self._raw = np.empty(0, np.uint8)  # of the window that positions of records are in
        self._base = 0
        self._rules = rules
        self._check_crc = check_crc
        self._is_proven = is_proven
        self._salvage = SalvageWalk(segment, only_newer=is_last)

    def __iter__(self) -> Iterator[tuple[DispatchBatch, Piece]]:
        for part in self._salvage.parts():
            if isinstance(part, Window):
                self._raw, self._base = part.raw, part.base
                view = Piece(part.raw, self._start_offset + part.base)
                for run in self._proven(part.run) if self._is_proven else (part.run,):
                    yield from ((batch, view) for batch in self._dispatched(run))
            else:
                self._base = 0
                self._lose(part.begin, part.end, part.check.reason or StopReason.BAD_MAGIC)
        self.position = self._salvage.stop
        self.is_continued = self._salvage.reason is StopReason.END_OF_FILE

    def _lose(self, begin: int, end: int, reason: StopReason | str) -> None:
        text = reason.value if isinstance(reason, StopReason) else reason
        first = self._start_offset + self._base
        self.lost.add(first + begin, first + end, text)

    def _reader(self, position: int, stop: int) -> DispatchReader:
        piece = Piece(self._raw[:stop], self._start_offset + self._base)
        return DispatchReader(piece, position, self._rules, Strictness(self._check_crc, read_body=self._check_crc))

    def _proven(self, run: Run) -> Iterator[Run]:
        """Yield the stretches between records that do not match their checksum, or have no store time."""
        bounds = np.append(run.starts, run.stop)
        timeless = np.flatnonzero(store_timestamps(self._raw, run.starts) <= 0)
        wrong = wrong_record_crcs(self._raw, run.starts, bounds[1:], self._rules)
        first = 0
        for row in np.union1d(timeless, wrong).tolist():
            if first < row:
                yield Run(run.starts[first:row], int(bounds[row]))
            why = WRONG_RECORD_CRC if row in wrong else NO_STORE_TIME
            is_body = self._has_bad_body(int(bounds[row]))
            self._lose(int(bounds[row]), int(bounds[row + 1]), _BAD_BODY if is_body else why)
            first = row + 1
        if first < run.starts.size:
            yield Run(run.starts[first:], run.stop)

    def _dispatched(self, run: Run) -> Iterator[DispatchBatch]:
        """Yield the records of a run, except those that can't be dispatched."""
        starts = run.starts
        for _ in range(_RETRIES):
            reader = self._reader(int(starts[0]), run.stop)
            yield from reader
            if reader.position >= run.stop:
                return
            starts = starts[int(np.searchsorted(starts, reader.position)) :]
            self._lose_record(int(starts[0]), int(starts[1]) if starts.size > 1 else run.stop)
            starts = starts[1:]
            if not starts.size:
                return
        yield from self._one_by_one(starts, run.stop)

    def _one_by_one(self, starts: npt.NDArray[np.int64], stop: int) -> Iterator[DispatchBatch]:
        reader = self._reader(int(starts[0]), stop)
        bounds = np.append(starts, stop)
        for first in range(0, starts.size, _BATCH_ROWS):
            kept: list[int] = []
            requests: list[DispatchRequest] = []
            for at in range(first, min(first + _BATCH_ROWS, starts.size)):
                request = reader.check(int(starts[at])).request
                if request is None:
                    self._lose_record(int(bounds[at]), int(bounds[at + 1]))
                else:
                    kept.append(int(starts[at]))
                    requests.append(request)
            if kept:
                yield RequestBatch(requests, kept)

    def _lose_record(self, begin: int, end: int) -> None:
        """Add a whole record that is not dispatched, with the reason, to the lost ranges."""
        considered = f"a broker of release {self._rules.release} considers the record damaged"
        self._lose(begin, end, _BAD_BODY if self._has_bad_body(begin) else considered)

    def _has_bad_body(self, begin: int) -> bool:
        return self._check_crc and check_record(self._raw.data, begin, None, verify_crc=True).reason is not None


_NOTHING: Final = bytes(8)


@dataclass(slots=True)
class SegmentScan:
    """Iterates over what a part of a segment gives: `QueueUnits`, in log order, and `MessageKeys`."""

    part: SegmentPart
    rules: RebuildRules
    comparison: IndexComparison | None = None  # gets the index entries, which are then not yielded
    outcome: SegmentOutcome | None = None  # None until the iteration is complete
    lost: LostRanges = field(default_factory=LostRanges)  # ranges without a record; complete when the iteration is
    _units: SegmentUnits = field(init=False)
    _kinds: ToldKinds = field(init=False)
    _unproven: int = 0
    _unexpandable: LostRanges = field(default_factory=LostRanges)

    def __post_init__(self) -> None:
        self._units = SegmentUnits(self.rules)
        self._kinds = ToldKinds(self.rules)

    def __iter__(self) -> Iterator[QueueUnits | MessageKeys]:
        with open_segment(self.part.segment, self.part.end) as opened:
            reader, rules = self._reader(opened), self.rules
            records = last_start = last_time = 0
            is_sound = not rules.is_salvaged
            for batch, view in reader:
                records += len(batch)
                last_start = view.start_offset - self.part.segment.start_offset + int(batch.starts[-1])
                last_time = int(batch.store_timestamp[-1])
                is_sound = is_sound and _are_sound(batch, view)
                if rules.is_proven and not rules.is_salvaged:
                    starts, stops = batch.starts, batch.starts + batch.message_size
                    is_wrong = (batch.physical_offset != starts + view.start_offset) | (batch.store_timestamp <= 0)
                    is_wrong[wrong_record_crcs(view.raw, starts, stops, rules.queue_rules)] = True
                    self._unproven += int(np.count_nonzero(is_wrong))
                if rules.is_proven and rules.check_crc:
                    self._note_bodies(view, batch)
                yield from self._pieces(batch)
            yield from self._units.rest()
            ended = self._ended(reader, self.part.segment.view(opened))
            is_cut = ended.ends_in_damage and not rules.is_salvaged
            left_out = self._note_lost(opened, reader, last_start if records else -1) if is_cut else 0
            found = replace(ended, records=records, last_store_timestamp=last_time, is_sound=is_sound)
            self.outcome = self._with_losses(found, left_out)

    def _reader(self, opened: SegmentBytes) -> WindowReader | SalvagedReader:
        view, rules = self.part.segment.view(opened), self.rules
        if not rules.is_salvaged:
            strictness = Strictness(rules.check_crc, read_body=True)
            return WindowReader(view, self.part.begin, rules.queue_rules, strictness, self.part.end)
        reader = SalvagedReader(
            view.up_to(self.part.end), rules.queue_rules,
            check_crc=rules.check_crc, is_last=self.part.is_last, is_proven=rules.is_proven,
        )  # fmt: skip
        self.lost = reader.lost
        return reader

    def _note_bodies(self, view: Piece, batch: DispatchBatch) -> None:
        """Note the compressed bodies that no consumer can expand."""
        packed = batch.starts[(batch.sys_flag & MessageSysFlag.COMPRESSED_FLAG) != 0]
        records = Records(view.raw, packed, self.part.segment.name, view.start_offset)
        for fault in unexpandable(records.only(records.spans.sound)) if packed.size else ():
            begin, error = view.start_offset + fault.position, fault.error
            reason = f"{error.problem}: expected {error.expected}, found {error.found}"
            self._unexpandable.add(begin, begin + fault.size, reason)

    def _note_lost(self, opened: SegmentBytes, reader: WindowReader | SalvagedReader, last_sound: int) -> int:
        """Note ranges without a record after reading ended; return how many sound records follow and are left out.

        A sound record at which a broker ends the log is also noted as a lost range.
        """
        first, left_out = self.part.segment.start_offset, 0
        salvage = SalvageWalk(self.part.segment.view(opened), only_newer=True, is_growing=True)
        for found in salvage.parts(Place(reader.position, last_sound)):
            if isinstance(found, Damage):
                reason = (found.check.reason or StopReason.BAD_MAGIC).value
                self.lost.add(first + found.begin, first + found.end, reason)
                continue
            starts = found.starts
            is_refused = int(starts[0]) == reader.position
            if is_refused:
                stop = int(starts[1]) if starts.size > 1 else found.stop
                why = f"a broker of release {self.rules.queue_rules.release} considers the record damaged"
                self.lost.add(first + reader.position, first + stop, why)
            left_out += starts.size - is_refused
        return left_out

    def _pieces(self, batch: DispatchBatch) -> Iterator[QueueUnits | MessageKeys]:
        if self.comparison is not None:
            self.comparison.add(batch)
        elif self.rules.has_index and batch.physical_offset[-1] >= self.rules.index_since_offset:
            keys = batch.index_hashes(with_tags=self.rules.queue_rules.features.indexes_tags)
            yield MessageKeys(batch.physical_offset, batch.store_timestamp, keys.rows, keys.hashes)
        if self.rules.has_queues:
            self._kinds.look_at(batch)
            yield from self._units.add(batch)

    def _ended(self, reader: WindowReader | SalvagedReader, view: SegmentView) -> SegmentOutcome:
        """Return how the reading of the part ended, and nothing else yet."""
        head = view.chunk(reader.position, min(reader.position + len(_NOTHING), view.size)).tobytes()
        is_unwritten = head == _NOTHING[: len(head)]
        start = self.part.segment.start_offset
        ended = SegmentOutcome(self.part.segment.path, start + self.part.begin, start + reader.position)
        if isinstance(reader, WindowReader):
            is_continued = reader.end.is_blank
            size = int.from_bytes(head[: len(head) // 2], signed=True)
            self._unproven += self.rules.is_proven and is_continued and size != view.size - reader.position
            is_unwritten = is_unwritten and not is_continued
            return replace(ended, is_continued=is_continued, is_unwritten=is_unwritten, is_at_limit=reader.is_at_limit)
        is_inside = not self.part.is_last  # the walk has reported all damage up to the next segment
        return replace(ended, is_continued=reader.is_continued, is_unwritten=is_unwritten or is_inside)

    def _with_losses(self, found: SegmentOutcome, left_out: int) -> SegmentOutcome:
        """Add what was refused, lost and told of, and how the index differs."""
        comparison = self.comparison
        index = comparison.finish(found.end_offset, self.lost) if comparison is not None else NO_DIFFERENCES
        return replace(
            found,
            refused_count=self._units.refused_count,
            refused=tuple(self._units.refused),
            light_record=self._kinds.light_record,
            batch_topics=tuple(sorted(self._kinds.batch_topics)),
            passed_over=tuple(sorted(self._units.passed_over)),
            lost_count=self.lost.count,
            lost_bytes=self.lost.size,
            lost=tuple(self.lost.first),
            left_out=left_out,
            unproven=self._unproven,
            light=self._kinds.light,
            unexpandable=self._unexpandable.count,
            unexpandable_first=tuple(self._unexpandable.first),
            index=index,
        )


def _are_sound(batch: DispatchBatch, view: Piece) -> bool:
    """Return whether a reader's chain leads to all records of a batch; those of a `StoredBatch` were measured."""
    if isinstance(batch, StoredBatch):
        return bool(np.all(batch.physical_offset == batch.starts + view.start_offset))
    return count_sound(view.raw, batch.starts, view.start_offset) == len(batch)


WRONG_RECORD_CRC: Final = "the record does not match its checksum over all of it, the property __CRC32#"

NO_STORE_TIME: Final = "the record has no store time"


def wrong_record_crcs(
    raw: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    rules: QueueRules,
) -> npt.NDArray[np.int64]:
    """Return which records do not match the checksum over all of them; none in releases that have no such checksum.

    * `raw`: uint8, shape (m,): the segment.
    * `starts`, `stops`: int64, shape (n,): positions of the records.
    """
    if not rules.features.has_property_crc:
        return np.empty(0, np.int64)
    checked = record_crcs(raw, starts, stops)
    return checked.rows[~checked.is_right]


_ROOM: Final = 1 << 19
"""Units collected before they are passed on, 16 MiB of plain ones; with fewer, small queues get tiny pieces."""

_PASSED_OVER_KEPT: Final = 1000
_UNWANTED: Final = -1


class SegmentUnits:
    """Assigns batches of records to queues, by `store_core.queue.queue_assignment`.

    * `room`: Units collected before they are passed on.

    * `refused_count`: Number of impossible units.
    * `refused`: The first of these.
    * `passed_over`: Topic and id of the first queues that were not requested.
    """

    def __init__(self, rules: RebuildRules, room: int = _ROOM) -> None:
        self.passed_over: set[tuple[str, int]] = set()
        self.refused: list[RefusedUnit] = []
        self.refused_count = 0
        self._rules = rules
        self._numbers = QueueNumbering()
        self._buffer = UnitBuffer(room)

    def add(self, batch: DispatchBatch) -> Iterator[QueueUnits]:
        """Add a batch of records, and yield units whenever enough are collected."""
        assigned = assign_batch(batch, self._rules.queue_rules, self._numbers)
        self.refused_count += len(assigned.refused)
        self.refused += assigned.refused[: REFUSED_KEPT - len(self.refused)]
        units = self._wanted(batch, assigned)
        done = 0
        while done < len(units.code):
            part = units.slice(done, done + self._buffer.room)
            self._buffer.add(part)
            done += len(part.code)
            if not self._buffer.room:
                yield from self.rest()

    def _wanted(self, batch: DispatchBatch, assigned: BatchAssignment) -> UnitRows:
        """Return the requested units, with their queues' numbers in the segment."""
        units = UnitRows.of(batch, assigned)
        is_recent = units.physical_offset >= self._rules.since_offset
        if not is_recent.all():
            units = units.chosen(is_recent)
        numbers = np.full(len(assigned.queues), _UNWANTED, np.int64)
        for code in np.flatnonzero(np.bincount(units.code)).tolist():
            numbers[code] = self._number(assigned.queues[code])
        codes = numbers.take(units.code)
        return units._replace(code=codes).chosen(codes != _UNWANTED)

    def _number(self, queue: tuple[str, int]) -> int:
        """Return the number of a queue that has units here, or `_UNWANTED`."""
        if queue in self._numbers:
            return self._numbers.number(queue)
        if not self._rules.wants(*queue):
            # There is always room for some of a requested topic.
            is_of_wanted = self._rules.topics is not None and queue[0] in self._rules.topics
            if len(self.passed_over) < _PASSED_OVER_KEPT << is_of_wanted:
                self.passed_over.add(queue)
            return _UNWANTED
        if len(self._numbers) >= self._rules.max_queues:
            raise UnsafeSizeError(
                "too many queues", "the log", 0, f"at most {self._rules.max_queues} in a segment",
                f"one more, {queue[1]} of topic {queue[0][:100]!r}", b"",
                "A log may name a queue in every record. If these are real, raise the bound (--max-queues).",
            )  # fmt: skip
        return self._numbers.number(queue)

    def rest(self) -> Iterator[QueueUnits]:
        """Yield the remaining units."""
        if len(self._buffer):
            yield QueueUnits(self._numbers.queues.copy(), self._buffer.take()).used()


_INNER_BATCH: Final = int(MessageSysFlag.INNER_BATCH_FLAG)


class LightRecords(NamedTuple):
    """How many records name light queues, and how many of them can be in none."""

    named: int = 0  # records with property INNER_MULTI_DISPATCH
    unindexed: int = 0  # those without INNER_MULTI_QUEUE_OFFSET: nothing says which index they would have
    unfit: int = 0  # those whose indexes do not match the names, or are not numbers
    kept_out: int = 0  # those of a topic of which the release reads no such properties, such as a retry topic

    def plus(self, other: LightRecords) -> LightRecords:
        """Return the sums."""
        return LightRecords(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NO_LIGHT_RECORDS: Final = LightRecords()


class ToldKinds:
    """Finds records that only a store with light queues, or with batch topics, can have written.

    * `light_record`: Physical offset of the first record that is in light queues; -1 if there is none.
    * `batch_topics`: Topics with an inner batch that are not batch topics by the rules.

    RocketMQ 4.9.7 and 5.3.3 write indexes into INNER_MULTI_QUEUE_OFFSET with ``enableLmq`` only. 5.3.3 refuses a
    message with the flag of an inner batch unless its topic has ``queue.type=BatchCQ`` (``HookUtils.checkInnerBatch``).
    A batch topic of which the log has only single messages can't be recognised. Records do not show whether there was a
    queue extension.
    """

    def __init__(self, rules: RebuildRules) -> None:
        self.light_record = -1
        self.light = NO_LIGHT_RECORDS
        self.batch_topics: set[str] = set()
        self._rules = rules
        self._with_light = replace(rules.queue_rules, is_multi_dispatch_enabled=True, is_lmq_enabled=True)

    def look_at(self, batch: DispatchBatch) -> None:
        """Examine the next records."""
        for row in batch.multi_dispatch_rows.tolist():
            self._look_at_light(batch.request(row))
        if self._rules.queue_rules.features.has_inner_batches:
            self._look_for_inner_batches(batch)

    def _look_at_light(self, request: DispatchRequest) -> None:
        names, indexes = map(request.properties.get, (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET))
        if not (names or "").strip():
            return
        is_kept_out = not has_lists(request.topic, self._rules.queue_rules.features)
        is_unindexed = not is_kept_out and not (indexes or "").strip()
        is_unfit = False
        try:
            units = lmq_units(request, self._with_light)
        except UnfitListsError:
            units, is_unfit = [], True
        self.light = self.light.plus(LightRecords(1, is_unindexed, is_unfit, is_kept_out))
        if self.light_record < 0 and any(self._rules.wants(unit.topic, unit.queue_id) for unit in units):
            self.light_record = request.physical_offset

    def _look_for_inner_batches(self, batch: DispatchBatch) -> None:
        rows = np.flatnonzero(batch.sys_flag & _INNER_BATCH)
        codes, first = np.unique(batch.queue_codes[rows], return_index=True)
        for code, row in zip(codes.tolist(), rows[first].tolist(), strict=True):
            queue = batch.queues[code]
            is_known = queue[0] in self.batch_topics or queue[0] in self._rules.queue_rules.batch_topics
            if is_known or not self._rules.wants(*queue):
                continue
            if {INNER_NUM, INNER_BASE} <= batch.request(row).properties.keys():
                self.batch_topics.add(queue[0])


_SMALLEST_PART: Final = 64 << 20
"""Bytes; for a smaller part a task costs more than it saves."""

_PROBES: Final = (64 << 10, 1 << 20)
"""Bytes searched for a record at a cut; the first size nearly always suffices."""

REFUSED_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """The records of a segment that start in a range of its bytes.

    * `begin`, `end`: Positions in the file; its first record starts at `begin`.
    """

    segment: Segment
    begin: int
    end: int
    is_last: bool = False  # whether the log ends in this segment, as far as known beforehand


@dataclass(frozen=True, slots=True)
class SegmentOutcome:
    """How the reading of a segment, or of a part of one, ended.

    * `start_offset`, `end_offset`: Physical offsets of its first record, or where one should be, and one past its last
      record.
    * `lost_count`, `lost_bytes`: Number of ranges without a record, and bytes in them.
    """

    path: str
    start_offset: int
    end_offset: int
    records: int = 0
    is_continued: bool = False  # whether a blank record leads to the next file
    is_unwritten: bool = False
    """Whether zeros follow the last record, as in the file that is being written. If not, and unless it is continued,
    it is damaged there."""
    last_store_timestamp: int = 0  # store time of its last record, ms; 0 if there is none
    is_at_limit: bool = False  # whether a part ended where the next one begins
    is_sound: bool = False  # whether its records are those that a reader's chain leads to
    refused_count: int = 0  # number of impossible units, see `ConsumeQueueStore.put`
    refused: tuple[RefusedUnit, ...] = ()  # the first of these
    light_record: int = -1
    batch_topics: tuple[str, ...] = ()
    """Kinds of queues shown by its records, see `store_core.store.rebuild.segment_scan.ToldKinds`."""
    passed_over: tuple[tuple[str, int], ...] = ()  # topic and id of the first queues that were not requested
    lost_count: int = 0
    lost_bytes: int = 0
    lost: tuple[LostRange, ...] = ()  # the first of these
    left_out: int = 0
    """Number of sound records after damage that were left out because, by the rules, the log ends at damage."""
    unproven: int = 0
    """With `RebuildRules.is_proven`: how many records, and blank ones, a broker takes although they are damaged."""
    light: LightRecords = NO_LIGHT_RECORDS
    unexpandable: int = 0
    """With `RebuildRules.is_proven`: how many records have a compressed body that no consumer can expand."""
    unexpandable_first: tuple[LostRange, ...] = ()  # the first of these, and why
    index: IndexDifferences = NO_DIFFERENCES  # for a comparison: of the entries of these records

    @property
    def is_damaged(self) -> bool:
        """Whether there are bytes that are not a record, a blank or zeros, between records or after the last."""
        return self.lost_count > 0 or self.ends_in_damage

    @property
    def ends_in_damage(self) -> bool:
        """Whether the last record is followed by bytes that are not a record, a blank or zeros."""
        return not (self.is_continued or self.is_unwritten or self.is_at_limit)


def split_segments(segments: Iterable[Segment], tasks: int) -> tuple[SegmentPart, ...]:
    """Split segments into about `tasks` parts, none too small to be worth a task.

    A cut is made where a record seems to start; reading the preceding part then proves whether one really does, see
    `merge_outcomes`. If none is near, as in an unwritten region, there is no cut.
    """
    listed = list(segments)
    size = max(sum(segment.size for segment in listed) // max(tasks, 1), _SMALLEST_PART)
    return tuple(
        replace(part, is_last=segment is listed[-1])
        for segment in listed
        for part in _split(segment, -(-segment.size // size))
    )


def _split(segment: Segment, count: int) -> list[SegmentPart]:
    if count <= 1:
        return [SegmentPart(segment, 0, segment.size)]
    wanted = [segment.size * number // count for number in range(1, count)]
    with open_segment(segment) as opened:
        view = segment.view(opened)
        near = [_seeming_start(view, cut) for cut in wanted]
    cuts = [0, *sorted({cut for cut in near if cut is not None}), segment.size]
    return [SegmentPart(segment, begin, end) for begin, end in pairwise(cuts)]


def _seeming_start(segment: SegmentView, cut: int) -> int | None:
    """Find what looks like a record with its own physical offset, near a position; None if there is none."""
    for probe in _PROBES:
        found = CandidateFinder(segment.up_to(cut + probe)).next(cut)
        if found is not None:
            return found
    return None


def merge_outcomes(parts: Sequence[SegmentPart], outcomes: Sequence[SegmentOutcome]) -> list[SegmentOutcome] | None:
    """Merge the outcomes of parts into one outcome per segment.

    Returns: None if parts do not fit together: a part began at what only looked like a record, as the previous part
    does not lead there. Segments must then be read whole.

    The first part of a segment begins at its first byte. If it ends exactly where the second begins, the second began
    where a single reader would have continued; and so on. So the merged result is that of a single reader.
    """
    merged: list[SegmentOutcome] = []
    for part, outcome in zip(parts, _settled_tags(outcomes), strict=True):
        if not part.begin:
            merged.append(outcome)
        elif merged[-1].is_at_limit:
            if outcome.start_offset != merged[-1].end_offset:
                return None
            merged[-1] = _joined(merged[-1], outcome)
        elif outcome.records:
            return None
    return merged


def _settled_tags(outcomes: Iterable[SegmentOutcome]) -> Iterator[SegmentOutcome]:
    """Count tags without an entry as missing after the first part of the log that has some."""
    has_tags = False
    for outcome in outcomes:
        yield replace(outcome, index=outcome.index.after_tags()) if has_tags else outcome
        has_tags |= outcome.index.has_tags


_SUMMED: Final = (
    "records", "refused_count", "lost_count", "lost_bytes", "lost", "left_out", "unproven", "unexpandable",
    "unexpandable_first",
)  # fmt: skip
"""Fields of an outcome that are added up, or put together, for a whole segment."""


def _joined(first: SegmentOutcome, second: SegmentOutcome) -> SegmentOutcome:
    summed = {name: getattr(first, name) + getattr(second, name) for name in _SUMMED}
    return replace(
        second,
        **summed,
        start_offset=first.start_offset,
        is_sound=first.is_sound and second.is_sound,
        last_store_timestamp=second.last_store_timestamp if second.records else first.last_store_timestamp,
        refused=(first.refused + second.refused)[:REFUSED_KEPT],
        light_record=second.light_record if first.light_record < 0 else first.light_record,
        batch_topics=tuple(sorted({*first.batch_topics, *second.batch_topics})),
        passed_over=tuple(sorted({*first.passed_over, *second.passed_over})),
        light=first.light.plus(second.light),
        index=first.index.plus(second.index),
    )


def arrives_at(outcomes: Sequence[SegmentOutcome], end: int) -> bool:
    """Return whether the chain of sound records that was read leads to a physical offset, and no further."""
    last = next((found for found in reversed(outcomes) if found.records), None)
    return last is not None and last.is_sound and not last.lost_count and last.end_offset == end


def find_rebuilt_end(
    segments: Sequence[Segment], outcomes: Sequence[SegmentOutcome], *, live_end: int | None
) -> FoundEnd:
    """Find the end of a log that has already been read: by its last part, if reading arrived there.

    * `live_end`: Physical offset up to which a log was read that a broker is writing: later bytes have been written
      since.
    """
    if live_end is not None:
        return FoundEnd(live_end, segments[-1].path)
    end = find_end(segments, by_tail=True)
    return end if arrives_at(outcomes, end.end_offset) else find_end(segments)


def without_tails(outcomes: Sequence[SegmentOutcome], tails: Sequence[TornTail]) -> list[SegmentOutcome]:
    """Remove what follows the log's end from the lost ranges: it is reported separately from damage inside the log."""
    begins = {tail.begin for tail in tails}
    return [_without_lost(found, begins) for found in outcomes]


def _without_lost(outcome: SegmentOutcome, begins: set[int]) -> SegmentOutcome:
    """Return an outcome without the lost ranges that begin at given offsets."""
    dropped = [lost for lost in outcome.lost if lost.begin in begins]
    kept = tuple(lost for lost in outcome.lost if lost.begin not in begins)
    size = sum(lost.end - lost.begin for lost in dropped)
    count = outcome.lost_count - len(dropped)
    return replace(outcome, lost=kept, lost_count=count, lost_bytes=outcome.lost_bytes - size)


def rebuild_coverage(rules: RebuildRules, *, is_comparison: bool) -> Coverage:
    """Return what a rebuild or a comparison by these rules checks."""
    queue_rules = rules.queue_rules
    verifies = queue_rules.verify_property_crc or rules.is_proven
    has_property_crc = rules.check_crc and queue_rules.features.has_property_crc and verifies
    earlier = {CheckKind.LENGTHS_OF_EARLIER_SEGMENTS: False} if rules.first_offset else {}
    return Coverage.of(
        {
            CheckKind.SEGMENT_SIZES: True,
            CheckKind.LENGTHS: True,
            **earlier,
            CheckKind.LAST_BODY_CHECKSUMS: True,
            CheckKind.BODY_CHECKSUMS: rules.check_crc,
            CheckKind.PROPERTY_CHECKSUMS: has_property_crc,
            CheckKind.PLACES: rules.is_salvaged or rules.is_proven,
            CheckKind.QUEUES: is_comparison and rules.has_queues,
            CheckKind.INDEX: is_comparison and rules.has_index,
        }
    )
