# SPDX-License-Identifier: Apache-2.0
"""What is gathered of a part of the log about producers: sizes, clock skews, and the keys of their sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.producing.key_pieces import KeyPieces
from store_core.answers.producing.sends import SEND_COLUMNS, Sends
from store_core.answers.scanning.group_table import COUNT, MAX, MIN, GroupTable
from store_core.answers.scanning.log_buckets import buckets_of
from store_core.answers.scanning.message_scan import MessageScan, ScanCounts

if TYPE_CHECKING:
    from typing import Self

    from store_core.files.segment_source import Segment
    from store_core.format.properties import PropertyParser

__all__ = ["SendScan", "SendTotals"]

_MOST: Final = 1 << 18
"""Pairs of a topic, or a host, and a bucket."""

_MILLISECOND: Final = 1000
_TOTALS: Final = {"messages": COUNT, "least": MIN, "most": MAX}


def _by_bucket(name: str) -> GroupTable:
    longs = [(each, pa.int64()) for each in _TOTALS]
    return GroupTable(pa.schema([(name, pa.string()), ("bucket", pa.int32()), *longs]), _TOTALS, _MOST)


class SendTotals:
    """Totals of messages; see `store_core.answers.scanning.message_scan.Gathered`.

    Attributes
    ----------
    sizes : GroupTable
        Messages by topic and bucket of their size.
    skews : GroupTable
        Sends by host and bucket of the milliseconds from born to store time.
    keys : KeyPieces
        Of the part that was read; totals of several parts have none.
    sends, unique, sharding : int
        Sends, and how many of them have such a key.
    """

    def __init__(self, parser: PropertyParser) -> None:
        self._parser = parser
        self.sizes = _by_bucket("topic")
        self.skews = _by_bucket("host")
        self.keys = KeyPieces()
        self.sends = self.unique = self.sharding = 0

    def add(self, batch: pa.RecordBatch, _: Segment) -> None:
        """Add messages."""
        self._add_to(self.sizes, "topic", batch.column("topic"), batch.column("store_size").cast(pa.int64()))
        sends = Sends.of(batch, self._parser)
        if not sends.rows.num_rows:
            return
        times = (sends.rows[name].cast(pa.int64()) for name in ("store_timestamp", "born_timestamp"))
        skews = pc.divide(pc.subtract(*times), _MILLISECOND)
        self._add_to(self.skews, "host", sends.rows["born_host"], skews)
        self.keys.add(sends)
        self.sends += sends.rows.num_rows
        self.unique += len(sends.unique_keys) - sends.unique_keys.null_count
        self.sharding += len(sends.sharding_keys) - sends.sharding_keys.null_count

    def absorb(self, other: Self) -> None:
        """Add the totals of later ranges, without their keys."""
        self.sizes.absorb(other.sizes)
        self.skews.absorb(other.skews)
        self.sends += other.sends
        self.unique += other.unique
        self.sharding += other.sharding

    @staticmethod
    def _add_to(groups: GroupTable, name: str, names: pa.Array, values: pa.Array) -> None:
        buckets = buckets_of(values.to_numpy())
        totals = groups.totals_of(pa.table([names, buckets, values, values], [name, "bucket", "least", "most"]))
        if name == "host":
            totals = totals.set_column(0, name, pc.replace_substring_regex(totals[name], r":\d+$", ""))
        groups.add_totals(totals)


class SendScan(MessageScan[SendTotals, tuple[SendTotals, ScanCounts]]):
    """Reads what there is to gather."""

    COLUMNS: ClassVar = SEND_COLUMNS

    def nothing(self) -> SendTotals:
        """Return empty totals."""
        return SendTotals(self.options.property_parser)

    def report(self, found: SendTotals, counts: ScanCounts) -> tuple[SendTotals, ScanCounts]:
        """Return both."""
        return found, counts
