# SPDX-License-Identifier: Apache-2.0
"""What the keys of a group show: unique keys sent twice, and messages of a sharding key that are out of order."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

__all__ = ["KeyFindings", "order_findings", "unique_findings"]

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class KeyFindings:
    """What was found in some groups of keys.

    Attributes
    ----------
    duplicate_keys, duplicate_sends : int
        Unique keys that were sent more than once, and the sends after the first one.
    inversions : int
        Messages that were born before the one that precedes them in their queue, of the same sharding key.
    spread_keys : int
        Sharding keys whose messages are in several queues of a topic.
    duplicates, inverted, spread : list of dict
        The first of them, as rows of the report.
    """

    duplicate_keys: int = 0
    duplicate_sends: int = 0
    inversions: int = 0
    spread_keys: int = 0
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

    Parameters
    ----------
    tables : iterable of pyarrow.Table
        All rows of some unique keys.
    most : int
        Rows to return, of those with the most sends.
    """
    table = _joined(tables)
    hashes = table["hash"].to_numpy()
    ordered = np.sort(hashes)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    rows = table.filter(pa.array(np.isin(hashes, twice)))
    wanted: list[Any] = [([], "count_all"), ("physical_offset", "min"), ("physical_offset", "max")]
    counted = rows.group_by(["key"], use_threads=False).aggregate(wanted)
    counted = counted.rename_columns(["unique_key", "sends", "physical_offset", "last_physical_offset"])
    found = counted.filter(pc.greater(counted["sends"], 1))
    first = found.sort_by([("sends", "descending"), ("physical_offset", "ascending")]).slice(0, most)
    at = pc.index_in(first["physical_offset"], rows["physical_offset"])
    shown = first.append_column("topic", rows["topic"].cast(pa.string()).take(at))
    sends = pc.sum(found["sends"]).as_py() or 0
    return KeyFindings(found.num_rows, sends - found.num_rows, duplicates=shown.to_pylist())


def order_findings(tables: Iterable[pa.Table], most: int) -> KeyFindings:
    """Find messages of a sharding key that are out of order, and keys in several queues.

    Parameters
    ----------
    tables : iterable of pyarrow.Table
        All rows of some sharding keys.
    most : int
        Rows to return of each kind.
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
