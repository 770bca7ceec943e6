# SPDX-License-Identifier: Apache-2.0
"""The segments of a log that grows, how far their records are sound, and positions, proven by the records before."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from dataclasses import asdict, dataclass, field
from itertools import count, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from store_core.errors import (
    DataLossError,
    ExpiredSegmentsError,
    InvalidOptionError,
    MissingSegmentsError,
    ReplacedStoreError,
    StoreNotFoundError,
    TruncatedLogError,
)
from store_core.files.segment_source import Segment, open_ahead, open_segment, segment_at
from store_core.files.storage import NO_SETTINGS, StorageSettings
from store_core.files.store_path import StorePaths, located_now
from store_core.format.columnar.chain import Chain, Place, Run, Window
from store_core.format.columns import iso_time
from store_core.format.record.scan import (
    StopReason,
    check_record,
    head_shape,
    read_frame,
    read_sys_flag,
    store_timestamp,
)
from store_core.format.salvage import LogEnd, SalvageWalk, find_log_end, store_timestamps
from store_core.snapshot.log import Log, first_store_timestamp
from store_core.store.read.ranges import CLOCK_STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    from store_core.format.segment_view import SegmentView


_LONG: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RecordProof:
    """A record, by its place and its head.

    The head has the checksum of the body, the queue offset and three times and hosts, so another message has another
    head. Nothing after it is included: a writer puts a record into the file from its first byte on.
    """

    physical_offset: int  # where the record is
    size: int  # its bytes
    store_timestamp: int  # its store time, ms
    head_crc: int  # CRC-32 of its head

    @classmethod
    def of(cls, segment: SegmentView, position: int) -> Self | None:
        """Return the proof of the record at a position of a segment; None if there is no record."""
        if not 0 <= position < segment.size:
            return None
        data = segment.frame(position).data
        check = check_record(data, 0, segment.start_offset + position)
        if check.reason is not None:
            return None
        crc = zlib.crc32(data[: head_shape(read_sys_flag(data, 0)).size])
        return cls(segment.start_offset + position, check.size, store_timestamp(data, 0), crc)

    @property
    def end_offset(self) -> int:
        """Physical offset one past the record."""
        return self.physical_offset + self.size

    def as_json(self) -> dict[str, int]:
        """Return the proof as values for JSON."""
        return {_JSON[name][0]: value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, name: str, found: object) -> Self | None:
        """Return what `as_json` made; None for None."""
        if found is None:
            return None
        return cls(**{field: json_integer(name, found, key, most) for field, (key, most) in _JSON.items()})


_JSON: Final = {
    "physical_offset": ("physicalOffset", _LONG),
    "size": ("size", 2**31 - 1),
    "store_timestamp": ("storeTimestamp", _LONG),
    "head_crc": ("headCrc", 2**32 - 1),
}
"""Name of a field -> its name in JSON, and the largest value that makes sense."""


def json_integer(name: str, found: object, key: str, most: int = _LONG) -> int:
    """Return an integer of a JSON object.

    * `name`: What the object is, for the error.
    * `most`: The largest value that makes sense; the smallest is 0, and for times any negative one.
    """
    value = found.get(key) if isinstance(found, dict) else None
    least = -_LONG if key == "storeTimestamp" else 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidOptionError(
            f"{name}: expected an integer {key} between {least} and {most}, found {found!r}. It is not a position that "
            f"format 'commitlog' has written: was the checkpoint made by another source, or edited?"
        )
    return value


_NAME: Final = "the offset of a stream"


class RecordVanishedError(Exception):
    """A record that was just found is gone: the log is being truncated. Whoever looks again sees what is left."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where a batch of a stream begins or ends."""

    physical_offset: int  # Records before it have been read. It is a segment's first byte, or one past a record.
    segment: str  # name of the segment file that the position is in
    last_record: RecordProof | None = None
    """The record before the position: if it is still there, the log is the one that was read. None at the start of a
    log."""
    anchor_records: tuple[RecordProof, ...] = ()
    """The first records of the segment of the last record, of the one before it, and of those 2, 4, 8 and so on before
    it, and of the log's first one. A log that a recovery truncated still has those before the cut, and another log has
    none."""

    @classmethod
    def at_start(cls, segment: Segment) -> Self:
        """Return the position of a segment's first byte, without proof."""
        return cls(segment.start_offset, segment.name)

    @classmethod
    def after(cls, segment: Segment, view: SegmentView, last_start: int, anchors: tuple[RecordProof, ...]) -> Self:
        """Return the position after a record; if that closes the segment, it is the next segment's first byte.

        * `view`: Its bytes.
        * `last_start`: Where the record starts, in bytes from the segment's start.
        """
        last = RecordProof.of(view, last_start)
        if last is None:
            raise RecordVanishedError(f"no record at position {last_start} of {segment.path}")
        end = last.end_offset
        is_closed = _is_closed(view, end - view.start_offset)
        name = f"{segment.end_offset:020d}" if is_closed else segment.name
        return cls(segment.end_offset if is_closed else end, name, last, anchors)

    def place_in(self, segment: Segment) -> Place:
        """Return where a walk through a segment goes on from this position."""
        position = max(self.physical_offset - segment.start_offset, 0)
        start = self.walk_start(segment)
        return Place(position, -1 if start is None else start - segment.start_offset)

    def walk_start(self, segment: Segment) -> int | None:
        """Return the physical offset of the last record, if it is in a segment; else None."""
        last = self.last_record
        return last.physical_offset if last is not None and last.physical_offset >= segment.start_offset else None

    def as_json(self) -> dict[str, object]:
        """Return the position as values for JSON, for people to read, too."""
        last = self.last_record
        return {
            "physicalOffset": self.physical_offset,
            "segment": self.segment,
            "lastRecord": None if last is None else last.as_json(),
            "anchorRecords": [anchor.as_json() for anchor in self.anchor_records],
        }

    @classmethod
    def from_json(cls, found: object) -> Self:
        """Return what `as_json` made, also from older checkpoints, which have one anchor."""
        physical_offset = json_integer(_NAME, found, "physicalOffset")
        found = found if isinstance(found, dict) else {}
        segment = found.get("segment")
        last = RecordProof.from_json(f"lastRecord in {_NAME}", found.get("lastRecord"))
        is_start = segment == f"{physical_offset:020d}"
        if not isinstance(segment, str) or (last is not None and last.end_offset != physical_offset and not is_start):
            raise InvalidOptionError(
                f"{_NAME}: expected a segment's name, and an offset that is the segment's first one or the end of "
                f"lastRecord, found {found!r}. To read from another offset, begin a new query with a new checkpoint "
                f"and startingOffsets"
            )
        return cls(physical_offset, segment, last, _anchors(found))


def _anchors(found: Mapping[str, object]) -> tuple[RecordProof, ...]:
    anchors = found.get("anchorRecords", [found.get("anchorRecord")])
    if not isinstance(anchors, list):
        raise InvalidOptionError(f"{_NAME}: expected a list anchorRecords, found {anchors!r}")
    proofs = (RecordProof.from_json(f"anchorRecords in {_NAME}", anchor) for anchor in anchors)
    return tuple(proof for proof in proofs if proof is not None)


def _is_closed(view: SegmentView, position: int) -> bool:
    """Return whether a blank record as writers make it, of the size of the rest of the file, is at a position."""
    if view.check(position).reason is not StopReason.END_OF_FILE:
        return False
    size: int = read_frame(view.frame(position).data, 0)[0]
    return size == view.size - position


_SEGMENT_START: Final = Place()


class Stretch(NamedTuple):
    """Records of one segment that follow one another."""

    segment: Segment
    view: SegmentView
    window: Window  # whose bytes hold until the next stretch is asked for
    last_sound: int  # start of the record before the first one; -1 if that is in another segment

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Physical offsets of the records."""
        return self.window.starts + self.segment.start_offset

    @property
    def end_offset(self) -> int:
        """Physical offset one past the last record."""
        return self.window.stop + self.segment.start_offset


@dataclass(frozen=True, slots=True)
class LogSegments:
    """The segments of a log, as found when its directory was listed."""

    segments: tuple[Segment, ...]  # in order of their offsets; at least one
    known_firsts: dict[Segment, RecordProof] = field(default_factory=dict)
    """The first records of segments that have been looked at, which a caller may keep."""

    @classmethod
    def of(
        cls,
        paths: StorePaths,
        storage: StorageSettings = NO_SETTINGS,
        *,
        compressed: bool = False,
        known_firsts: dict[Segment, RecordProof] | None = None,
        told: set[str] | None = None,
    ) -> LogSegments:
        """List the segments now; errors as of `store_core.snapshot.log.Log.of`, also if all are empty.

        * `compressed`: Whether segments that are compressed as a whole are among them.
        * `known_firsts`: As the attribute, to share it with later listings of the same log.
        * `told`: As of `Log.of`.
        """
        found = Log.of(located_now(paths, storage), packed="read" if compressed else "left out", told=told)
        if not found.segments:
            raise StoreNotFoundError(f"nothing to read: no segment has any bytes yet: {found.notes[-1]}")
        return cls(found.segments, {} if known_firsts is None else known_firsts)

    @property
    def earliest(self) -> LogPosition:
        """The position of the log's first byte."""
        return LogPosition.at_start(self.segments[0])

    def position_after(self, segment: Segment, view: SegmentView, last_start: int) -> LogPosition:
        """Return the position after a record; parameters and errors as of `LogPosition.after`."""
        return LogPosition.after(segment, view, last_start, tuple(self._anchors(segment)))

    def _anchors(self, segment: Segment) -> Iterator[RecordProof]:
        """Yield the anchors of a position in a segment."""
        number = bisect_left(self.segments, segment.start_offset, key=lambda each: each.start_offset)
        back = (1 << power for power in count())
        before = takewhile(lambda index: index > 0, (number - distance for distance in back))
        for index in dict.fromkeys((number, *before, 0)):
            first = self._first_record(self.segments[index])
            if first is not None:
                yield first

    def _first_record(self, segment: Segment) -> RecordProof | None:
        """Return the record that a segment begins with; None if there is none."""
        if segment not in self.known_firsts:
            with open_segment(segment) as opened:
                found = RecordProof.of(segment.view(opened), 0)
            if found is None:
                return None
            self.known_firsts[segment] = found
        return self.known_firsts[segment]

    def record_at(self, physical_offset: int) -> RecordProof | None:
        """Return the record at a physical offset; None if there is none."""
        segment = segment_at(self.segments, physical_offset)
        if segment is None:
            return None
        with open_segment(segment) as opened:
            return RecordProof.of(segment.view(opened), physical_offset - segment.start_offset)

    def is_proven(self, position: LogPosition) -> bool:
        """Return whether the record before a position is still there."""
        last = position.last_record
        return last is not None and self.record_at(last.physical_offset) == last

    def latest(self, known: LogPosition, *, verify_crc: bool) -> LogPosition:
        """Return where the log ends now; `known` if nothing is found.

        * `known`: Where it ended before, or how far it has been read: its segment is not walked up to there again.
        * `verify_crc`: Whether the bodies of the last records must match their checksums.

        The record that a writer is putting into the file is not there yet: its lengths do not add up, its body differs
        from its checksum, or its properties end in a zero. A finished record of which the last is true is there
        together with the next one.
        """
        is_proven = self.is_proven(known)
        for segment in reversed(self.segments):
            if is_proven and segment.end_offset <= known.physical_offset:
                return known
            is_known = is_proven and segment.start_offset <= known.physical_offset
            after = known.place_in(segment) if is_known else _SEGMENT_START
            found = self._latest_in(segment, after, verify_crc=verify_crc)
            if found is not None:
                return found
        return known

    def _latest_in(self, segment: Segment, after: Place, *, verify_crc: bool) -> LogPosition | None:
        """Return the position at the end of a segment's records; None if none is there."""
        with open_ahead(segment) as opened:
            view = segment.view(opened)
            if not after.position and view.check(0).reason is StopReason.UNWRITTEN:
                return None  # preallocated, which a file system without holes shows only if all of it is read
            end = find_log_end(view, verify_crc=verify_crc, after=after)
            starts = _last_two(view, after, end)
            if starts and not (_is_finished(view, starts[-1]) and self._is_still_there(segment, view, starts[-1])):
                starts.pop()
            return self.position_after(segment, view, starts[-1]) if starts else None

    def _is_still_there(self, segment: Segment, view: SegmentView, start: int) -> bool:
        """Return whether a record that was read into memory is in the file now: the log may be truncated meanwhile."""
        if not segment.is_plain:
            return True
        return self.record_at(segment.start_offset + start) == RecordProof.of(view, start)

    def stretches(self, start: LogPosition, end: LogPosition) -> Iterator[Stretch]:
        """Yield the sound records between two positions, in log order; damage between them is left out."""
        for segment in self.segments:
            if segment.end_offset <= start.physical_offset:
                continue
            if segment.start_offset >= end.physical_offset:
                return
            with open_ahead(segment) as opened:
                yield from _stretches_of(segment, segment.view(opened), start, end)

    def first_at(self, physical_offset: int, end: LogPosition) -> LogPosition:
        """Return the position before the first record that starts at an offset or after it; the end if none does."""

        def find(stretch: Stretch) -> int:
            return int(np.searchsorted(stretch.offsets, physical_offset))

        segment = segment_at(self.segments, physical_offset)
        return self._first(find, self.earliest if segment is None else LogPosition.at_start(segment), end)

    def first_since(self, store_timestamp: int, end: LogPosition) -> LogPosition:
        """Return the position before the first record stored at a time (ms) or later; the end if there is none."""

        def find(stretch: Stretch) -> int:
            window = stretch.window
            qualifies = store_timestamps(window.raw, window.run.starts) >= store_timestamp
            return int(qualifies.argmax()) if qualifies.any() else qualifies.size

        return self._first(find, self._before(store_timestamp), end)

    def _before(self, store_timestamp: int) -> LogPosition:
        """Return the start of a segment that no record stored at a time or later precedes, judging by first records."""
        first = self.segments[0]
        for segment in self.segments[1:]:
            time = first_store_timestamp(segment)
            if time is None:
                continue  # preallocated, or damaged: it says nothing of the segments before it
            if time + CLOCK_STEP >= store_timestamp:
                break
            first = segment
        return LogPosition.at_start(first)

    def _first(self, find: Callable[[Stretch], int], start: LogPosition, end: LogPosition) -> LogPosition:
        for stretch in self.stretches(start, end):
            at, starts = find(stretch), stretch.window.starts
            if at == starts.size:
                continue
            before = int(starts[at - 1]) if at else stretch.last_sound
            if before < 0:
                return LogPosition.at_start(stretch.segment)
            return self.position_after(stretch.segment, stretch.view, before)
        return end


def _stretches_of(segment: Segment, view: SegmentView, start: LogPosition, end: LogPosition) -> Iterator[Stretch]:
    is_last = end.physical_offset < segment.end_offset
    limited = view.up_to(end.physical_offset - segment.start_offset) if is_last else view
    place = start.place_in(segment)
    for part in SalvageWalk(limited, only_newer=is_last).parts(place):
        if isinstance(part, Window):
            yield Stretch(segment, view, part, place.last_sound)
            place = part.place


def _last_two(view: SegmentView, after: Place, end: LogEnd) -> list[int]:
    """Return the starts of the last two records before the end; of those before a place only the last."""
    chain = end.chain or Chain(view, begin=after)
    runs: list[Run] = list(chain.kept)
    if chain.stop != end.position:
        parts = SalvageWalk(view.up_to(end.position), only_newer=True).parts(after)
        runs = [Run(part.starts, part.stop) for part in parts if isinstance(part, Window)]
    starts = [start for run in runs[-2:] for start in run.starts[-2:].tolist()]
    return [*([after.last_sound] if after.last_sound >= 0 else []), *starts][-2:]


def _is_finished(view: SegmentView, start: int) -> bool:
    """Return whether the last byte of a record that is not always the same has been written."""
    raw = view.frame(start, with_body=True)
    spans = check_record(raw.data, 0, view.start_offset + start).spans
    if spans is None:
        return True
    has_properties = spans.properties_start < spans.properties_stop
    return bool(raw[(spans.properties_stop if has_properties else spans.topic_stop) - 1])


_ADVICE: Final = "To go on at offset {offset}: failOnDataLoss=false"
_OVER_HOLE: Final = f"{_ADVICE}, or mode=DROPMALFORMED or PERMISSIVE"
_RESTART: Final = "or begin a new query with a new checkpoint"


class Continuation(NamedTuple):
    """Where reading goes on."""

    position: LogPosition  # the position asked about, if the log is the one that it was taken in
    loss: DataLossError | None = None  # what is lost, to be raised or reported; None if nothing is


def find_continuation(log: LogSegments, known: LogPosition, *, verify_crc: bool) -> Continuation:
    """Compare what lies before a position with what the position remembers.

    * `known`: Where reading is to go on.

    Returns: If segments were deleted: the first byte that is left. If the log was truncated: the first record that was
    stored after the last one that was read, wherever it is, since brokers write on where their recovery ended the log.
    If only that record was changed: the next one. If it is another log: its first byte.
    """
    if log.is_proven(known):
        is_next_missing = (
            segment_at(log.segments, known.physical_offset) is None
            and log.segments[-1].start_offset > known.physical_offset
        )
        return _expired(log, known) if is_next_missing else Continuation(known)
    last = known.last_record
    if last is None or last.physical_offset < log.segments[0].start_offset:
        return _without_proof(log, known, verify_crc=verify_crc)
    if segment_at(log.segments, last.physical_offset) is None and last.physical_offset < log.segments[-1].start_offset:
        return _expired(log, known)
    return _changed(log, known, verify_crc=verify_crc)


def _without_proof(log: LogSegments, known: LogPosition, *, verify_crc: bool) -> Continuation:
    """Go on where nothing is left that precedes the position, or nothing ever was."""
    if known.physical_offset < log.segments[0].start_offset:
        return _expired(log, known)
    if (
        segment_at(log.segments, known.physical_offset) is not None
        or known.physical_offset == log.segments[-1].end_offset
    ):
        return Continuation(known)
    return _changed(log, known, verify_crc=verify_crc)


def _expired(log: LogSegments, known: LogPosition) -> Continuation:
    following = next(each for each in log.segments if each.start_offset > known.physical_offset)
    begin, end = known.physical_offset, following.start_offset
    kind, what, way_on = ExpiredSegmentsError, "segments were deleted before they were read, as by retention", _ADVICE
    if following is not log.segments[0]:
        kind, what, way_on = MissingSegmentsError, "segments are missing", _OVER_HOLE
    problem = (
        f"{what}: expected offset {begin} in segment {known.segment}, found {following.path} as the next one; "
        f"{end - begin} bytes from offset {begin} to {end} are lost"
    )
    position = type(known).at_start(following)
    return Continuation(position, kind(problem, begin, end, end, _advice(end, way_on)))


def _changed(log: LogSegments, known: LogPosition, *, verify_crc: bool) -> Continuation:
    """Tell a truncated log from another one: anchors before the cut stay when a log is truncated."""
    last = known.last_record
    end = log.latest(log.earliest, verify_crc=verify_crc)
    if last is None or not any(log.record_at(each.physical_offset) == each for each in known.anchor_records):
        return _replaced(log, known, end)
    position = log.first_since(last.store_timestamp + 1, end)
    if _is_only_changed(log, known, last, position, end):
        return _rewritten(log, known)
    begin, lost_end = position.physical_offset, known.physical_offset
    problem = (
        f"the log was truncated behind the position that was read, as a broker's recovery does: expected the record "
        f"that is remembered at offset {last.physical_offset} of segment {known.segment}, found {_found(log, known)}. "
        f"The log ends at offset {end.physical_offset}. Records that were read between the offsets {begin} and "
        f"{lost_end} are no longer in it, and those stored after them begin at {begin}"
    )
    return Continuation(position, TruncatedLogError(problem, begin, lost_end, begin, _advice(begin)))


def _is_only_changed(
    log: LogSegments, known: LogPosition, last: RecordProof, position: LogPosition, end: LogPosition
) -> bool:
    """Return whether the last record that was read is another one in its place, or damaged, and the log goes on.

    A recovery removes that record with all after it, and what is written then is newer.
    """
    found = log.record_at(last.physical_offset)
    if found is not None:
        return found.store_timestamp == last.store_timestamp
    return position.physical_offset >= last.physical_offset and end.physical_offset >= known.physical_offset


def _rewritten(log: LogSegments, known: LogPosition) -> Continuation:
    """Go on at the same offset, without proof."""
    begin = known.physical_offset
    problem = (
        f"the last record that was read was changed in its place, as by a redaction or by damage: expected the record "
        f"that is remembered before offset {begin} of segment {known.segment}, found {_found(log, known)}. Whether "
        f"others that were read have changed is not known"
    )
    position = type(known)(begin, known.segment)
    return Continuation(position, ReplacedStoreError(problem, begin, begin, begin, _advice(begin)))


def _replaced(log: LogSegments, known: LogPosition, end: LogPosition) -> Continuation:
    start = log.earliest
    problem = (
        f"another log is there than the one that was read up to offset {known.physical_offset}: expected the record "
        f"that is remembered before it, found {_found(log, known)}. This log has the offsets from "
        f"{start.physical_offset} to {end.physical_offset}; what the other one had from offset "
        f"{known.physical_offset} on is lost"
    )
    begin, resume = known.physical_offset, start.physical_offset
    return Continuation(
        start, ReplacedStoreError(problem, begin, max(begin, end.physical_offset), resume, _advice(resume))
    )


def _found(log: LogSegments, known: LogPosition) -> str:
    """Describe what lies where a position remembers a record."""
    last = known.last_record
    if last is None:
        return f"no segment with offset {known.physical_offset}"
    segment = segment_at(log.segments, last.physical_offset)
    if segment is None:
        return f"no segment with offset {last.physical_offset}"
    found = log.record_at(last.physical_offset)
    return (
        f"no record in {segment.path}" if found is None else f"another one, stored at {iso_time(found.store_timestamp)}"
    )


def _advice(offset: int, way_on: str = _ADVICE) -> str:
    return f"{way_on.format(offset=offset)}; {_RESTART}"
