# SPDX-License-Identifier: Apache-2.0
"""How far groups are behind in one queue: messages and bytes, and the first of them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.views.consumer_offsets import compare

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.answers.lagging.group_kind import GroupKind
    from store_core.snapshot.log import Log
    from store_core.snapshot.queues import Queues
    from store_core.snapshot.units import QueueBounds, Units

__all__ = ["EMPTY", "NO_OFFSET", "AskedGroup", "AskedQueue", "QueueLag", "queue_lags"]

NO_OFFSET = "no_offset"
"""The state of a group that has committed nothing for a queue of a topic that it consumes."""


EMPTY = "empty"
"""The state where nothing was consumed of a queue that is not there, as it has never had a message."""


class AskedGroup(NamedTuple):
    """A group that consumes a queue.

    Attributes
    ----------
    group : str
    kind : GroupKind
    committed : int or None
        Its offset; None if it has committed nothing for this queue.
    """

    group: str
    kind: GroupKind
    committed: int | None


class AskedQueue(NamedTuple):
    """A queue, and the groups whose lag is asked for."""

    topic: str
    queue_id: int
    groups: tuple[AskedGroup, ...]


class QueueLag(NamedTuple):
    """How far a group is behind in a queue.

    Attributes
    ----------
    topic, queue_id
    asked : AskedGroup
    state : str
        As in the view ``consumer_offsets``, or `NO_OFFSET` or `EMPTY`.
    min_offset, max_offset, messages : int or None
        Bounds of the queue, and messages that are there and not consumed; None if unknown.
    size : int or None
        Bytes of their records.
    first : tuple of int or None
        Queue offset, physical offset and bytes of the first of them.
    oldest : int or None
        Store time of that one, ms; None without one, or if the log does not have it.
    newer : int
        How many of the messages were stored after the offsets were written.
    """

    topic: str
    queue_id: int
    asked: AskedGroup
    state: str
    min_offset: int | None
    max_offset: int | None
    messages: int | None
    size: int | None = None
    first: tuple[int, int, int] | None = None
    oldest: int | None = None
    newer: int = 0


class _Tail:
    """What a queue has from an offset on: bytes, and the first unit."""

    def __init__(self) -> None:
        self.size = 0
        self.first: tuple[int, int, int] | None = None

    def take(self, run: Units, row: int, sizes: npt.NDArray[np.int64]) -> None:
        """Add units from one on; `sizes` are the bytes of each and all after it."""
        if row >= sizes.size:
            return
        self.size += int(sizes[row])
        if self.first is None:
            self.first = int(run.offsets[row]), *run.place(row)


def queue_lags(  # noqa: PLR0913 -- what is asked of a queue, its bounds, and what reads it
    asked: AskedQueue,
    bounds: QueueBounds | None,
    then: QueueBounds | None,
    queues: Queues,
    times: Log,
    written: int | None,
) -> list[QueueLag]:
    """Compare what groups have committed with a queue; each of its units from the least offset on is read once.

    Parameters
    ----------
    asked : AskedQueue
    bounds, then : QueueBounds or None
        The queue as it is now, and as of the time asked for; None if there is none.
    queues : Queues
    times : Log
        Of the log; read for the first message of each.
    written : int or None
        When the offsets were written, ms, if messages may have been stored since; then these are counted.

    Raises
    ------
    SegmentVanishedError
        If a file is gone since it was listed.
    """
    rows = [_compared(asked, each, bounds, then) for each in asked.groups]
    begins = {each: _begin(each) for each in rows if each.messages}
    tails = _tails(asked, sorted(set(begins.values())), rows[0].max_offset or 0, queues)
    found, newest = [], _first_after(written, asked, rows, queues, times)
    for row in rows:
        tail = tails[begins[row]] if row in begins else _Tail()
        oldest = None if tail.first is None else times.time_at(*tail.first[1:])
        size = None if row.messages is None else tail.size
        newer = (row.max_offset or 0) - max(newest, begins[row]) if row in begins else 0
        found.append(row._replace(size=size, first=tail.first, oldest=oldest, newer=max(newer, 0)))
    return found


def _compared(asked: AskedQueue, group: AskedGroup, bounds: QueueBounds | None, then: QueueBounds | None) -> QueueLag:
    if bounds is None and (group.committed or 0) <= 0:  # below 0 nothing is committed
        return QueueLag(asked.topic, asked.queue_id, group, EMPTY, None, None, 0)
    columns = compare(0 if group.committed is None else group.committed, bounds, then)
    state = NO_OFFSET if group.committed is None else columns.state
    return QueueLag(asked.topic, asked.queue_id, group, state, columns.min_offset, columns.max_offset, columns.behind)


def _begin(row: QueueLag) -> int:
    """Return the queue offset of the first message that is not consumed."""
    return max(row.asked.committed or 0, row.min_offset or 0)


def _first_after(written: int | None, asked: AskedQueue, rows: Sequence[QueueLag], queues: Queues, times: Log) -> int:
    """Return the queue offset of the first message that was stored after the offsets were written, or the end."""
    end = max((row.max_offset or 0 for row in rows), default=0)
    begin = min((_begin(row) for row in rows if row.messages), default=end)
    if written is None or begin >= end:
        return end

    def is_after(offset: int) -> bool:
        run = next(queues.units(asked.topic, asked.queue_id, offset, offset + 1), None)
        return run is not None and (times.time_at(*run.place(0)) or 0) > written

    return bisect_left(range(end), True, begin, end, key=is_after) if is_after(end - 1) else end  # noqa: FBT003 -- a key


def _tails(asked: AskedQueue, begins: Sequence[int], end: int, queues: Queues) -> dict[int, _Tail]:
    tails = {begin: _Tail() for begin in begins}
    for run in queues.units(asked.topic, asked.queue_id, begins[0], end) if begins else ():
        sizes = np.cumsum(run.sizes[::-1])[::-1]
        rows = np.searchsorted(run.ends, np.array(begins, np.int64), side="right")
        for begin, row in zip(begins, rows.tolist(), strict=True):
            tails[begin].take(run, row, sizes)
    return tails
