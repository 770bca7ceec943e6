# SPDX-License-Identifier: Apache-2.0
"""Where a walk through a log can start, and where the log ends, found without walking all of it.

The end is found from the last segment alone, while a writer may be appending to it. A walk that starts at one of the
positions found here has the same result as one from the segment's first byte.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.chain import Chain, Place, Run, Window
from store_core.format.record.scan import StopReason
from store_core.format.salvage import Damage, SalvageWalk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.format.segment_view import SegmentView


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


_SEGMENT_START: Final = Place()

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
