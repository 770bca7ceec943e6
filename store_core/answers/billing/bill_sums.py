# SPDX-License-Identifier: Apache-2.0
"""Totals of messages by what an operator can change: topics, queues, tags, producers, days, segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.scanning.group_table import COUNT, MAX, MIN, SUM, GroupTable
from store_core.format.utc_day import utc_days

if TYPE_CHECKING:
    from typing import Self

    from store_core.files.segment_source import Segment

__all__ = ["BillSums"]

_TOTALS: Final = {"bytes": SUM, "messages": COUNT}
_TOPIC: Final = ("topic", pa.string())
_SEGMENT: Final = ("segment", pa.int64())
_MOST_PLACES: Final = 1 << 18
"""Pairs of topic and segment: a store of 1 TiB has a thousand segments."""


def _groups(*keys: tuple[str, pa.DataType], most: int | None = None) -> GroupTable:
    schema = pa.schema([*keys, *((name, pa.int64()) for name in _TOTALS)])
    return GroupTable(schema, _TOTALS) if most is None else GroupTable(schema, _TOTALS, most)


class BillSums:
    """Bytes and messages in groups; see `store_core.answers.scanning.message_scan.Gathered`.

    Attributes
    ----------
    topics : GroupTable
        By topic, with the first and last store time.
    queues, tags, producers, days : GroupTable
        By topic and queue; topic and tags; host; days since 1970 by store time.
    places : GroupTable
        By topic and the physical offset at which a segment begins.
    segments : GroupTable
        By that offset.
    """

    def __init__(self) -> None:
        times = [("oldest", pa.int64()), ("newest", pa.int64())]  # microseconds: a record may be of the year 146138
        timed = pa.schema([_TOPIC, *((name, pa.int64()) for name in _TOTALS), *times])
        self.topics = GroupTable(timed, {**_TOTALS, "oldest": MIN, "newest": MAX})
        self.queues = _groups(_TOPIC, ("queue_id", pa.int32()))
        self.tags = _groups(_TOPIC, ("tags", pa.string()))
        self.producers = _groups(("host", pa.string()))
        self.days = _groups(("day", pa.int64()))
        self.places = _groups(_TOPIC, _SEGMENT, most=_MOST_PLACES)
        self.segments = _groups(_SEGMENT, most=_MOST_PLACES)

    def add(self, batch: pa.RecordBatch, segment: Segment) -> None:
        """Add messages of a segment: first by all keys at once, which leaves few rows for the tables."""
        totals = _totals_of(batch, segment.start_offset)
        for groups in vars(self).values():
            groups.add_totals(totals)

    def absorb(self, other: Self) -> None:
        """Add what was gathered of later ranges."""
        for name, groups in vars(self).items():
            groups.absorb(getattr(other, name))


def _totals_of(batch: pa.RecordBatch, start_offset: int) -> pa.Table:
    """Return the totals of messages by all keys, with the columns that the tables have."""
    stored = batch.column("store_timestamp").cast(pa.int64())
    columns = {
        "topic": batch.column("topic"),
        "queue_id": batch.column("queue_id"),
        "tags": batch.column("tags"),
        "host": batch.column("born_host"),
        "day": pa.array(utc_days(batch.column("store_timestamp"))),
        "bytes": batch.column("store_size"),
        "oldest": stored,
        "newest": stored,
    }
    rows = pa.table(columns)
    totals = GroupTable(rows.schema, {**_TOTALS, "oldest": MIN, "newest": MAX}).totals_of(rows)
    hosts = pc.replace_substring_regex(totals["host"], r":\d+$", "")
    start = pa.array([start_offset] * totals.num_rows, pa.int64())
    return totals.set_column(totals.column_names.index("host"), "host", hosts).append_column("segment", start)
