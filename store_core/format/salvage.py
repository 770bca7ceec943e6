# SPDX-License-Identifier: Apache-2.0
"""The sound records that a segment holds after its chain breaks, the damaged ranges between them, and a log's end.

Records are found by following lengths and are measured, see `store_core.format.record.scan`. Where that fails, the next
one is *searched for*, and has to prove itself: the magic code, a physical offset equal to its position, lengths that
add up, and the checksum of its body. That is the best evidence there is, but not certain: a body may hold a copy of a
record that fits its place. So the end that the broken record claims is tried first, and its inside is not searched if
its head confirms its size. The result depends only on the bytes: readers of different parts of a segment get the same.

A hostile body can be full of magic codes. So a block in which one is found is checked as a whole: numpy rejects what
does not claim its own position, or does not add up, without looking at each one.

A log's end is found from its last segment alone, while a writer may be appending to it. A walk that starts at one of
the positions found has the same result as one from the segment's first byte.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.format.columnar.chain import Chain, Place, Run, Window, scan
from store_core.format.columnar.spans import Heads, measure
from store_core.format.layout import BLANK_SIZE, MAX_HEAD_SIZE, MIN_RECORD_SIZE, MagicCode, field_position, head_dtype
from store_core.format.record.scan import (
    RecordCheck,
    Scan,
    StopReason,
    follow_frames,
    frame_size,
    head_reader,
    head_shape,
    read_sys_flag,
    store_timestamp,
)
from store_core.format.segment_view import HEAD, SegmentView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt


_FIRST_CHUNK: Final = 64 << 10
_SEARCH_CHUNK: Final = 4 << 20
"""Bytes searched at once: few at first, since a log's end is mostly followed by a hole, which is skipped from where a
search begins; searching inside it takes time, and memory for its zeros."""

_BLOCK: Final = 1 << 20
_MAGIC: Final = re.compile(rb"\xda\xa3\x20[\xa7\xab]", re.DOTALL)
_MAGIC_LENGTH: Final = 4
_MAGIC_POSITION: Final = field_position(head_dtype(), "magic_code")


class CandidateFinder:
    """Finds what looks like a record: a magic code, a physical offset equal to its position, parts that add up.

    Its positions are those of frames.
    """

    def __init__(self, segment: SegmentView) -> None:
        self._segment = segment
        self._lead = segment.framing.lead
        self._begin = self._end = 0
        self._found = np.empty(0, np.int64)

    def next(self, begin: int) -> int | None:
        """Return the first candidate at or after `begin`, None if there is none."""
        while True:
            if not self._begin <= begin < self._end:
                first = self._next_magic(begin)
                if first is None:
                    return None
                self._look_at(first)
                begin = first
            index = int(np.searchsorted(self._found, begin))
            if index < self._found.size:
                return int(self._found[index])
            begin = self._end

    def _next_magic(self, begin: int) -> int | None:
        """Return where the record of the next magic code would start; skips bytes without one quickly."""
        lead = self._lead + _MAGIC_POSITION
        position, size, chunk = begin + lead, self._segment.size, _FIRST_CHUNK
        while position < size:
            position = max(self._segment.next_data(position), position)
            if position >= size:
                return None
            match = _MAGIC.search(self._segment.chunk(position, min(position + chunk + _MAGIC_LENGTH - 1, size)).data)
            if match is not None:
                start = position + match.start() - lead
                return start if start + self._segment.framing.least <= size else None
            position += chunk
            chunk = min(2 * chunk, _SEARCH_CHUNK)
        return None

    def _look_at(self, begin: int) -> None:
        """Find the candidates of the block that starts at `begin`."""
        segment, record = self._segment, begin + self._lead
        first = segment.start_offset + record
        self._begin, self._end = begin, min(begin + _BLOCK, segment.size - segment.framing.least + 1)
        raw = segment.chunk(record, min(self._end + self._lead + HEAD, segment.size))
        at = np.flatnonzero(_magics(raw[_MAGIC_POSITION : self._end - begin + 2 * _MAGIC_LENGTH - 1]))
        heads = Heads(raw, at)
        sizes = heads.leading("total_size")
        claims = heads.leading("physical_offset") - at == first
        fits = claims & (sizes >= MIN_RECORD_SIZE) & (sizes <= segment.size - record - at)
        at, sizes = at[fits], sizes[fits]
        is_inside = at + sizes <= raw.size
        sound = is_inside.copy()
        sound[is_inside] = measure(Heads(raw, at[is_inside]), first).sound
        sound[~is_inside] = [segment.proven_size(begin + each) > 0 for each in at[~is_inside].tolist()]
        self._found = begin + at[sound]


def _magics(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return for each position of `data`, except the last three, whether a message's magic code is there."""
    is_magic: npt.NDArray[np.bool_] = (data[:-3] == 0xDA) & (data[1:-2] == 0xA3)  # noqa: PLR2004 -- the bytes of 0xDAA320A7 and 0xDAA320AB
    is_magic &= data[2:-1] == 0x20  # noqa: PLR2004
    last = data[3:]
    is_magic &= (last == 0xA7) | (last == 0xAB)  # noqa: PLR2004
    return is_magic


_SEGMENT_START: Final = Place()

_LONGEST_WINDOW: Final = 8 << 20
"""Most bytes walked in one step, which are still in the processor's cache when they are decoded."""

_SHORTEST_WINDOW: Final = 4 << 10
"""Bytes walked in the first step, doubled each time, so that frequent damage costs no more than its bytes."""

_LONGEST_TAIL: Final = 2 * 0x7FFF
"""Most bytes of topic and properties together: both lengths are signed and at most two bytes wide."""


_read_place: Final = head_reader("magic_code", "physical_offset")


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of bytes that are not records.

    * `begin`, `end`: The range, as positions in the segment.
    """

    begin: int
    end: int
    check: RecordCheck  # why there is no record at `begin`
    is_followed: bool  # whether a sound record is at `end`; else it is the end of the bytes


class _Scanned(NamedTuple):
    """Sound frames that follow one another, and where and why they end."""

    window: Window | None
    stop: int
    reason: StopReason


def store_timestamps(raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the store times of records, in ms, shape (n,)."""
    return Heads(raw, starts).column("store_timestamp").astype(np.int64, copy=False)


class SalvageWalk:
    """Finds sound records and damage in a segment, from any position on.

    * `segment`: The segment, up to where it is to be read.
    * `only_newer`: For the last segment of a log, where bytes after the write position can be whole records of an
      earlier time (recovery moves the position back without clearing): a record found by searching must not be older
      than the last sound one before the damage.
    * `is_growing`: For the search for the end of a log, to which a writer may be appending: what looks like damage is
      checked again once the next sound record is found, the end of the bytes is not taken for the end of the log, and a
      batch that is not finished ends it. Others walk up to an end that was found.

    * `stop`: Where the last walk ended: at the blank record, the end of the bytes, or the last damage.
    * `reason`: Why it ended there.
    * `stale`: Position of the first sound record that was skipped because it is older; -1 without any.
    * `is_unfinished`: Whether the walk ended before a batch of records whose first one has no size yet, see
      `_is_unfinished`.
    * `covered`: Position of a sound record, not older than the last one, behind the blank record at which the walk
      ended; -1 without any. No writer leaves that, except an append that was not committed.
    """

    def __init__(self, segment: SegmentView, *, only_newer: bool = False, is_growing: bool = False) -> None:
        self.stop = 0
        self.reason = StopReason.LIMIT
        self.stale = -1
        self.is_unfinished = False
        self.covered = -1
        self._segment = segment
        self._file_size = segment.file_size or segment.size
        self._start_offset, self._lead = segment.start_offset, segment.framing.lead
        self._only_newer = only_newer
        self._is_growing = is_growing
        self._candidates = CandidateFinder(segment)
        self._last_sound = -1
        self._unread = 2 * segment.size
        """Bytes of bodies that searching may still read. Sound candidates overlap only in a malicious file, whose cost
        would grow with the square of its size without this bound."""

    def parts(self, place: Place = _SEGMENT_START, until: int | None = None) -> Iterator[Window | Damage]:
        """Yield sound records and damaged ranges in ascending order; a window holds until the next one is asked for.

        * `place`: Where to start: the segment's first byte, or one past a sound record.
        * `until`: Where to stop: records and damage that start at or after it are omitted. What is found before is
          unaffected.
        """
        self.stop, self.reason = place.position, StopReason.LIMIT
        self._last_sound = place.last_sound
        size = self._segment.size
        length, limit = _SHORTEST_WINDOW, size if until is None else min(until, size)
        while self.stop < limit:
            found = self._scan(self.stop, min(self.stop + length, limit))
            self.stop, self.reason = found.stop, found.reason
            if found.window is not None:
                self._last_sound = found.window.place.last_sound
                yield found.window
            length = min(2 * length, _LONGEST_WINDOW)
            if found.reason is StopReason.LIMIT:
                continue
            if self._is_end(found):
                return
            if self._is_growing and self._is_unfinished(found.stop):
                self.is_unfinished = True
                return
            damage = self._damage(found.stop)
            if damage is None:
                continue
            yield damage
            if not damage.is_followed:
                return
            self.stop, length = damage.end, _SHORTEST_WINDOW

    def _scan(self, begin: int, end: int) -> _Scanned:
        """Follow sound frames that start in a range.

        A frame that the window cuts is the first of the next one. One that is larger than a window is read alone, if
        its lengths add up to its size: no field of a damaged one makes much memory be taken.
        """
        segment, last = self._segment, self._last_sound
        base = last if segment.continues(begin, last) else begin
        stop = min(end + HEAD, segment.size)
        raw, found = self._scan_window(base, begin, end, stop)
        is_cut = stop < segment.size and (found.reason is StopReason.TORN or raw.size - found.stop < BLANK_SIZE)
        if is_cut and not found.starts.size:
            size = segment.proven_size(begin)
            if not size:
                reason = segment.check(begin, previous=last).reason
                return _Scanned(None, begin, reason or StopReason.SIZE_MISMATCH)
            raw, found = self._scan_window(base, begin, begin + 1, begin + size)
        reason = StopReason.LIMIT if is_cut and found.starts.size else found.reason
        window = Window(raw, base, Run(found.starts, found.stop)) if found.starts.size else None
        return _Scanned(window, base + found.stop, reason)

    def _scan_window(self, base: int, begin: int, end: int, stop: int) -> tuple[npt.NDArray[np.uint8], Scan]:
        """Return the bytes from `base` up to `stop`, and the sound frames among them that start in a range."""
        raw, framing = self._segment.chunk(base, stop), self._segment.framing
        where = begin - base, end - base, self._start_offset + base, framing
        previous = 0 if base < begin else -1
        if end - begin > _SHORTEST_WINDOW:
            return raw, scan(raw, *where, previous=previous)
        return raw, follow_frames(raw.data, *where, previous=previous)

    def _is_end(self, found: _Scanned) -> bool:
        """Return whether the segment ends here, with a blank record or with too few zeros for any record.

        A writer gives a blank record the size of the rest of the file. One of another size ends the segment too, as in
        RocketMQ (before 5.3.2), unless a newer record after it shows that it is damage.
        """
        size = self._segment.size
        if found.reason is StopReason.END_OF_FILE:
            newer = self._search(found.stop + BLANK_SIZE, only_newer=True)
            self.covered = -1 if newer is None or not self._closes(found.stop) else newer
            return newer is None or self.covered >= 0
        if found.reason is not StopReason.UNWRITTEN or size - found.stop >= self._segment.framing.least:
            return False
        return not self._segment.chunk(found.stop, size).any()

    def _is_unfinished(self, begin: int) -> bool:
        """Return whether the log ends at `begin`, because its writer has not finished a batch there.

        Many records that are put at once have one store time, and the size of the first one is written last: until
        then the records after it do not count, as for RocketMQ. So if that size is all that is missing of the record,
        and the log has no record of a later time, they are its batch. The size is looked at again at the end: a writer
        that finished the batch meanwhile may have put others since.
        """
        if self._lead or not self._head_end(begin) or self._frame_size(begin):
            return False
        position = self._measured_end(begin)
        time, length = self._time(begin), _SHORTEST_WINDOW
        is_followed = False
        while begin < position < self._segment.size:
            found = self._scan(position, min(position + length, self._segment.size))
            if found.window is not None and (self._times(found.window) != time).any():
                return False
            is_followed |= found.window is not None
            position, length = found.stop, min(2 * length, _LONGEST_WINDOW)
            if found.reason is not StopReason.LIMIT:
                break
        newer = self._search(self._vouched_end(position) or position + 1, only_newer=True)
        return is_followed and newer is None and self._frame_size(begin) == 0

    def _damage(self, begin: int) -> Damage | None:
        """Measure the damage at `begin`; None if a writer has completed the record meanwhile.

        A record found after `begin` was written later than the one at `begin`, or with it, see `_is_unfinished`. So if
        that one is still broken when the other exists, it stays broken.
        """
        check = self._check(begin, previous=self._last_sound)
        end = self._resume(begin)
        if self._is_growing:
            check = self._check(begin, previous=self._last_sound)
        is_blank = check.reason is StopReason.END_OF_FILE
        if check.reason is None or (self._is_growing and is_blank and self._closes(begin)):
            return None
        if is_blank:
            room, size = self._file_size - begin, self._frame_size(begin)
            check = RecordCheck(0, check.reason, expected=f"a size of {room}, the rest of the file", found=f"{size}")
        return Damage(begin, self._segment.size if end is None else end, check, is_followed=end is not None)

    def _check(self, position: int, *, verify_crc: bool = False, previous: int = -1) -> RecordCheck:
        """Check for a frame; after damage it need not continue one before it."""
        return self._segment.check(position, verify_crc=verify_crc, previous=previous)

    def _frame_size(self, position: int) -> int:
        return frame_size(self._segment.chunk(position, position + BLANK_SIZE).data, 0, self._segment.framing)

    def _closes(self, position: int) -> bool:
        """Return whether the blank frame at a position has the size of the rest of the file."""
        return self._frame_size(position) == self._segment.size - position

    def _resume(self, begin: int) -> int | None:
        """Find where the log continues after damage."""
        for end in (self._claimed_end(begin), self._measured_end(begin)):
            if begin < end <= self._segment.size and self._stands(end):
                return end
        return self._search(self._vouched_end(begin) or begin + 1, only_newer=self._only_newer)

    def _claimed_end(self, begin: int) -> int:
        """Return the end by the size field, 0 if that is not a size."""
        if begin + BLANK_SIZE > self._segment.size:
            return 0
        size = self._frame_size(begin)
        return begin + size if size >= BLANK_SIZE else 0

    def _head(self, position: int) -> memoryview:
        return self._segment.chunk(position, min(position + MAX_HEAD_SIZE, self._segment.size)).data

    def _head_end(self, begin: int) -> int:
        """Return the end of a record's head if it has a message's magic code and is in its place, else 0."""
        if begin + MIN_RECORD_SIZE > self._segment.size:
            return 0
        head = self._head(begin)
        magic, offset = _read_place(head, 0)
        if magic not in (MagicCode.MESSAGE_V1, MagicCode.MESSAGE_V2) or offset != self._start_offset + begin:
            return 0
        end = begin + head_shape(read_sys_flag(head, 0)).size
        return end if end <= self._segment.size else 0

    def _body_end(self, begin: int) -> int:
        head_end = self._head_end(begin)
        if not head_end:
            return 0
        head = self._head(begin)
        length: int = head_shape(read_sys_flag(head, 0)).read_body_length(head, 0)[0]
        return head_end + max(length, 0)

    def _measured_end(self, begin: int) -> int:
        """Return the end by the lengths of the parts, not by the size field; 0 if the head is not in its place."""
        return self._segment.measured_end(begin) if self._head_end(begin + self._lead) else 0

    def _vouched_end(self, begin: int) -> int:
        """Return the end by the size field if the head is in its place and its body length fits the size, else 0.

        A writer that died inside a body leaves this: nothing in there is a record, whatever it looks like.
        """
        body_end, end = self._body_end(begin + self._lead), self._claimed_end(begin)
        return end if body_end and 0 <= end - body_end <= _LONGEST_TAIL + _MAGIC_LENGTH else 0

    def _stands(self, position: int) -> bool:
        """Return whether the log can continue where a broken record claims to end."""
        if position == self._segment.size:
            return not self._is_growing
        reason = self._check(position).reason
        if reason is None:
            return not self._only_newer or self._is_new(position)
        return reason is StopReason.END_OF_FILE and not self._only_newer and self._closes(position)

    def _search(self, begin: int, *, only_newer: bool) -> int | None:
        """Find the first record at or after `begin` that proves itself."""
        window = _SHORTEST_WINDOW
        position = self._candidates.next(begin)
        while position is not None:
            if not self._is_proven(position):
                position += 1
            elif not only_newer or self._is_new(position):
                return position
            else:
                self.stale = position if self.stale < 0 else self.stale
                position, window = self._behind_stale(position, min(window, self._segment.size - position))
            position = self._candidates.next(position)
        return None

    def _is_proven(self, position: int) -> bool:
        """Return whether a candidate's lengths add up and its body matches its checksum."""
        spans = self._check(position).spans
        if spans is None or spans.body_stop - spans.body_start > self._unread:
            return False
        if spans.body_stop == spans.body_start:
            return True
        self._unread -= spans.body_stop - spans.body_start
        return self._check(position, verify_crc=True).reason is None

    def _is_new(self, position: int) -> bool:
        """Return whether a record is not older than the last sound one of the walk."""
        return self._last_sound < 0 or self._time(position) >= self._time(self._last_sound)

    def _time(self, position: int) -> int:
        return store_timestamp(self._head(position + self._lead), 0)

    def _times(self, window: Window) -> npt.NDArray[np.int64]:
        return store_timestamps(window.raw, window.run.starts + self._lead)

    def _behind_stale(self, begin: int, length: int) -> tuple[int, int]:
        """Follow the chain of stale records from `begin` to one that is new enough, or to its end.

        Returns that position, and how far to look next time.
        """
        last = self._time(self._last_sound)
        found = self._scan(begin, begin + length)
        if found.window is not None:
            newer = np.flatnonzero(self._times(found.window) >= last)
            if newer.size:
                return int(found.window.starts[newer[0]]), _SHORTEST_WINDOW
        is_going_on = found.reason is StopReason.LIMIT
        return found.stop, min(2 * length, _LONGEST_WINDOW) if is_going_on else _SHORTEST_WINDOW


def find_walk_starts(chain: Chain, begins: Sequence[int]) -> list[int | None]:
    """Return where walks can start that need only what starts at or after some positions.

    * `chain`: Its kept records are sound.

    Returns: For each position the start of the last record before it: the only extra record of the walk, with whose
    store time a walk that starts at damage compares. None where that is the segment's first byte, and where a record
    that is not sound, or the chain's end, is before the position: only a walk from the start finds the way then.
    """
    starts = chain.starts_before(max(begins, default=0))
    end = chain.stop
    numbers = np.searchsorted(starts, begins).tolist()
    return [
        int(starts[number - 1]) if number and begin <= end else None
        for number, begin in zip(numbers, begins, strict=True)
    ]


_STRETCHES: Final = 64
"""Through how many stretches of sound records a torn tail is followed back."""

_TAIL_CHUNK: Final = 1 << 20
"""Bytes per step in the search for the end of a torn tail."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log in its last segment."""

    position: int  # one past the last sound record, in bytes from the segment's start
    reason: StopReason  # why there is no record at `position`
    stale: int = -1  # position of the first sound record after it that is older, and so stale; -1 without any
    is_unfinished: bool = False
    """Whether a batch of records is at `position` whose writer has not finished it, or died before it could."""
    covered: int = -1
    """Position of a sound record that is behind the blank record at `position`, and not older; -1 without any."""
    chain: Chain | None = field(default=None, compare=False, repr=False)
    """The segment's chain, as far as it was followed, for the next reader of the same bytes."""
    last: int = field(default=-1, compare=False)  # position of the last sound record; -1 if it was not seen


def find_log_end(segment: SegmentView, *, verify_crc: bool, after: Place = _SEGMENT_START) -> LogEnd:
    """Find the end of a log in its last segment.

    A writer that died leaves a torn tail: a partial record, or, if pages reached the disk out of order, whole records
    with wrong bodies. A tail is torn only if no newer sound record follows; otherwise it is damage in the middle, and
    the log ends further on. A writer may be appending: what it adds meanwhile is found or not, but never taken for
    damage.

    * `verify_crc`: Whether the last records' bodies must match their checksums, as in RocketMQ's recovery.
    * `after`: Where a search in the same segment found the end before; what precedes it is not walked again.

    RocketMQ 5.3.3 (``CommitLog.recoverNormally``, ``recoverAbnormally``) ends the log at the first record that fails,
    whatever follows, and truncates the rest.
    """
    chain = Chain(segment, begin=after).followed_sound()
    salvage = SalvageWalk(segment, only_newer=True, is_growing=True)
    tail: deque[Run | Damage] = deque(chain.kept, _STRETCHES)
    last = chain.place.last_sound
    for part in salvage.parts(chain.place):
        if isinstance(part, Window):
            tail.append(Run(part.starts, part.stop))
            last = part.place.last_sound
        elif part.is_followed:
            tail.append(part)
    torn = _torn_tail(segment, tail) if verify_crc else None
    if torn is not None:
        return LogEnd(*torn[:2], salvage.stale, chain=chain, last=torn[2])
    return LogEnd(salvage.stop, salvage.reason, salvage.stale, salvage.is_unfinished, salvage.covered, chain, last)


def find_tail_end(segment: SegmentView, end: LogEnd) -> int:
    """Find the end of the bytes after a log's end that are neither zeros nor records of an earlier time.

    * `end`: What `find_log_end` found there.

    Returns: Position one past the last byte that is not zero; that of `end` if there is none.
    """
    limit = end.stale if end.stale > end.position else segment.size
    found = position = end.position
    while position < limit:
        position = max(segment.next_data(position), position)
        if position >= limit:
            break
        chunk = segment.chunk(position, min(position + _TAIL_CHUNK, limit))
        if chunk.any():
            found = position + chunk.size - int((chunk[::-1] != 0).argmax())
        position += _TAIL_CHUNK
    return found


def _torn_tail(segment: SegmentView, tail: deque[Run | Damage]) -> tuple[int, StopReason, int] | None:
    """Find where a tail of records with wrong bodies, and damage between them, starts; and the record before, or -1."""
    torn: tuple[int, StopReason, int] | None = None
    while tail:
        part = tail.pop()
        if isinstance(part, Damage):
            if torn is None:
                return None
            torn = part.begin, part.check.reason or StopReason.BAD_CRC, -1
            continue
        for start in part.starts[::-1].tolist():
            if segment.check(start, verify_crc=True).reason is not StopReason.BAD_CRC:
                return None if torn is None else (*torn[:2], start)
            torn = start, StopReason.BAD_CRC, -1
    return torn
