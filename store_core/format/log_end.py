# SPDX-License-Identifier: Apache-2.0
"""Where a log ends, judged by its last segment alone, while a writer may be at work on it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from store_core.format.salvage import Damage, Run, SegmentWalk
from store_core.format.scan import RecordCheck, StopReason, check_record
from store_core.format.spans import Heads, measure

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

__all__ = ["LogEnd", "find_log_end", "find_tail_end"]

_STRETCHES: Final = 64
"""How many stretches of sound records a torn tail is followed back through."""

_TAIL_CHUNK: Final = 1 << 20
"""Bytes in which the end of a torn tail is looked for at a time."""

_LAST_RECORDS: Final = 1 << 16
"""How many of the last records are measured to see whether the end can be trusted: more than 4 MiB of body can hold."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log in its last segment.

    Attributes
    ----------
    position : int
        Behind the last sound record, in bytes from the segment's start.
    reason : StopReason
        Why there is no record at `position`.
    stale : int
        Position of the first sound record behind it that is older, so no data; -1 without any.
    runs : tuple of Run
        The chain that led there from the segment's first byte, not measured: for another walk over the same bytes.
        Empty where there was damage.
    """

    position: int
    reason: StopReason
    stale: int = -1
    runs: tuple[Run, ...] = field(default=(), compare=False, repr=False)


def find_log_end(
    raw: npt.NDArray[np.uint8], start_offset: int, *, verify_crc: bool, next_data: Callable[[int], int]
) -> LogEnd:
    """Find the end of a log whose last segment this is.

    A writer that died leaves a torn tail: a record in part, or, when pages reached the disk out of order, whole records
    with wrong bodies. A tail is torn only if no sound record that is newer follows; otherwise it is damage in the
    middle, and the log ends further on. A writer may be at work: what it appends meanwhile is found or not, and is
    never taken for damage.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,), contiguous: the whole segment.
    start_offset : int
        Physical offset of its first byte.
    verify_crc : bool
        Whether the last records' bodies must match their checksums, as in RocketMQ's recovery.
    next_data : callable
        As for `store_core.format.salvage.SegmentWalk`.

    Notes
    -----
    RocketMQ 5.3.3, ``CommitLog.recoverNormally`` and ``recoverAbnormally``, end the log at the first record that fails,
    whatever follows, and truncate the rest.
    """
    walk, tail = _walk(raw, start_offset, next_data, measured_from=0)
    is_whole = not walk.reason.is_damage and all(isinstance(part, Run) for part in tail)
    runs = _runs(tail)
    if not is_whole or not _ends_sound(raw, start_offset, tail):
        walk, tail = _walk(raw, start_offset, next_data, measured_from=None)
        runs = ()
    torn = _torn_tail(raw, tail) if verify_crc else None
    return LogEnd(*(torn or (walk.stop, walk.reason)), walk.stale, runs)


def find_tail_end(raw: npt.NDArray[np.uint8], end: LogEnd, next_data: Callable[[int], int]) -> int:
    """Find where the bytes end that lie after a log's end and are neither zeros nor records of an earlier time.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,), contiguous: the whole segment.
    end : LogEnd
        What `find_log_end` found there.
    next_data : callable
        As for `store_core.format.salvage.SegmentWalk`.

    Returns
    -------
    int
        Position one past the last byte that is not zero; that of `end` if there is none.
    """
    limit = end.stale if end.stale > end.position else raw.size
    found = position = end.position
    while position < limit:
        position = max(next_data(position), position)
        chunk = raw[position : min(position + _TAIL_CHUNK, limit)]
        if chunk.any():
            found = position + chunk.size - int((chunk[::-1] != 0).argmax())
        position += _TAIL_CHUNK
    return found


def _walk(
    raw: npt.NDArray[np.uint8], start_offset: int, next_data: Callable[[int], int], measured_from: int | None
) -> tuple[SegmentWalk, deque[Run | Damage]]:
    """Walk the segment, and give its last stretches without the damage at its end.

    A walk that measures nothing goes only as far as the first damage.
    """
    walk = SegmentWalk(
        raw, start_offset, only_newer=True, is_growing=True, next_data=next_data, measured_from=measured_from
    )
    tail: deque[Run | Damage] = deque(maxlen=_STRETCHES)
    for part in walk:
        if isinstance(part, Run) or part.is_followed:
            tail.append(part)
        if isinstance(part, Damage) and measured_from is not None:
            break
    return walk, tail


def _runs(tail: deque[Run | Damage]) -> tuple[Run, ...]:
    """Return the runs of a walk without damage, if they reach back to its begin."""
    runs = tuple(part for part in tail if isinstance(part, Run))
    return runs if runs and not runs[0].starts[0] else ()


def _ends_sound(raw: npt.NDArray[np.uint8], start_offset: int, tail: deque[Run | Damage]) -> bool:
    """Return whether the last records are sound, so that a walk that measured none came to the right end.

    Before them, a record whose parts do not add up has a size that led on to others: it does not move the end.
    """
    last = [part for part in tail if isinstance(part, Run)][-1:]
    return all(measure(Heads(raw, run.starts[-_LAST_RECORDS:]), start_offset).sound.all() for run in last)


def _torn_tail(raw: npt.NDArray[np.uint8], tail: deque[Run | Damage]) -> tuple[int, StopReason] | None:
    """Find the first of the last records that all have wrong bodies; damage between them is part of the tail."""
    torn: tuple[int, StopReason] | None = None
    while tail:
        part = tail.pop()
        if isinstance(part, Damage):
            if torn is None:
                return None
            torn = part.begin, part.check.reason or StopReason.BAD_CRC
            continue
        for start in part.starts[::-1].tolist():
            if _check_body(raw, start).reason is not StopReason.BAD_CRC:
                return torn
            torn = start, StopReason.BAD_CRC
    return torn


def _check_body(raw: npt.NDArray[np.uint8], start: int) -> RecordCheck:
    return check_record(raw.data, start, None, verify_crc=True)
