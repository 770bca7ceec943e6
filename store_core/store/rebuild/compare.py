# SPDX-License-Identifier: Apache-2.0
"""Comparing rebuilt queues with those of a store, index by index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.errors import SegmentLayoutError
from store_core.store.rebuild.unit_verdicts import digest_of, judge_units, unreadable_queue

if TYPE_CHECKING:
    from store_core.store.rebuild.live_moment import LiveMoment
    from store_core.store.rebuild.lost_ranges import LostBytes
    from store_core.store.rebuild.stored_queues import Side, StoredQueues
    from store_core.store.rebuild.unit_verdicts import QueueJudgement

__all__ = ["LogBounds", "judge_queue"]

_NOWHERE: Final = 2**63 - 1


class LogBounds(NamedTuple):
    """The part of a log that counts in a comparison.

    Attributes
    ----------
    min_offset : int
        Physical offset where the log starts; units below it point to deleted records.
    moment : LiveMoment or None
        As of when a store that a broker is writing is compared.
    log_end : int
        Physical offset where the log ends; if it is not known, no unit is after it.
    torn : tuple of int
        Begin and end of a last record that is damaged; its unit is not judged.
    is_open : bool
        Whether the store was not closed: the header of its last index file may be older than the rest of the file.
    """

    min_offset: int
    moment: LiveMoment | None = None
    log_end: int = _NOWHERE
    torn: tuple[int, int] = (0, 0)
    is_open: bool = False


def judge_queue(  # noqa: PLR0913 -- the two sides, and what is known of the log
    topic: str,
    queue_id: int,
    rebuilt: StoredQueues,
    stored: StoredQueues,
    bounds: LogBounds,
    lost: LostBytes | None = None,
) -> QueueJudgement:
    """Judge each unit of a queue; units below the log's start are ignored.

    A unit whose record is damaged now was right, so its place in the queue does not count.
    """
    ours = rebuilt.side(topic, queue_id, bounds.min_offset)
    try:
        theirs = _theirs(topic, queue_id, stored, bounds)
    except (SegmentLayoutError, OSError) as error:
        return unreadable_queue(topic, queue_id, ours, str(error))
    sides = _undamaged(_due(ours, theirs, bounds), theirs, lost, bounds.torn)
    return judge_units(topic, queue_id, *sides, bounds.log_end, digest_of(ours.indexes, [ours.units]))


def _undamaged(ours: Side, theirs: Side, lost: LostBytes | None, torn: tuple[int, int]) -> tuple[Side, Side]:
    """Leave out the places at which the store has units of records that are damaged."""
    begin, end = torn
    offsets = theirs.units["physical_offset"]
    is_lost = (offsets >= begin) & (offsets < end)
    if lost is not None and lost.total:
        is_lost |= lost.holds(offsets)
    if not is_lost.any():
        return ours, theirs
    is_ours = ~np.isin(ours.indexes, theirs.indexes[is_lost])
    return ours.chosen(is_ours), theirs.chosen(~is_lost)


def _theirs(topic: str, queue_id: int, stored: StoredQueues, bounds: LogBounds) -> Side:
    """Return the units of the store; of a live one, without those of records that are newer than what is read."""
    theirs = stored.side(topic, queue_id, bounds.min_offset)
    return theirs if bounds.moment is None else theirs.chosen(bounds.moment.judges(theirs.units["physical_offset"]))


def _due(ours: Side, theirs: Side, bounds: LogBounds) -> Side:
    """Return the units that a store must have: of a live one, none that it has not got yet."""
    if bounds.moment is None:
        return ours
    is_due = ours.units["physical_offset"] < bounds.moment.dispatched
    return ours if is_due.all() else ours.chosen(is_due | np.isin(ours.indexes, theirs.indexes))
