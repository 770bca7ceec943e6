# SPDX-License-Identifier: Apache-2.0
"""The chain of lengths that leads from record to record through a segment.

A chain is sequential: where a record starts is known only from the one before. So a window is cut at positions that
*look* like record starts, one cursor (a lane) walks from each, and all step together. A lane ends at the next cut.
Whether a cut was a true start is decided afterwards: the chain is followed from its first record, lane by lane, and a
lane counts only if the chain arrives exactly at its cut. Where it does not (inside a body that holds whole records,
say), single steps lead to the next lane. The result equals that of `store_core.format.record.scan.follow_frames` for
every input.

A `Chain` goes from window to window. It breaks where size and magic code are not those of a record. A record whose
parts do not add up to its size does not break it: readers of the records measure them anyway, and continue with
`store_core.format.salvage` from the first that is not sound.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.format.columnar.spans import Heads, gather, measure, sound_entries
from store_core.format.layout import BLANK_SIZE, MIN_RECORD_SIZE, MagicCode, field_position, head_dtype
from store_core.format.record.scan import Framing, Scan, StopReason, check_frame, head_reader, read_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from store_core.format.segment_view import SegmentView


_MAX_LANES: Final = 4096
_LANE_BYTES: Final = 16 << 10
"""Least bytes of a lane: a walk of 8 MiB in longer ones takes more steps than numpy needs to keep busy."""

_NEAR_PROBES: Final = (448, 2 << 10)
"""Bytes after a cut that are searched for all lanes at once, and then for those without a record in the first ones."""

_FAR_PROBES: Final = (4 << 10, 64 << 10)
"""Bytes that are searched after a cut for one lane, if there is nothing nearer."""

_MOST_FAR: Final = 256
"""Lanes that are searched far, unless half begin near: in a hole most would have nothing, and few are enough."""

_TOGETHER_BYTES: Final = 256 << 10
"""Bytes searched in one step: they stay in cache."""

_MOST_TRIES: Final = 64
"""Most positions a probe checks: a body may be full of magic codes, and a missed lane costs only speed."""

_FEW_LANES: Final = 12
"""Up to this many lanes, single steps are cheaper than one numpy step of all."""

_PROOF_WINDOW: Final = 1 << 14
"""Records whose lengths are checked together: enough to amortise numpy's overhead, few enough to stay in cache."""

_FRAME: Final = np.dtype([("total_size", ">i4"), ("magic_code", ">i4")])
_read_place: Final = head_reader("total_size", "magic_code", "physical_offset")
_MAGICS: Final = (int(MagicCode.MESSAGE_V1), int(MagicCode.MESSAGE_V2))
_MAGIC_POSITION: Final = field_position(head_dtype(), "magic_code")
_COMMON_MAGIC: Final = (MagicCode.MESSAGE_V1 & 0xFFFFFFFF).to_bytes(4, "big")[:3]
"""The leading bytes that both magic codes of messages share."""


def _as_stored(magic: MagicCode) -> np.int32:
    """Return a magic code as a little-endian load of its big-endian bytes reads it."""
    return np.int32(np.array(magic, ">i4").view("<i4"))


_V1_STORED: Final = _as_stored(MagicCode.MESSAGE_V1)
_V2_STORED: Final = _as_stored(MagicCode.MESSAGE_V2)


def scan(  # noqa: PLR0913 -- where to look, and for what
    raw: npt.NDArray[np.uint8],
    begin: int = 0,
    end: int | None = None,
    start_offset: int | None = 0,
    framing: Framing = Framing.RECORDS,
    *,
    lanes: int | None = None,
    previous: int = -1,
) -> Scan:
    """Return the frames of a segment that the chain from `begin` leads to.

    * `raw`: uint8, shape (m,), contiguous: the whole segment.
    * `begin`: Position where a frame is known to start, in bytes.
    * `end`: Frames that start at or after it are omitted.
    * `start_offset`: Physical offset of the segment's first byte, which records must agree with; None leaves it
      unchecked, as RocketMQ does.
    * `framing`: What the segment is made of.
    * `previous`: Position of the last sound frame before `begin`, which an entry has to continue; -1 if there is none.
    * `lanes`: Most cursors to use; affects only speed.

    Returns: Equal to ``follow_frames(memoryview(raw), begin, end, start_offset, framing)``. Bodies are not read.
    """
    found = chain(raw, begin, end, start_offset, framing, lanes=lanes)
    count = count_sound(raw, found.starts, start_offset, framing, previous=previous)
    if count == found.starts.size:
        return found
    before = int(found.starts[count - 1]) if count else previous
    stop = int(found.starts[count])
    reason = check_frame(raw.data, stop, start_offset, framing, previous=before).reason
    return Scan(found.starts[:count], stop, reason or StopReason.LIMIT)


def count_sound(
    raw: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    start_offset: int | None,
    framing: Framing = Framing.RECORDS,
    *,
    previous: int = -1,
) -> int:
    """Return how many frames of a chain (`starts` as from `chain`) precede the first that is not sound.

    That is one whose parts do not add up, or, among entries, one that does not continue the `previous` sound one.
    """
    records = raw[framing.lead :]
    offset = None if start_offset is None else start_offset + framing.lead

    def is_sound(some: npt.NDArray[np.int64], before: int) -> npt.NDArray[np.bool_]:
        sound = measure(Heads(records, some), offset).sound
        return sound if framing is Framing.RECORDS else sound & sound_entries(raw, some, start_offset, before)

    return _count_leading(starts, previous, is_sound)


def count_sound_leads(
    raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], start_offset: int, framing: Framing, previous: int
) -> int:
    """Return how many frames of a chain precede the first whose lead is not sound; for those who measure the records.

    Parameters as of `count_sound`.
    """
    if framing is Framing.RECORDS:
        return starts.size
    return _count_leading(starts, previous, lambda some, before: sound_entries(raw, some, start_offset, before))


def _count_leading(
    starts: npt.NDArray[np.int64],
    previous: int,
    is_sound: Callable[[npt.NDArray[np.int64], int], npt.NDArray[np.bool_]],
) -> int:
    """Return how many frames precede the first that is not sound, by a check of some and the start of the one before.

    Each window of frames is checked at once.
    """
    for first in range(0, starts.size, _PROOF_WINDOW):
        some = starts[first : first + _PROOF_WINDOW]
        sound = is_sound(some, int(starts[first - 1]) if first else previous)
        if not sound.all():
            return first + int(sound.argmin())
    return starts.size


def chain(  # noqa: PLR0913 -- as of `scan`
    raw: npt.NDArray[np.uint8],
    begin: int = 0,
    end: int | None = None,
    start_offset: int | None = 0,
    framing: Framing = Framing.RECORDS,
    *,
    lanes: int | None = None,
) -> Scan:
    """Return frames by the records' sizes and magic codes alone, without checking that their parts add up to the size.

    For readers that measure the parts anyway, see `store_core.format.columnar.spans.measure`: the chain is that of
    `scan` up to the first record whose parts do not add up.
    """
    limit = raw.size if end is None else min(end, raw.size)
    records, lead = raw[framing.lead :], framing.lead
    offset = None if start_offset is None else start_offset + lead
    walked = _walk(records, _choose_lanes(records, begin, limit, offset, lanes), limit, lead)
    starts, stop = _stitch(records, walked, begin, limit, lead)
    if stop >= (limit if end is None else end):
        return Scan(starts, stop, StopReason.LIMIT)
    return Scan(starts, stop, check_frame(raw.data, stop, start_offset, framing).reason or StopReason.LIMIT)


def _choose_lanes(
    raw: npt.NDArray[np.uint8], begin: int, limit: int, start_offset: int | None, lanes: int | None
) -> npt.NDArray[np.int64]:
    """Return where cursors start: at `begin`, and at the first position after each cut that looks like a record."""
    length = max(limit - begin, 0)
    count = max(1, min(lanes or _MAX_LANES, length // (_LANE_BYTES if lanes is None else MIN_RECORD_SIZE)))
    cuts = begin + length * np.arange(count + 1, dtype=np.int64) // count
    found = _near_candidates(raw, cuts, start_offset)
    others = np.flatnonzero(found < 0)
    is_worthwhile = others.size <= _FEW_LANES or 2 * others.size > count
    for lane in others[:: -(-others.size // _MOST_FAR) or 1].tolist() if is_worthwhile else ():
        found[lane] = find_candidate(raw, int(cuts[lane]), int(cuts[lane + 1]), start_offset)
    return np.concatenate([[begin], found[found >= 0]])


def _near_candidates(
    raw: npt.NDArray[np.uint8], cuts: npt.NDArray[np.int64], start_offset: int | None
) -> npt.NDArray[np.int64]:
    """Return what `find_candidate` would of each lane if it searched only a little; -1 also if that is outside `raw`.

    * `cuts`: int64, shape (n + 1,), ascending: lane k may begin in ``[cuts[k], cuts[k + 1])``.
    """
    found = np.full(cuts.size - 1, -1, np.int64)
    for probe in _NEAR_PROBES:
        reach = probe + MIN_RECORD_SIZE
        missing = np.flatnonzero((found < 0) & (cuts[:-1] <= raw.size - reach))
        for first in range(0, missing.size, _TOGETHER_BYTES // reach):
            lanes = missing[first : first + _TOGETHER_BYTES // reach]
            chunks = gather(raw, cuts[lanes], np.dtype(f"V{reach}")).view(np.uint8)
            magics = np.flatnonzero(chunks[_MAGIC_POSITION:-3] == _COMMON_MAGIC[0]) + _MAGIC_POSITION
            magics = magics[(chunks[magics + 1] == _COMMON_MAGIC[1]) & (chunks[magics + 2] == _COMMON_MAGIC[2])]
            rows, positions = np.divmod(magics - _MAGIC_POSITION, reach)
            lanes, places = lanes[rows], cuts[lanes[rows]] + positions
            kept = (positions <= probe) & (places < cuts[lanes + 1])
            lanes, places = lanes[kept], places[kept]
            heads = gather(raw, places, head_dtype())
            looks: npt.NDArray[np.bool_] = (heads["magic_code"] == _MAGICS[0]) | (heads["magic_code"] == _MAGICS[1])
            looks &= heads["total_size"] >= MIN_RECORD_SIZE
            kept = looks if start_offset is None else looks & (heads["physical_offset"] == places + start_offset)
            found[lanes[kept][::-1]] = places[kept][::-1]
    return found


def find_candidate(
    raw: npt.NDArray[np.uint8],
    cut: int,
    stop: int,
    start_offset: int | None,
    probes: tuple[int, ...] = _FAR_PROBES,
) -> int:
    """Return the position of what looks like a record in [cut, stop), near its start; -1 if nothing does.

    * `raw`, `start_offset`: As of `scan`.
    * `cut`, `stop`: Positions between which a record may start.
    * `probes`: Bytes after `cut` that are looked through, the one number after the other.
    """
    for probe in probes:
        chunk = raw[cut : min(cut + probe, stop) + MIN_RECORD_SIZE].tobytes()
        at = chunk.find(_COMMON_MAGIC, _MAGIC_POSITION)
        for _ in range(_MOST_TRIES):
            position = at - _MAGIC_POSITION
            if at < 0 or cut + position >= stop:
                break
            if _looks_like_record(chunk, position, cut, start_offset):
                return cut + position
            at = chunk.find(_COMMON_MAGIC, at + 1)
        if stop - cut <= probe:
            break
    return -1


def _looks_like_record(chunk: bytes, position: int, cut: int, start_offset: int | None) -> bool:
    if position + MIN_RECORD_SIZE > len(chunk):
        return False
    size, magic, claimed = _read_place(chunk, position)
    if magic not in _MAGICS or size < MIN_RECORD_SIZE:
        return False
    return start_offset is None or bool(claimed == start_offset + cut + position)


@dataclass(frozen=True, slots=True)
class _WalkedLanes:
    """The result of each lane: `starts[first[k]:first[k + 1]]`, and `arrival[k]`, where it stopped."""

    lanes: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    arrival: npt.NDArray[np.int64]


def _walk(raw: npt.NDArray[np.uint8], lanes: npt.NDArray[np.int64], limit: int, lead: int) -> _WalkedLanes:
    """Make every lane follow its chain to the next lane's start, or to where the chain breaks.

    Here and below `raw` begins with a record, and `lead` bytes are between one record and the next.
    """
    # Indexing eight bytes at any address takes a fifth of what picking them by two aligned loads does.
    frames = np.ndarray((max(raw.size - _FRAME.itemsize + 1, 0),), f"V{_FRAME.itemsize}", raw, strides=(1,))
    stops = np.minimum(np.append(lanes[1:], limit), frames.size)
    lane = np.flatnonzero(lanes < stops)
    position, stop = lanes[lane], stops[lane]
    arrival, counts = lanes.copy(), np.zeros(lanes.size, np.int64)
    steps: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    while lane.size > _FEW_LANES:
        halves = frames[position].view("<i4")
        size, magic = halves[0::2].byteswap(), halves[1::2]
        following = position + size + lead if lead else position + size
        going = (magic == _V1_STORED) & (size >= MIN_RECORD_SIZE) & (following < stop)
        if going.all():
            steps.append((lane, position))
            position = following
            continue
        is_record = (
            ((magic == _V1_STORED) | (magic == _V2_STORED)) & (size >= MIN_RECORD_SIZE) & (following <= raw.size + lead)
        )
        counts[lane] = len(steps) + is_record
        arrival[lane] = np.where(is_record, following, position)
        steps.append((lane[is_record], position[is_record]))
        going = is_record & (following < stop)
        lane, position, stop = lane[going], following[going], stop[going]
    counts[lane], arrival[lane] = len(steps), position
    return _collect(lanes, steps, counts, arrival)


def _collect(
    lanes: npt.NDArray[np.int64],
    steps: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
    counts: npt.NDArray[np.int64],
    arrival: npt.NDArray[np.int64],
) -> _WalkedLanes:
    """Sort the starts, which were found step by step, by lanes."""
    first = np.zeros(lanes.size + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    starts = np.empty(first[-1], np.int64)
    at, previous = np.empty(0, np.int64), None
    for number, (members, positions) in enumerate(steps):
        if members is previous:
            at += 1
        else:
            at, previous = first[members] + number, members
        starts[at] = positions
    return _WalkedLanes(lanes, starts, first, arrival)


def _stitch(
    raw: npt.NDArray[np.uint8], walked: _WalkedLanes, begin: int, limit: int, lead: int
) -> tuple[npt.NDArray[np.int64], int]:
    """Follow the chain over the lanes that start where it arrives; bridge the rest by single steps."""
    data = raw.data
    breaks = np.append(np.flatnonzero(walked.arrival[:-1] != walked.lanes[1:]), walked.lanes.size - 1)
    pieces: list[npt.NDArray[np.int64]] = []
    position, lane = begin, 0
    while position < limit:
        lane += int(np.searchsorted(walked.lanes[lane:], position))
        if lane < walked.lanes.size and walked.lanes[lane] == position:
            last = int(breaks[np.searchsorted(breaks, lane)])
            pieces.append(walked.starts[walked.first[lane] : walked.first[last + 1]])
            position, lane = int(walked.arrival[last]), last + 1
        following = min(int(walked.lanes[lane]), limit) if lane < walked.lanes.size else limit
        single, arrived = _single_steps(data, position, following, lead)
        pieces.append(np.array(single, np.int64))
        position = arrived
        if arrived < following:
            break
    return _joined(pieces), position


def _joined(pieces: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    filled = [piece for piece in pieces if piece.size]
    if len(filled) == 1:
        return filled[0]
    return np.concatenate(filled) if filled else np.empty(0, np.int64)


def _single_steps(data: memoryview, position: int, stop: int, lead: int) -> tuple[list[int], int]:
    """Follow the chain record by record until it reaches `stop` or breaks."""
    starts: list[int] = []
    last = len(data) - MIN_RECORD_SIZE
    while position < stop and position <= last:
        size, magic = read_frame(data, position)
        if magic not in _MAGICS or size < MIN_RECORD_SIZE or position + size > len(data):
            break
        starts.append(position)
        position += size + lead
    return starts, position


_LARGEST: Final = 8 << 20
"""Bytes of a window, which are still in the processor's cache when they are decoded; each costs numpy 0.3 ms."""

_LEAST: Final = 1 << 20
"""Bytes of the first window, and of those for batches of few rows."""

_SPARE: Final = 32
"""Part of a window's rows that are left free, for records that are smaller than those before: a second batch of a few
rows would take nearly as long as the first."""

_LANE_RECORDS: Final = 24
"""Records of a lane of `chain`, by the size of those before: searching for lanes takes as long as steps do."""


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a segment that a walk has reached."""

    position: int = 0  # where to continue, in bytes from the segment's start
    last_sound: int = -1  # start of the last sound record before it; -1 if there is none


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Records, or entries that hold them, that follow one another."""

    starts: npt.NDArray[np.int64]
    """int64, shape (n,), n >= 1, ascending: positions in the segment; those of entries in a DLedger log."""
    stop: int  # where the last one ends

    @property
    def size(self) -> int:
        """Size of its records, in bytes."""
        return self.stop - int(self.starts[0])

    @property
    def bounds(self) -> npt.NDArray[np.int64]:
        """Where its records start, and where the last one ends; shape (n + 1,)."""
        return np.append(self.starts, self.stop)

    @property
    def place(self) -> Place:
        """The position after it, if all its records are sound."""
        return Place(self.stop, int(self.starts[-1]))

    def between(self, begin: int, end: int) -> Run | None:
        """Return the records that start in a range; None if none do."""
        first, last = np.searchsorted(self.starts, (begin, end)).tolist()
        if first >= last:
            return None
        return Run(self.starts[first:last], int(self.starts[last]) if last < self.starts.size else self.stop)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Frames that follow one another, and their bytes."""

    raw: npt.NDArray[np.uint8]  # uint8, shape (m,): until the next window is read
    base: int  # position in the segment of its first byte
    run: Run  # at least one frame; positions in `raw`
    previous: int = -1
    """Position in `raw` of the sound frame before the first one; -1 if that is not needed, or there is none."""
    is_last: bool = False  # whether the chain is known to end with it

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Positions in the segment of its frames."""
        return self.run.starts + self.base

    @property
    def stop(self) -> int:
        """Position in the segment at which the last frame ends."""
        return self.run.stop + self.base

    @property
    def place(self) -> Place:
        """The position after it, if all its frames are sound."""
        return Place(self.stop, int(self.run.starts[-1]) + self.base)

    def sound(self, segment: SegmentView) -> Window | None:
        """Return the window without its frames from the first one on that is not sound; None for none of them.

        They are measured while they are in the cache.
        """
        starts = self.run.starts
        offset = segment.start_offset + self.base
        count = count_sound(self.raw, starts, offset, segment.framing, previous=self.previous)
        if count == starts.size:
            return self
        return replace(self, run=Run(starts[:count], int(starts[count])), is_last=True) if count else None


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The records of a segment by their sizes and magic codes alone."""

    segment: SegmentView
    kept: tuple[Run, ...] = ()  # the chain from `begin`, as far as it is kept for further readers: 8 bytes per record
    begin: Place = field(default_factory=Place)
    """Where the kept part begins: the segment's first byte, or where a record is known to end."""

    @property
    def stop(self) -> int:
        """Where the kept part ends."""
        return self.kept[-1].stop if self.kept else self.begin.position

    @property
    def place(self) -> Place:
        """The place after the kept part, if all its records are sound."""
        return self.kept[-1].place if self.kept else self.begin

    def followed_sound(self) -> Self:
        """Return the chain with all runs kept up to the first record that is not sound."""
        kept: list[Run] = []
        for window in self.windows(self.begin, self.segment.size):
            sound = window.sound(self.segment)
            kept += [Run(sound.starts, sound.stop)] if sound is not None else []
            if sound is not window:
                break
        return replace(self, kept=tuple(kept))

    def windows(self, place: Place, limit: int, most_rows: int = _LARGEST) -> Iterator[Window]:
        """Follow the chain from a place until it breaks, or a frame starts at or after `limit`.

        What the frames are needed for is done while their window is in the processor's cache. A record that a window
        cuts is the first of the next one. One that is larger than a window is read alone, if its lengths add up to its
        size: no field of a damaged record makes much memory be taken.

        * `place`: Where a frame starts.
        * `limit`: Frames that start at or after it are left out.
        * `most_rows`: Frames that are used at once: a window has about as many, or less.
        """
        known = self.starts_before(limit)
        position, last, size = place.position, place.last_sound, _LEAST
        lanes: int | None = None
        while position < min(limit, self.segment.size):
            window = self._known_window(known, position, size) or self._window(position, last, limit, size, lanes)
            if window is None:
                return
            yield window
            if window.is_last:
                return
            run = window.run
            position, last = window.base + run.stop, window.base + int(run.starts[-1])
            size = max(_LEAST, min(_LARGEST, run.size * (most_rows - most_rows // _SPARE) // run.starts.size))
            lanes = max(size * run.starts.size // (run.size * _LANE_RECORDS), 1)

    def _known_window(self, known: npt.NDArray[np.int64], position: int, size: int) -> Window | None:
        """Return the window from a position on if frames are known there; entries have to be compared with others."""
        first = int(np.searchsorted(known, position))
        if first == known.size or known[first] != position or self.segment.framing is Framing.ENTRIES:
            return None
        count = int(np.searchsorted(known, position + size)) - first
        stop = int(known[first + count]) if first + count < known.size else self.stop
        if stop > position + _LARGEST or stop > self.segment.size:
            return None
        raw = self.segment.chunk(position, stop)
        return Window(raw, position, Run(known[first : first + count] - position, raw.size))

    def _window(self, position: int, last: int, limit: int, size: int, lanes: int | None) -> Window | None:
        base = last if self.segment.continues(position, last) else position
        end = min(position + size, self.segment.size)
        window = self._window_of(base, position, end, limit, lanes)
        if window is None:
            end = position + self.segment.proven_size(position)
            window = self._window_of(base, position, end, position + 1) if end > position + size else None
        return window if window is None or base == position else replace(window, previous=last - base)

    def _window_of(self, base: int, position: int, end: int, limit: int, lanes: int | None = None) -> Window | None:
        raw = self.segment.chunk(base, end)
        stop = min(limit - base, raw.size)
        found = chain(raw, position - base, stop, self.segment.start_offset + base, self.segment.framing, lanes=lanes)
        is_cut = found.reason in (StopReason.LIMIT, StopReason.TORN) or raw.size - found.stop < BLANK_SIZE
        is_last = not is_cut or base + raw.size == self.segment.size
        return Window(raw, base, Run(found.starts, found.stop), is_last=is_last) if found.starts.size else None

    def starts_before(self, end: int) -> npt.NDArray[np.int64]:
        """Return the starts in the kept part before a position."""
        runs = takewhile(lambda run: run.starts[0] < end, self.kept)
        starts = np.concatenate([np.empty(0, np.int64), *(run.starts for run in runs)])
        return starts[: np.searchsorted(starts, end)]
