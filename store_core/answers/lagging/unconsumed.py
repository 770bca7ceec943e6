# SPDX-License-Identifier: Apache-2.0
"""The messages that groups have not consumed, as far as they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from store_core.store.read.read_options import ReadOptions
from store_core.store.read.records_at import records_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.answers.lagging.queue_lag import QueueLag
    from store_core.files.segment_source import Segment
    from store_core.snapshot.queues import Queues

__all__ = ["unconsumed"]

_COLUMNS: Final = ("physical_offset", "store_timestamp", "tags", "keys", "unique_key", "born_host")


class _Listed(NamedTuple):
    """A message of a group that it has not consumed."""

    row: QueueLag
    queue_offset: int
    position: int
    size: int


def unconsumed(
    rows: Iterable[QueueLag], most: int, queues: Queues, segments: Sequence[Segment]
) -> list[dict[str, Any]]:
    """Return the first messages that are not consumed, queue by queue; only their records are read.

    Parameters
    ----------
    rows : iterable of QueueLag
    most : int
        How many.
    queues : Queues
    segments : sequence of Segment
        Of the log, in order.

    Returns
    -------
    list of dict
        Rows of the report's table; what a record would tell is null if the log does not have it.
    """
    listed = list(_listed(rows, most, queues))
    if not listed:
        return []
    starts, sizes = (np.array(values, np.int64) for values in zip(*(each[2:] for each in listed), strict=True))
    read = ReadOptions(columns=_COLUMNS, verify_crc=False, fail_on_data_loss=False, nearest_times=True)
    found = {row["physical_offset"]: row for batch in records_at(segments, starts, sizes, read) for row in _rows(batch)}
    return [_row(each) | found.get(each.position, {}) for each in listed]


def _listed(rows: Iterable[QueueLag], most: int, queues: Queues) -> Iterator[_Listed]:
    left = most
    for row in rows:
        if row.first is None or left <= 0:
            continue
        begin, end = row.first[0], row.max_offset or 0
        for run in queues.units(row.topic, row.queue_id, begin, min(end, begin + left)):
            some = zip(run.offsets.tolist(), run.starts.tolist(), run.sizes.tolist(), strict=True)
            for each in some:
                if left > 0:
                    left -= 1
                    yield _Listed(row, *each)


def _rows(batch: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 -- of Arrow
    columns = [
        (batch.column(name).cast("int64") if name == "store_timestamp" else batch.column(name)).to_pylist()
        for name in _COLUMNS
    ]
    return (dict(zip(_COLUMNS, values, strict=True)) for values in zip(*columns, strict=True))


def _row(each: _Listed) -> dict[str, Any]:
    return {
        "consumer_group": each.row.asked.group,
        "topic": each.row.topic,
        "queue_id": each.row.queue_id,
        "queue_offset": each.queue_offset,
        "physical_offset": each.position,
        "store_size": each.size,
    }
