# SPDX-License-Identifier: Apache-2.0
"""Reading one segment of the log for units of queues and index entries, packed for transport, across damage.

Segments are read independently, in any order and by any process; `store_core.store.rebuild.job` combines the results
in log order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import UnsafeSizeError
from store_core.files.segment_source import SegmentBytes, open_segment
from store_core.format.columnar.chain import Place, Run, Window, count_sound
from store_core.format.columnar.checksums import record_crcs
from store_core.format.columnar.decode_batch import unexpandable
from store_core.format.columnar.records import Records
from store_core.format.layout import MessageSysFlag
from store_core.format.record.scan import StopReason, check_record
from store_core.format.salvage import Damage, SalvageWalk, store_timestamps
from store_core.format.segment_view import Piece, SegmentView
from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest, QueueNumbering, RequestBatch
from store_core.queue.dispatch.dispatch_reader import DispatchReader, WindowReader
from store_core.queue.dispatch.rocketmq_check import Strictness
from store_core.queue.dispatch.stored_batch import StoredBatch
from store_core.queue.index_format import MessageKeys
from store_core.queue.queue_assignment import BatchAssignment, RefusedUnit, assign_batch
from store_core.queue.unit_rows import QueueUnits, UnitBuffer, UnitRows
from store_core.store.rebuild.findings import LostRanges
from store_core.store.rebuild.index_files import NO_DIFFERENCES, IndexComparison
from store_core.store.rebuild.segment_part import REFUSED_KEPT, SegmentOutcome, SegmentPart, ToldKinds

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.queue.queue_path import QueueRules
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
