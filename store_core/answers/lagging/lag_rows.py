# SPDX-License-Identifier: Apache-2.0
"""The rows of the report of how far groups are behind: queues, and their totals."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from store_core.format.table_time import table_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from store_core.answers.lagging.queue_lag import QueueLag

__all__ = ["WRONG_STATES", "group_rows", "largest_first", "queue_row", "summed_rows"]

WRONG_STATES: Final = ("below_min", "beyond_end", "no_queue")
"""Of committed offsets that are not within their queue."""


def queue_row(row: QueueLag, now: int | None) -> dict[str, Any]:
    """Return the row of a group and a queue; ages are counted from `now`, ms."""
    return {
        "consumer_group": row.asked.group,
        "topic": row.topic,
        "queue_id": row.queue_id,
        "kind": row.asked.kind.name.lower(),
        "state": row.state,
        "committed_offset": row.asked.committed,
        "min_offset": row.min_offset,
        "max_offset": row.max_offset,
        "messages": row.messages,
        "bytes": row.size,
        "newer_messages": row.newer,
        "oldest_offset": None if row.first is None else row.first[0],
        "oldest_store_timestamp": table_time(row.oldest),
        "age_ms": None if row.oldest is None or now is None else now - row.oldest,
    }


def summed_rows(rows: Sequence[dict[str, Any]], names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return totals of rows with the same values of some columns; what is unknown of any of them is null."""
    together: defaultdict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        together[tuple(row[name] for name in names)].append(row)
    return largest_first(
        dict(zip(names, key, strict=True)) | {"queues": len(some)} | _totals(some) for key, some in together.items()
    )


def _totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    oldest = [row for row in rows if row["oldest_store_timestamp"] is not None]
    first = min(oldest, key=lambda row: row["oldest_store_timestamp"], default={})
    counts = {name: [row[name] for row in rows if row[name] is not None] for name in ("messages", "bytes")}
    sums = {name: sum(values) if values else None for name, values in counts.items()}
    sums["newer_messages"] = sum(row["newer_messages"] for row in rows)
    return {**sums, **{name: first.get(name) for name in ("oldest_store_timestamp", "age_ms")}}


def group_rows(rows: Sequence[dict[str, Any]], dead: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return a row for each group of some rows of queues; `dead` has how many dead letters a group has."""
    wrong: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        wrong[row["consumer_group"]] += row["state"] in WRONG_STATES
    return [
        row
        | {"wrong_offsets": wrong[row["consumer_group"]], "dead_letters": dead.get(row["consumer_group"], 0)}
        | {"is_unknown": False}
        for row in summed_rows(rows, ("consumer_group",))
    ]


def largest_first(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows by how many messages they have, then by name."""
    names = ("consumer_group", "topic", "queue_id", "kind")
    return sorted(rows, key=lambda row: (-(row["messages"] or 0), *(row[name] for name in names if name in row)))
