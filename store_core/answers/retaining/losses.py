# SPDX-License-Identifier: Apache-2.0
"""The messages that a deletion takes before groups have consumed them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from store_core.answers.lag_queues import GroupKind
from store_core.format.table_time import table_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from store_core.answers.lag_queues import QueueLag
    from store_core.answers.retaining.disk_forecast import DiskForecast
    from store_core.snapshot.queues import Queues

__all__ = ["losses"]


def losses(rows: Iterable[QueueLag], forecast: DiskForecast, until: int, queues: Queues) -> Iterator[dict[str, Any]]:
    """Yield a row for each group that loses messages: the first of them, and how many it loses.

    Parameters
    ----------
    rows : iterable of QueueLag
    forecast : DiskForecast
        Up to `until`, ms.
    until : int
    queues : Queues
    """
    begin = forecast.log_begin_at(until)
    going = [(*row.first, row) for row in rows if row.first is not None and row.first[1] < begin]
    going = [each for each in going if each[-1].asked.kind is not GroupKind.SYSTEM]
    firsts: dict[str, tuple[int, int, QueueLag]] = {}
    counts: Counter[str] = Counter()
    with queues:
        for offset, position, _, row in sorted(going, key=lambda each: (each[1], each[0])):
            queue = row.topic, row.queue_id
            counts[row.asked.group] += queues.first_at(*queue, begin, offset, row.max_offset or offset) - offset
            firsts.setdefault(row.asked.group, (offset, position, row))
    for group, (offset, position, row) in firsts.items():
        gone = forecast.deleted_at(position)
        yield {
            "consumer_group": group,
            "topic": row.topic,
            "queue_id": row.queue_id,
            "queue_offset": offset,
            "physical_offset": position,
            "store_timestamp": table_time(row.oldest),
            "deleted": None if gone is None else table_time(gone.at),
            "messages": counts[group],
        }
