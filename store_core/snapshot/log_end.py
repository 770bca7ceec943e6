# SPDX-License-Identifier: Apache-2.0
"""The end of a log, determined in the same way for every report; ADR 0005 defines the terms.

The end is one past the last sound record. A preallocated file has no record and does not move the end; neither does
the remainder of a record that a crash interrupted, the *torn tail*. Of a store that is being written, the end is that
of a moment, with those of queues and index.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from store_core.files.segment_listing import segments_in
from store_core.files.segment_source import Segment, SegmentBytes, WalkedBytes, modified_ns, open_ahead, open_segment
from store_core.files.store_lock import is_lock_held
from store_core.format.columnar.chain import Place, find_candidate
from store_core.format.layout import BLANK_RECORD, MIN_RECORD_SIZE, TransactionType, field_position, unit_dtype
from store_core.format.record.scan import ENTRY_DTYPE, Framing, StopReason
from store_core.format.salvage import LogEnd, find_log_end, find_tail_end
from store_core.snapshot.index import Index
from store_core.snapshot.log import Log, has_record, time_in
from store_core.snapshot.queues import Queues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from store_core.format.segment_view import SegmentView
    from store_core.queue.queue_path import QueueRules
    from store_core.snapshot.units import QueueName


_SEGMENT_START: Final = Place()
_WINDOWS: Final = (1 << 20, 8 << 20)
"""Bytes before the last ones that are not zeros in which a record has to begin: at last, twice what a body may have."""

_LEAST: Final = 32 << 20
"""Bytes of data up to which a segment is followed from its beginning."""

_PROBE: Final = 64 << 10
"""Bytes that are looked at to see whether a place is written."""

_CLEAN: Final = (StopReason.UNWRITTEN, StopReason.END_OF_FILE)


def _bytes_of(dtype: np.dtype[np.void], name: str) -> slice:
    begin = field_position(dtype, name)
    return slice(begin, begin + dtype[name].itemsize)


_MAGIC_CODES: Final = {
    Framing.RECORDS: _bytes_of(unit_dtype(BLANK_RECORD), "magic_code"),
    Framing.ENTRIES: _bytes_of(ENTRY_DTYPE, "magic"),
}
"""Where the magic code of a segment's first frame is."""


@dataclass(frozen=True, slots=True)
class TornTail:
    """Bytes after the end of a log that are not a record: an unfinished record, or older remains.

    * `begin`, `end`: Physical offsets; the end is after the last non-zero byte, or where older records begin.
    """

    path: str  # the segment file
    begin: int
    end: int
    reason: StopReason  # why there is no record at `begin`

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.end - self.begin

    def __str__(self) -> str:
        is_hole = self.reason is StopReason.UNWRITTEN
        why = "it begins with zeros" if is_hole else self.reason.value
        return f"{self.size} bytes at offset {self.begin} of {self.path} are not a record: {why}"


@dataclass(frozen=True, slots=True)
class FoundEnd:
    """The end of a log."""

    end_offset: int = 0
    """Physical offset one past the last sound record, whatever damage precedes it; where the log starts if it has no
    record."""
    path: str = ""  # the segment file that holds the end; empty if there is no segment
    tails: tuple[TornTail, ...] = ()
    """Bytes after the end that are neither zeros nor records, in log order; usually one tail."""

    @classmethod
    def of(cls, ends: Sequence[SegmentEnd]) -> Self:
        """Combine the ends of segments, ordered from the last one backwards to the first that has a record."""
        if not ends:
            return cls()
        tails = (end.tail for end in reversed(ends))
        return cls(ends[-1].end_offset, ends[-1].segment.path, tuple(tail for tail in tails if tail is not None))


@dataclass(frozen=True)
class SegmentEnd:
    """Where the records of one segment end, given that no later segment has any."""

    segment: Segment
    found: LogEnd  # its position is 0 if the segment has no record
    tail_end: int
    """Position one past the bytes after the end that are neither zeros nor records; that of `found` if there are
    none."""
    is_foreign: bool = False  # whether the segment has no record because it is another kind of file, or a renamed one

    @property
    def end_offset(self) -> int:
        """Physical offset one past the last record."""
        return self.segment.start_offset + self.found.position

    @cached_property
    def last_time(self) -> int | None:
        """Store time of the last record, ms; None without one."""
        return time_in(self.segment, self.found.last) if self.found.last >= 0 else None

    @property
    def tail(self) -> TornTail | None:
        """The torn tail; None if there is none."""
        if self.tail_end <= self.found.position:
            return None
        end = self.segment.start_offset + self.tail_end
        return TornTail(self.segment.path, self.end_offset, end, self.found.reason)


def find_end(
    segments: Sequence[Segment],
    *,
    place_in: Callable[[Segment], Place] | None = None,
    by_tail: bool = False,
) -> FoundEnd:
    """Find where a log ends, and what follows the end; the bodies of the last records must match their checksums.

    * `segments`: The log's segments, in order.
    * `place_in`: Returns where the records of a segment ended before: what precedes that is not walked again.
    * `by_tail`: Whether the caller proves that the log ends where `end_by_tail` says, where that tells.
    """
    return FoundEnd.of(segment_ends(segments, verify_crc=True, place_in=place_in, by_tail=by_tail))


def segment_ends(
    segments: Sequence[Segment],
    *,
    verify_crc: bool,
    open_bytes: Callable[[Segment], WalkedBytes] = open_ahead,
    place_in: Callable[[Segment], Place] | None = None,
    by_tail: bool = False,
) -> list[SegmentEnd]:
    """Find where the records of segments end, from the last segment backwards to the first that has a record.

    * `verify_crc`: Whether the bodies of the last records must match their checksums.
    * `open_bytes`: Opens a segment; the others are those of `find_end`.
    """
    ends: list[SegmentEnd] = []
    for number in reversed(range(len(segments))):
        segment = segments[number]
        after = _SEGMENT_START if place_in is None else place_in(segment)
        end = end_by_tail(segment, verify_crc=verify_crc, has_tail=True) if by_tail else None
        ends.append(
            end or segment_end(segment, is_first=not number, verify_crc=verify_crc, after=after, open_bytes=open_bytes)
        )
        if ends[-1].found.position:
            break
    return ends


def segment_end(  # noqa: PLR0913 -- two are for tests and for followers of a log
    segment: Segment,
    *,
    is_first: bool,
    verify_crc: bool,
    has_tail: bool = True,
    after: Place = _SEGMENT_START,
    open_bytes: Callable[[Segment], WalkedBytes] = open_ahead,
) -> SegmentEnd:
    """Find where the records of a segment end, given that later segments have none.

    * `is_first`: Whether it is the log's first segment.
    * `verify_crc`, `open_bytes`: As of `segment_ends`.
    * `has_tail`: Whether to look for a tail when the records end in zeros; if anything else ends them, it is always
      looked for.
    * `after`: Where the records ended before: what precedes it is not walked again.
    """
    with open_bytes(segment) as opened:
        view = segment.view(opened)
        found = find_log_end(view, verify_crc=verify_crc, after=after)
        is_unwritten = has_tail and found.reason is StopReason.UNWRITTEN
        is_looked_for = found.reason.is_damage or found.is_unfinished or is_unwritten
        tail_end = find_tail_end(view, found) if is_looked_for else found.position
        is_foreign = is_first and not found.position and _is_foreign(view)
    return SegmentEnd(segment, found, tail_end, is_foreign)


def _is_foreign(segment: SegmentView) -> bool:
    """Return whether a file without any readable record is not this segment: another kind of file, or renamed."""
    reason = segment.check(0).reason
    if reason is StopReason.BAD_MAGIC:
        return bool(segment.frame(0)[_MAGIC_CODES[segment.framing]].any())
    return reason is StopReason.WRONG_OFFSET


# ---- by the last part alone


def end_by_tail(segment: Segment, *, verify_crc: bool, has_tail: bool = False) -> SegmentEnd | None:
    """Find where the records of a log's last segment end, as its last part shows it.

    Only the chain from the segment's first record proves where its records end, and following that takes all of the
    segment, which whoever reads it does anyway. So planning looks at the last part alone, if all is well there; a
    reader whose chain does not arrive at that end finds it as for any other read.

    Found are records up to zeros or to the blank record, and nothing else after it, of which zeros are looked through
    with `has_tail` alone. None if there is not much to skip, or if it takes all of the bytes to tell.
    """
    is_plain = segment.codec is None and segment.entries is None
    if not is_plain or segment.size < _LEAST or not has_record(segment):
        return None
    with open_segment(segment) as opened:
        data_end = _data_end(opened, segment.size)
        if data_end < _LEAST:
            return None
        first = next((at for window in _WINDOWS if (at := _record_in(segment, opened, data_end, window)) >= 0), -1)
    if first < 0:
        return None
    end = segment_end(segment, is_first=False, verify_crc=verify_crc, has_tail=has_tail, after=Place(first))
    found = end.found
    is_clean = found.reason in _CLEAN and end.tail is None and found.stale < 0 and found.covered < 0
    return end if is_clean and found.position > first and not found.is_unfinished else None


def _record_in(segment: Segment, opened: SegmentBytes, end: int, size: int) -> int:
    """Return where the first record in the bytes before a position seems to start; -1 if there is none."""
    begin = max(end - size, 0)
    found = find_candidate(
        opened.chunk(begin, end), 0, end - begin - MIN_RECORD_SIZE, segment.start_offset + begin, (size,)
    )
    return found if found < 0 else begin + found


def _data_end(opened: SegmentBytes, size: int) -> int:
    """Return about where the zeros of a segment that is not full begin: by halves, since it is written in order."""
    low, high = 0, size
    probe = high - _PROBE
    while low + _PROBE < high:
        if opened.chunk(probe, probe + _PROBE).any():
            low = probe + _PROBE
        else:
            high = probe
        probe = max((low + high - _PROBE) // 2, 0)
    return high if high < size else low


def quick_end(segments: Sequence[Segment]) -> SegmentEnd | None:
    """Find where the records of a log end, by its last part alone where that is enough; None if it has none."""
    for segment in filterfalse(_is_preallocated, reversed(segments)):
        end = end_by_tail(segment, verify_crc=True)
        end = end or segment_end(segment, is_first=False, verify_crc=True, has_tail=False)
        if end.found.position:
            return end
    return None


def _is_preallocated(segment: Segment) -> bool:
    """Return whether a segment has zeros wherever it is looked at; all of it is not read, since it can be large."""
    with open_segment(segment) as opened:
        is_empty = segment.view(opened).check(0).reason is StopReason.UNWRITTEN
        return is_empty and segment.size >= _LEAST and _data_end(opened, segment.size) <= _PROBE


# ---- the log beside queues

_QUEUED: Final = [kind.name for kind in TransactionType if kind.is_queued]


def _belongs(batch: pa.RecordBatch, name: QueueName | None) -> pa.BooleanArray:
    """Return which records belong in queues, or in one queue."""
    belongs = pc.is_in(batch["transaction_type"], pa.array(_QUEUED))
    if name is None:
        return belongs
    return pc.and_(belongs, pc.and_(pc.equal(batch["topic"], name[0]), pc.equal(batch["queue_id"], name[1])))


class LogBesideQueues:
    """A store's log; see `store_core.snapshot.units.QueuedLog`.

    Its end is not told where a broker may be writing, a part of the log may be elsewhere, or the last segment was
    compressed. The record of a queue's last unit is looked at first: if it is sound, the log is not walked.

    * `segments`: All of the log's, in order.
    """

    def __init__(self, root: Path, segments: Sequence[Segment]) -> None:
        self.start = segments[0].start_offset if segments else 0
        paths = [segment.path for segment in segments]
        is_below = any(Path(path).is_relative_to(root) for path in paths)
        self._paths = (str(root),) if is_below else tuple(paths)
        self._root = root
        log = Log(tuple(segments))
        ends = bool(paths) and segments[-1].codec is None and not (log.problems or is_lock_held(root))
        self._log = log if ends else Log(())
        self._known = 0  # up to where the log is known to have records
        self._is_searched = False

    def queued(self, begin: int, name: QueueName | None = None) -> pa.Table:
        """Return `QUEUED_COLUMNS` of the records from a physical offset on that belong in queues, or in one queue."""
        from store_core.snapshot.units import QUEUED_COLUMNS  # noqa: PLC0415 -- for a RocksDB alone
        from store_core.store.read.read_messages import read_messages  # noqa: PLC0415 -- as above

        columns = [*QUEUED_COLUMNS, "transaction_type"]
        if not self._paths:
            return pa.table({column: [] for column in columns})
        # Asked for a topic, a read would look first whether queues or configuration know it, and open the RocksDB.
        found = read_messages(list(self._paths), columns=columns, starting_offsets=begin, verify_crc=False)
        return pa.Table.from_batches((batch.filter(_belongs(batch, name)) for batch in found), found.schema)

    def end_before(self, position: int, size: int) -> int | None:
        """Return where the log ends if that is not after the place of a record; else None, also if it is unknown."""
        if not self._log.segments or position < self._known:
            return None
        try:
            if self._has(position, size):
                self._known = position + size
                return None
            if not self._is_searched:
                self._known = max(self._known, _end_of(self._log.segments, modified_ns(self._log.segments[-1])))
                self._is_searched = True
            return self._known if position >= self._known and not self._may_grow() else None
        except OSError:  # files that are gone or may not be read: the queue is all that is known
            return None

    def _has(self, position: int, size: int) -> bool:
        """Return whether there is a sound record; those in a segment that was compressed after it was written are."""
        segment = self._log.segment_at(position)
        if segment is None or size <= 0 or position + size > segment.end_offset:
            return False
        begin = position - segment.start_offset - segment.framing.lead
        if segment.codec is not None or begin < 0:
            return segment.codec is not None
        stop = position + size - segment.start_offset
        with open_segment(segment) as opened:
            check = segment.view(opened).check(begin, verify_crc=True)
        return check.reason is None and check.size == stop - begin

    def _may_grow(self) -> bool:
        """Return whether a broker has opened the store, or added a segment, since it was listed; none opens a copy."""
        directories = {Path(segment.path).parent for segment in self._log.segments if segment.remote is None}
        last = self._log.segments[-1].start_offset
        found = (segment for each in directories for segment in segments_in(each, [], compressed=True))
        is_longer = any(each.start_offset > last and (each.size or not each.is_plain) for each in found)
        return is_longer or is_lock_held(self._root)


@lru_cache(maxsize=1)
def _end_of(segments: tuple[Segment, ...], written: int) -> int:  # noqa: ARG001 -- a file that changes is walked again
    """Return where a log ends; parts that one process reads have it in common."""
    return find_end(segments).end_offset


# ---- of a store that is being written


@dataclass(frozen=True, slots=True)
class LiveMoment:
    """How far a live store is compared.

    **Why the order of reading is right.** A broker appends a record to the log, then its units to queues, then its keys
    to the index, and goes on with the next record; nothing that is before any of these ends changes later, and nothing
    goes away but at the log's start. So `take` reads three ends, in this order:

    1. where queues and index end. All records before that are dispatched: whoever reads queues and index *later* finds
       their units and entries, so that a missing one is missing (`dispatched`);
    2. where the log ends. It is read later, and so at or after 1; whoever reads the log up to there, whenever that is,
       finds the same records. So a unit or an entry that points before it and at none of these is wrong (`log_end`).

    What is read afterwards, in any order, is compared up to these two. Units of records at or after `log_end` may be
    newer than what was read, unless they point where the log has no file (`judges`).

    What this does not cover, a second look does: records whose dispatch was only begun at 1, such as those with several
    keys; what the broker deletes at the log's start meanwhile; and files that are being created. None of these can be
    seen again at the same place.
    """

    store: Path  # the store's root
    dispatched: int  # physical offset: records before it have their units and entries
    index_end: int  # physical offset one past that of the last record that has an entry; 0 without entries
    log_end: int  # physical offset: the log is read up to it
    indexed: int
    """As `dispatched`, for entries. An index that moves may be behind the queues, by what its writer gathers; one that
    has not moved since an earlier moment lacks what the queues had then."""

    @classmethod
    def take(cls, store: Path, rules: QueueRules, earlier: LiveMoment | None = None) -> Self:
        """Read where queues, index and log of a store end, in this order.

        * `earlier`: That of an earlier look at the same store.
        """
        with Queues(store) as queues:
            reached, are_seen_late = queues.reached(), queues.database is not None
        index = Index(store).loaded(rules)
        indexed = max((file.header.end_physical_offset + 1 for file in index.used), default=0)
        log_end = find_end(Log.of(store).segments).end_offset
        both = max(reached, indexed)  # a record with an entry has its units: they come first
        dispatched = reached if are_seen_late else both
        has_moved = earlier is not None and indexed > earlier.index_end
        ends = dispatched, indexed, log_end, indexed if has_moved else both
        return cls(store, *(min(end, log_end) for end in ends))

    def judges(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which physical offsets of units, read until now, can be judged: those that are not newer."""
        is_judged: npt.NDArray[np.bool_] = offsets < self.log_end
        if is_judged.all():
            return is_judged
        # Listed after the units were read, so that the files of their records are among these.
        last = Log.of(self.store).segments[-1]
        return is_judged | (offsets >= last.end_offset)


# ---- what is said of it


def covered_note(path: str, blank: int, covered: int) -> str:
    """Return a note that a blank record hides sound ones.

    * `blank`, `covered`: Physical offsets of the blank record, and of the first sound record behind it.
    """
    return (
        f"the blank record at offset {blank} of {path} closes the file, but sound records that are not older follow it "
        f"from offset {covered} on. They are not rows: an append of this package was not committed, or something "
        f"overwrote the record at {blank}; commitlog check shows which queue units lead there."
    )


def uncommitted_note(end: SegmentEnd) -> str | None:
    """Return a note if the last entries of a DLedger log are not known to be committed; None if all are."""
    entries, chain = end.segment.entries, end.found.chain
    if entries is None or entries.committed_index is None or chain is None:
        return None
    last = chain.place.last_sound
    if last < 0:
        return None
    with open_segment(end.segment) as opened:
        head = opened.chunk(last, last + end.segment.framing.lead)
    index = int(head.view(ENTRY_DTYPE)["index"][0])
    if index <= entries.committed_index:
        return None
    return (
        f"the DLedger log in {end.segment.path} goes on to entry {index}, but by its checkpoint only those up to "
        f"{entries.committed_index} are committed: another leader may still replace the rows whose dledger_committed "
        f"is false."
    )
