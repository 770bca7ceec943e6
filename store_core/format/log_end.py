# SPDX-License-Identifier: Apache-2.0
"""Where a log ends, judged by its last segment alone, while a writer may be at work on it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.format.salvage import Damage, Run, SegmentWalk
from store_core.format.scan import RecordCheck, StopReason, check_record

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

__all__ = ["LogEnd", "find_log_end"]

_STRETCHES: Final = 64
"""How many stretches of sound records a torn tail is followed back through."""


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
    """

    position: int
    reason: StopReason
    stale: int = -1


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
    walk = SegmentWalk(raw, start_offset, only_newer=True, is_growing=True, next_data=next_data)
    tail: deque[Run | Damage] = deque(maxlen=_STRETCHES)
    for part in walk:
        if isinstance(part, Run) or part.is_followed:
            tail.append(part)
    if not verify_crc:
        return LogEnd(walk.stop, walk.reason, walk.stale)
    torn = _torn_tail(raw, tail)
    return LogEnd(walk.stop, walk.reason, walk.stale) if torn is None else LogEnd(*torn, walk.stale)


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
