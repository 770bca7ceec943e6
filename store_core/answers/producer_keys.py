# SPDX-License-Identifier: Apache-2.0
"""The keys of what producers sent: which messages are sends, their keys in pieces by hash, and what keys show."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.broker.topic_kind import TopicKind, kind_of_topic
from store_core.format.columnar.java_hashes import hash_codes
from store_core.format.columnar.property_columns import PropertyColumns
from store_core.format.layout import MessageSysFlag
from store_core.format.properties import REAL_TOPIC, UNIQ_KEY, PropertyParser

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt


SEND_COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "store_timestamp",
    "born_timestamp",
    "born_host",
    "reconsume_times",
    "sys_flag",
    "properties_string",
)
"""Columns that batches need."""

_END: Final = pa.scalar(int(MessageSysFlag.TRANSACTION_COMMIT_TYPE), pa.int32())
"""The bit that commits and rollbacks have: records that end a transaction, and are copies of its half message."""

_CHECKED: Final = "TRANSACTION_CHECK_TIMES"
_SHARDING_KEY: Final = "__SHARDINGKEY"
_WAITING: Final = frozenset((TopicKind.SCHEDULE, TopicKind.TIMER, TopicKind.HALF))
"""Topics where a message that a producer sent waits first, with its own topic in REAL_TOPIC."""

_SENT: Final = frozenset((TopicKind.APPLICATION, TopicKind.TRACE, *_WAITING))


@dataclass(frozen=True, slots=True)
class Sends:
    """The sends of a batch.

    A copy has its original's times and keys, so it would look like a late or a second send: a retry or dead letter, a
    delayed message that was delivered, a transactional one that was committed or asked about.

    * `unique_keys`, `sharding_keys`: Of each row; null without. The unique keys are those that producers got, as of
      column ``uniq_msg_id``: the messages of a batch have the batch's in common.
    """

    rows: pa.Table  # columns of `SEND_COLUMNS`
    unique_keys: pa.StringArray
    sharding_keys: pa.StringArray

    @classmethod
    def of(cls, batch: pa.RecordBatch, parser: PropertyParser) -> Self:
        """Select the sends of a batch."""
        properties = PropertyColumns(batch.column("properties_string"), parser)
        topics = batch.column("topic").dictionary_encode()
        kinds = [kind_of_topic(topic) for topic in topics.dictionary.to_pylist()]
        is_copied = pc.or_(properties.value(REAL_TOPIC).is_valid(), properties.value(_CHECKED).is_valid())
        is_waiting = pc.and_(_of_kinds(topics, kinds, _WAITING), properties.value(_CHECKED).is_null())
        is_first = pc.and_(pc.or_(is_waiting, pc.invert(is_copied)), pc.equal(batch.column("reconsume_times"), 0))
        ends = pc.equal(pc.bit_wise_and(batch.column("sys_flag"), _END), _END)  # 5.5: without REAL_TOPIC
        mask = pc.and_(pc.and_(is_first, pc.invert(ends)), _of_kinds(topics, kinds, _SENT))
        keys = (properties.first(UNIQ_KEY), properties.value(_SHARDING_KEY))
        rows = pa.table([batch.column(name) for name in SEND_COLUMNS], list(SEND_COLUMNS))
        if not pc.all(mask).as_py():
            return cls(rows.filter(mask), *(each.filter(mask) for each in keys))
        return cls(rows, *keys)


def _of_kinds(topics: pa.DictionaryArray, kinds: list[TopicKind], chosen: frozenset[TopicKind]) -> pa.BooleanArray:
    is_chosen = np.array([kind in chosen for kind in kinds], np.bool_)
    return pa.array(is_chosen[topics.indices.to_numpy()])


_TOPIC: Final = pa.dictionary(pa.int32(), pa.string())
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("hash", pa.int32()),
        ("topic", _TOPIC),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("born", pa.int64()),
    ]
)
_OF_UNIQUE: Final = ("key", "hash", "topic", "physical_offset")
"""What is kept of a unique key: there is one in nearly each message."""


class KeyPieces:
    """Collects the keys of a part of the log.

    * `unique`, `sharding`: Unique keys, and sharding keys with their places in queues.
    """

    def __init__(self) -> None:
        self.unique: list[pa.Table] = []
        self.sharding: list[pa.Table] = []

    def add(self, sends: Sends) -> None:
        """Add the keys of sends; a send without one has no row."""
        self.unique.append(_table(sends.rows, sends.unique_keys, _OF_UNIQUE))
        if sends.sharding_keys.null_count < len(sends.sharding_keys):
            self.sharding.append(_table(sends.rows, sends.sharding_keys, _SCHEMA.names))

    def divided(self, groups: int) -> Iterator[tuple[int, str, pa.Table]]:
        """Yield the number of a group, whether its keys are ``unique`` or ``sharding``, and its rows."""
        for kind, tables in (("sharding", self.sharding), ("unique", self.unique)):
            if not tables:
                continue
            table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
            group = table["hash"].to_numpy().view(np.uint32) % np.uint32(groups)
            for number in range(groups):
                rows = table if groups == 1 else table.filter(pa.array(group == number))
                if rows.num_rows:
                    yield number, kind, rows


def _table(rows: pa.Table, keys: pa.StringArray, names: tuple[str, ...] | list[str]) -> pa.Table:
    if keys.null_count:
        mask = keys.is_valid()
        rows, keys = rows.filter(mask), keys.filter(mask)
    columns = {
        "key": keys,
        "hash": pa.array(hash_codes(keys)),
        "topic": rows["topic"].combine_chunks().dictionary_encode(),
        "born": rows["born_timestamp"].cast(pa.int64()),
    }
    return pa.table([columns.get(name, rows[name] if name in rows.column_names else None) for name in names], names)


def from_bytes(data: bytes) -> pa.Table:
    """Return the table that `store_core.store.parts.packed` made bytes of."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class KeyFindings:
    """What was found in some groups of keys.

    * `duplicate_keys`, `duplicate_sends`: Unique keys that were sent more than once, and the sends after the first one.
    * `duplicates`, `inverted`, `spread`: The first of them, as rows of the report.
    """

    duplicate_keys: int = 0
    duplicate_sends: int = 0
    inversions: int = 0
    """Messages that were born before the one that precedes them in their queue, of the same sharding key."""
    spread_keys: int = 0  # sharding keys whose messages are in several queues of a topic
    duplicates: Rows = field(default_factory=list)
    inverted: Rows = field(default_factory=list)
    spread: Rows = field(default_factory=list)

    def joined(self, other: KeyFindings, most: int) -> KeyFindings:
        """Return the findings of other groups as well, with at most so many rows of each kind."""
        return KeyFindings(
            self.duplicate_keys + other.duplicate_keys,
            self.duplicate_sends + other.duplicate_sends,
            self.inversions + other.inversions,
            self.spread_keys + other.spread_keys,
            _first([*self.duplicates, *other.duplicates], ("sends",), most),
            _first([*self.inverted, *other.inverted], ("milliseconds",), most),
            _first([*self.spread, *other.spread], ("queues",), most),
        )


def _first(rows: Rows, weights: tuple[str, ...], most: int) -> Rows:
    """Return the rows with the largest weight; those of one weight as they are in the log."""
    in_log = sorted(rows, key=itemgetter("physical_offset"))
    return sorted(in_log, key=itemgetter(*weights), reverse=True)[:most]


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def unique_findings(tables: Iterable[pa.Table], most: int) -> KeyFindings:
    """Find the keys that occur more than once; exactly, since hashes only tell which can't.

    * `most`: Rows to return, of those with the most sends.
    """
    table = _joined(tables)
    hashes = table["hash"].to_numpy()
    ordered = np.sort(hashes)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    rows = table.filter(pa.array(np.isin(hashes, twice)))
    aggregates: list[Any] = [([], "count_all"), ("physical_offset", "min"), ("physical_offset", "max")]
    counted = rows.group_by(["key"], use_threads=False).aggregate(aggregates)
    counted = counted.rename_columns(["unique_key", "sends", "physical_offset", "last_physical_offset"])
    found = counted.filter(pc.greater(counted["sends"], 1))
    first = found.sort_by([("sends", "descending"), ("physical_offset", "ascending")]).slice(0, most)
    at = pc.index_in(first["physical_offset"], rows["physical_offset"])
    shown = first.append_column("topic", rows["topic"].cast(pa.string()).take(at))
    sends = pc.sum(found["sends"]).as_py() or 0
    return KeyFindings(found.num_rows, sends - found.num_rows, duplicates=shown.to_pylist())


def order_findings(tables: Iterable[pa.Table], most: int) -> KeyFindings:
    """Find messages of a sharding key that are out of order, and keys in several queues.

    * `most`: Rows to return of each kind.
    """
    table = _joined(tables)
    key = table["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    topic = table["topic"].combine_chunks().indices.to_numpy()
    queue, place = table["queue_id"].to_numpy(), table["queue_offset"].to_numpy()
    order = np.lexsort((place, queue, key, topic))
    is_same_key = _equal_neighbours(key[order]) & _equal_neighbours(topic[order])
    is_same_queue = is_same_key & _equal_neighbours(queue[order])
    born = table["born"].to_numpy()[order]
    late = np.flatnonzero(is_same_queue & (born[1:] < born[:-1]))
    longest = late[np.argsort(-(born[late] - born[late + 1]), kind="stable")][:most]
    inverted = _shown(table, order[longest + 1])
    for row, at in zip(inverted, longest.tolist(), strict=True):
        row["milliseconds"] = int(born[at] - born[at + 1]) // 1000
    changed = np.flatnonzero(is_same_key & ~is_same_queue)
    heads = np.concatenate([[0], np.flatnonzero(~is_same_key) + 1]) if order.size else np.empty(0, np.int64)
    owners, counts = np.unique(np.searchsorted(heads, changed, "right") - 1, return_counts=True)
    widest = np.argsort(-counts, kind="stable")[:most]
    spread = _shown(table, order[heads[owners[widest]]])
    for row, count in zip(spread, counts[widest].tolist(), strict=True):
        row["queues"] = count + 1
    return KeyFindings(inversions=late.size, spread_keys=owners.size, inverted=inverted, spread=spread)


def _equal_neighbours(values: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    return np.asarray(values[1:] == values[:-1], np.bool_)


def _shown(table: pa.Table, rows: npt.NDArray[np.int64]) -> Rows:
    names = ["topic", "queue_id", "queue_offset", "physical_offset"]
    taken = table.select([*names, "key"]).take(pa.array(rows, pa.int64()))
    return [{"sharding_key": row.pop("key"), **row} for row in taken.to_pylist()]
