# SPDX-License-Identifier: Apache-2.0
"""Filling gaps that lost records leave in a queue, so that later records keep their own queue offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.format.layout import MIN_RECORD_SIZE
from store_core.queue.consume_queue.stand_ins import StandIn, put_stand_ins

if TYPE_CHECKING:
    from store_core.queue.consume_queue.consume_queue import ConsumeQueue
    from store_core.queue.units.unit_rows import UnitRows
    from store_core.store.rebuild.lost_ranges import LostBytes

__all__ = ["FillBudget", "GapFiller", "MissingOffsets"]

_KEPT: Final = 100
_FREE_UNITS: Final = 1 << 20


class MissingOffsets(NamedTuple):
    """Queue offsets whose records are lost.

    Attributes
    ----------
    first, last : int
        Queue offsets, both included.
    stand_in : str
        What a get finds there: ``"repeated"``, the preceding record once for each; ``"skipped"``, nothing; ``"below"``,
        nothing, because the queue begins after them.
    """

    first: int
    last: int
    stand_in: str


class FillBudget:
    """Limits the stand-ins a task may write, so that a crafted log can't fill the disk.

    A record takes at least 91 bytes, which bounds the records that damage can have held; but the same record may be in
    many light queues, so some stand-ins are free.

    Parameters
    ----------
    lost : LostBytes
    """

    def __init__(self, lost: LostBytes) -> None:
        self.lost = lost
        self._left = _FREE_UNITS + lost.total // MIN_RECORD_SIZE

    def take(self, count: int) -> bool:
        """Use up `count` stand-ins if that many are left; return whether they were."""
        if count > self._left:
            return False
        self._left -= count
        return True


class GapFiller:
    """Writes stand-ins into one queue wherever damage explains missing queue offsets.

    Parameters
    ----------
    queue : ConsumeQueue
    budget : FillBudget

    Attributes
    ----------
    count : int
        Number of missing queue offsets.
    first : list of MissingOffsets
        The first ranges of these.
    """

    def __init__(self, queue: ConsumeQueue, budget: FillBudget) -> None:
        self.count = 0
        self.first: list[MissingOffsets] = []
        self._queue = queue
        self._budget = budget

    def places(self, units: UnitRows) -> list[int]:
        """Find units before which queue offsets are missing, with lost bytes between the records."""
        if not len(units.row):
            return []
        last, lost = self._queue.last_unit, self._budget.lost
        physical = lost.log_start if last is None else last.physical_offset
        offsets = np.concatenate(([self._queue.max_offset_in_queue - 1], units.queue_offset))
        before = np.concatenate(([physical], units.physical_offset[:-1]))
        is_jump = np.diff(offsets) > 1
        found: list[int] = np.flatnonzero(is_jump & (lost.between(before, units.physical_offset) > 0)).tolist()
        return found

    def bridge(self, queue_offset: int, physical_offset: int) -> bool:
        """Fill the queue up to an index, if lost bytes explain that it ends earlier.

        Parameters
        ----------
        queue_offset, physical_offset : int
            Offsets of the next record.

        Returns
        -------
        bool
            Whether the record's unit will be at its own index; if not, nothing was written.
        """
        last, lost = self._queue.last_unit, self._budget.lost
        first = self._queue.max_offset_in_queue
        count = queue_offset - first
        begin = lost.log_start if last is None else last.physical_offset
        bytes_lost = int(lost.between(np.array([begin]), np.array([physical_offset]))[0])
        if not 0 < count <= bytes_lost // MIN_RECORD_SIZE:
            return False
        if last is None:  # the queue begins with the record; earlier offsets existed only if the log is whole
            if not lost.log_start:
                self._note(first, queue_offset, "below")
            return True
        if not self._budget.take(count):
            return False
        stand_in = StandIn.between(last, lost.segment_start(physical_offset))
        put_stand_ins(self._queue, stand_in, count)
        self._note(first, queue_offset, "repeated" if stand_in.is_copy else "skipped")
        return True

    def _note(self, first: int, end: int, stand_in: str) -> None:
        self.count += end - first
        if len(self.first) < _KEPT:
            self.first.append(MissingOffsets(first, end - 1, stand_in))
