# SPDX-License-Identifier: Apache-2.0
"""Single messages, and the last ones."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from store_core.format.record.scan import is_message_id
from store_core.store.read.message_reader import read_range
from store_core.store.read.option_table import NamedBy
from store_core.store.read.read_messages import read_messages
from store_core.store.read.read_plan import plan_and_walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from store_core.files.store_path import StorePaths
    from store_core.snapshot.store import Store
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions


_PIECE: Final = 8 << 20
"""Bytes of the last segment that are read at once; where its records start is known from planning."""


def last_rows(
    store: StorePaths | Store, options: ReadOptions, most: int, before: int | None = None
) -> list[pa.RecordBatch]:
    """Read the last rows of a log.

    * `store`: One; a `Store` is read as of its moment.
    * `before`: Physical offset where the read ends, if not at the log's end.

    Returns: In log order.
    """
    bound = options.ending_offsets if before is None else replace(options.ending_offsets, physical=before)
    plan, mapped = plan_and_walk(store, replace(options, max_partition_bytes=_PIECE, ending_offsets=bound))
    found: deque[pa.RecordBatch] = deque()
    for part in reversed(_pieces(plan.ranges)):
        missing = most - sum(batch.num_rows for batch in found)
        if missing <= 0:
            break
        found.extendleft(reversed(_last_of(read_range(part, options, mapped), missing)))
    return list(found)


def _pieces(ranges: Sequence[ReadRange]) -> list[ReadRange]:
    """Join the ranges of all segments but the last: each read of a part would walk its segment from the start."""
    segments = [list(parts) for _, parts in groupby(ranges, lambda part: part.segment)]
    whole = [replace(parts[0], end=parts[-1].end) for parts in segments[:-1]]
    return [*whole, *(segments[-1] if segments else [])]


def _last_of(batches: Iterable[pa.RecordBatch], most: int) -> list[pa.RecordBatch]:
    """Return the last rows of some batches, and keep no more of them than needed."""
    kept: deque[pa.RecordBatch] = deque()
    rows = 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        while rows - kept[0].num_rows >= most:
            rows -= kept.popleft().num_rows
    if rows > most:
        kept[0] = kept[0].slice(rows - most)
    return list(kept)


_POSITION: Final = re.compile(r"(?P<topic>.+)/(?P<queue_id>[0-9]{1,10})/(?P<offset>[0-9]{1,18})")


def find_message(
    path: StorePaths, what: str, kind: NamedBy | None, read: Mapping[str, Any]
) -> pa.RecordBatchReader | None:
    """Find the messages that a word means.

    * `kind`: If None, it is tried as what it looks like, then as a key: ids of producers look like offset message ids.
    * `read`: Options of the reader; its filters apply as well.

    Returns: With at least one row, in log order; None if there is no such message.
    """
    for found in meanings_of(what, kind):
        reader = read_messages(path, **{**read, **found})
        batches = iter(reader)
        first = next(batches, None)
        if first is not None:
            return pa.RecordBatchReader.from_batches(reader.schema, chain([first], batches))
    return None


def meanings_of(what: str, kind: NamedBy | None) -> Iterator[dict[str, Any]]:
    """Yield the options of the reader for what a word may mean, the likeliest first; arguments as of `find_message`."""
    position = _POSITION.fullmatch(what)
    if kind in (None, NamedBy.ID) and is_message_id(what):
        yield {"msg_id": what.upper()}
    if kind in (None, NamedBy.POSITION) and position is not None:
        topic, queue_id, offset = position["topic"], int(position["queue_id"]), int(position["offset"])
        yield {
            "topic": [topic],
            "queue_id": queue_id,
            "starting_offsets": {topic: {queue_id: offset}},
            "ending_offsets": {topic: {queue_id: offset + 1}},
            **dict.fromkeys(("starting_timestamp", "ending_timestamp")),  # which take precedence
        }
    if kind in (None, NamedBy.KEY):
        yield {"key": what}
