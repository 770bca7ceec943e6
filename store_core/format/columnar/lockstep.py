# SPDX-License-Identifier: Apache-2.0
"""Record starts of a segment, found with numpy by many cursors that walk the chain at once.

A chain is sequential: where a record starts is known only from the one before. So the segment is cut at positions that
*look* like record starts, one cursor (a lane) walks from each, and all step together. A lane ends at the next cut.
Whether a cut was a true start is decided afterwards: the chain is followed from its first record, lane by lane, and a
lane counts only if the chain arrives exactly at its cut. Where it does not (inside a body that holds whole records,
say), single steps lead to the next lane. The result equals that of `store_core.format.record.scan.follow_frames` for
every input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.spans import Heads, gather, measure, sound_entries
from store_core.format.layout import MIN_RECORD_SIZE, MagicCode, field_position, head_dtype
from store_core.format.record.record_head import head_reader, read_frame
from store_core.format.record.scan import Framing, Scan, StopReason, check_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt


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
