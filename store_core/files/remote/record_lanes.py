# SPDX-License-Identifier: Apache-2.0
"""Following the records of a remote segment without their bodies, by small requests from several places at a time.

Where a record starts is known only from the one before, so a single walk would wait for one request per record.
Therefore the range is cut, as in `store_core.format.columnar.lockstep`: one walk (a lane) begins at each cut, at the
first position that looks like a record. A lane counts only if the chain arrives exactly where it began; otherwise the
lane before it goes on. So the starts are those that follow from the first one, whatever a body holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.lockstep import find_candidate
from store_core.format.layout import MIN_HEAD_SIZE, MIN_RECORD_SIZE, MagicCode, head_size
from store_core.format.record.record_head import head_shape, read_frame, read_sys_flag
from store_core.format.sys_flag import MessageSysFlag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

    from store_core.format.segment_view import Frames

    Load = Callable[[int, int], None]
    Map = Callable[[Callable[[int], "_Lane"], Iterable[int]], Iterable["_Lane"]]

__all__ = ["FIRST", "LANES", "PROBE", "RecordLanes", "lane_count"]

LANES: Final = 24
"""Requests at a time: pyarrow's S3 client has 25 connections."""

_HEAD: Final = head_size(int(MessageSysFlag.BORNHOST_V6_FLAG | MessageSysFlag.STOREHOSTADDRESS_V6_FLAG))
"""Bytes of the longest head."""

FIRST: Final = 8
"""Records from which the usual size is taken."""

_LANE_RECORDS: Final = 16
"""Fewest records of a lane: to find its first one takes about half a record."""

PROBE: Final = 4 << 10
"""Bytes that are looked through first for a lane's first record, doubled each time."""

_LONGEST_AHEAD: Final = 1 << 20
"""Most bytes that are requested ahead where bodies are too small to be left out."""

_MAGICS: Final = (int(MagicCode.MESSAGE_V1), int(MagicCode.MESSAGE_V2))


def lane_count(length: int, usual_size: int) -> int:
    """Return how many lanes a range has by the usual size of its records; 0 if it has too few for one."""
    return min(LANES, length // (_LANE_RECORDS * max(usual_size, MIN_RECORD_SIZE)))


@dataclass(slots=True)
class _Lane:
    """One walk: the records found, where it arrived, and whether there is no record."""

    position: int
    starts: list[int] = field(default_factory=list)
    is_broken: bool = False
    loaded: int = 0
    """Where the bytes end that were loaded in one piece up to here."""
    ahead: int = 0


class RecordLanes:
    """Follows records, and has everything of them loaded but large bodies.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,): the segment's bytes, as far as they are loaded.
    start_offset : int
        Physical offset of its first byte.
    load : callable
        Puts the bytes between two positions into `raw`; several threads call it.
    least_body : int
        Bytes from which on a body is left out.

    Attributes
    ----------
    usual_size : int
        Mean size of the records that were found last; 0 before.
    """

    def __init__(self, raw: npt.NDArray[np.uint8], start_offset: int, load: Load, least_body: int) -> None:
        self._raw = raw
        self._start_offset = start_offset
        self._load = load
        self._least_body = least_body
        self.usual_size = 0

    def follow(self, begin: int, goal: int, size: int, run: Map) -> Frames:
        """Return the records from `begin` on that start before `goal`, and where the last one ends.

        It ends before `goal` where there is no record.

        Parameters
        ----------
        begin, goal : int
            Positions in the segment.
        size : int
            Position that no record runs past.
        run : callable
            Calls a function for each of some values, many at a time, as `concurrent.futures.Executor.map`.
        """
        first = self._walk(_Lane(begin), goal, size, most=FIRST)
        self._note_size(first.starts, first.position)
        lanes = [first, *self._cut(first, goal, size, run)]
        found = self._stitched(lanes, goal, size)
        self._note_size(found.starts, found.position)
        return np.array(found.starts, np.int64), found.position

    def _note_size(self, starts: list[int], stop: int) -> None:
        if starts:
            self.usual_size = (stop - starts[0]) // len(starts)

    def _cut(self, first: _Lane, goal: int, size: int, run: Map) -> list[_Lane]:
        """Walk the lanes after the first records."""
        length = goal - first.position
        count = lane_count(length, self.usual_size)
        if first.is_broken or count < 1:
            return []
        cuts = [first.position + length * lane // count for lane in range(count)]
        following = dict(zip(cuts, [*cuts[1:], goal], strict=True))

        def walk(cut: int) -> _Lane:
            end = following[cut]
            begin = cut if cut == first.position else self._candidate(cut, end)
            return self._walk(_Lane(begin), end, size) if begin >= 0 else _Lane(-1)

        return list(run(walk, cuts))

    def _candidate(self, cut: int, end: int) -> int:
        """Return the first position in a range that looks like a record; -1 if there is none near its begin."""
        position, length, last = cut, PROBE, min(end, cut + 4 * self.usual_size)
        while position < last:
            stop = min(position + length, last)
            self._load(position, stop + MIN_RECORD_SIZE)
            found = find_candidate(self._raw, position, stop, self._start_offset, (stop - position,))
            if found >= 0:
                return found
            position, length = stop, min(2 * length, _LONGEST_AHEAD)
        return -1

    def _stitched(self, lanes: list[_Lane], goal: int, size: int) -> _Lane:
        """Follow the chain over the lanes that begin where it arrives; walk on where none does."""
        known = {lane.starts[0]: lane for lane in lanes[1:] if lane.starts}
        begins = sorted(known)
        chain, number = lanes[0], 0
        while chain.position < goal and not chain.is_broken:
            while number < len(begins) and begins[number] < chain.position:
                number += 1
            if number < len(begins) and begins[number] == chain.position:
                lane = known[chain.position]
                chain.starts += lane.starts
                chain.position, chain.is_broken = lane.position, lane.is_broken
                continue
            chain.loaded = chain.ahead = 0
            self._walk(chain, begins[number] if number < len(begins) else goal, size)
        return chain

    def _walk(self, lane: _Lane, end: int, size: int, most: int | None = None) -> _Lane:
        """Follow records that start before a position."""
        last = None if most is None else len(lane.starts) + most
        while lane.position < end and (last is None or len(lane.starts) < last):
            self._reach(lane, lane.position, lane.position + _HEAD, size)
            following = self._following(lane.position, size)
            if following is None:
                lane.is_broken = True
                break
            lane.starts.append(lane.position)
            self._pass_body(lane, following, size)
            lane.position = following
        return lane

    def _following(self, position: int, size: int) -> int | None:
        """Return where the record at a position ends; None if there is none."""
        if position + MIN_RECORD_SIZE > size:
            return None
        total, magic = read_frame(self._raw.data, position)
        is_record = magic in _MAGICS and total >= MIN_RECORD_SIZE and position + total <= size
        return position + total if is_record else None

    def _pass_body(self, lane: _Lane, following: int, size: int) -> None:
        """Load what follows a record's body, with the next head; and the body, if it is small, or can't be as long."""
        position = lane.position
        shape = head_shape(read_sys_flag(self._raw.data, position))
        length = int(shape.read_body_length(self._raw.data, position)[0])
        after = position + MIN_HEAD_SIZE + length
        if self._least_body <= length and after < following:
            lane.ahead = 0
            self._reach(lane, max(after, lane.loaded), following + _HEAD, size)
            return
        self._reach(lane, lane.loaded, following + _HEAD, size)

    def _reach(self, lane: _Lane, begin: int, end: int, size: int) -> None:
        """Load up to a position, and more and more ahead where nothing was left out."""
        begin, end = max(begin, lane.loaded), min(end, size)
        if lane.loaded >= end:
            return
        if begin == lane.loaded:
            lane.ahead = min(max(2 * lane.ahead, PROBE), _LONGEST_AHEAD)
        stop = min(end + lane.ahead, size)
        self._load(begin, stop)
        lane.loaded = stop
