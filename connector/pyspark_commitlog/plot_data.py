# SPDX-License-Identifier: Apache-2.0
"""Messages in groups, for plots: counted by Spark in a DataFrame, or by Arrow in rows of `store_core.read_messages`."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt
    from pyspark.sql import Column, DataFrame


Messages: TypeAlias = "DataFrame | pa.Table | pa.RecordBatchReader"
"""Rows of the view `messages`, with at least the columns that a function lists."""

_BIN_SECONDS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
_MOST_BINS: Final = 120


def column_names(messages: Messages) -> frozenset[str]:
    """Return the names of the columns."""
    if not hasattr(messages, "schema"):
        raise InvalidOptionError(f"expected messages, as of spark.read or read_messages(store), found {messages!r:.99}")
    return frozenset(messages.schema.names)


def _require(messages: Messages, columns: Iterable[str]) -> None:
    missing = sorted(set(columns) - column_names(messages))
    if missing:
        raise InvalidOptionError(
            f"the plot needs the columns {', '.join(missing)}, which are missing; "
            f"name them, too: .option('columns', '...,{','.join(missing)}')"
        )


def binned(
    messages: Messages,
    bin_seconds: int | None,
    keys: tuple[str, ...],
    totals: dict[str, str],
    percentiles: Sequence[float] = (),
) -> tuple[pa.Table, int]:
    """Group by keys and time; return the rows, with numbers of bins since the epoch, and the seconds per bin."""
    if isinstance(messages, pa.RecordBatchReader):
        messages = messages.read_all()
    needed = {"born_timestamp" if name == "latency" else name for name in totals}
    _require(messages, {*keys, *needed, "store_timestamp"})
    if bin_seconds is None:
        span = grouped(messages, (), {"store_timestamp": "span"})["store_timestamp"][0].as_py() or 0
        bin_seconds = next(
            (seconds for seconds in _BIN_SECONDS if span < seconds * 1000 * _MOST_BINS), _BIN_SECONDS[-1]
        )
    if bin_seconds < 1:
        raise InvalidOptionError(f"bin_seconds is {bin_seconds}, expected 1 or more")
    return grouped(messages, (*keys, "bin"), totals, bin_seconds, percentiles), bin_seconds


def grouped(
    messages: Messages,
    keys: tuple[str, ...],
    totals: dict[str, str],
    bin_seconds: int = 1,
    percentiles: Sequence[float] = (),
) -> pa.Table:
    """Return one row per group: its keys, `count`, and the totals under the names of their columns; times in ms."""
    _require(messages, {*keys, *totals} - {"bin", "latency"})
    if isinstance(messages, pa.RecordBatchReader):
        messages = messages.read_all()
    by = _by_arrow if isinstance(messages, pa.Table) else _by_spark
    rows = by(cast("Any", messages), keys, totals, bin_seconds * 1000, percentiles)
    if not rows.num_rows or rows["count"][0].as_py() == 0:
        raise InvalidOptionError("there is no message to draw; is the filter too narrow?")
    return rows


def _by_spark(
    messages: DataFrame,
    keys: tuple[str, ...],
    totals: dict[str, str],
    bin_ms: int,
    percentiles: Sequence[float],
) -> pa.Table:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 -- not needed with Arrow

    columns = {name: messages[name] for name in messages.columns}
    for name in ("store_timestamp", "born_timestamp"):
        if name in columns:
            columns[name] = F.unix_millis(columns[name])
    if "bin" in keys:
        columns["bin"] = F.floor(columns["store_timestamp"] / bin_ms)
    if "latency" in totals:
        columns["latency"] = columns["store_timestamp"] - columns["born_timestamp"]
    used = messages.select(*(columns[name].alias(name) for name in dict.fromkeys((*keys, *totals))))
    made: dict[str, Callable[[str], Column]] = {
        "sum": F.sum,
        "min": F.min,
        "span": lambda name: F.max(name) - F.min(name),
        "percentile": lambda name: F.percentile(name, [value / 100 for value in percentiles]),  # exact, as numpy's
    }
    aggregates = [F.count("*").alias("count"), *(made[kind](name).alias(name) for name, kind in totals.items())]
    rows = used.dropna().groupBy(*keys).agg(*aggregates).collect()
    names = (*keys, "count", *totals)
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})


def _by_arrow(
    messages: pa.Table,
    keys: tuple[str, ...],
    totals: dict[str, str],
    bin_ms: int,
    percentiles: Sequence[float],
) -> pa.Table:
    needed = {*keys, *totals, "store_timestamp"} | ({"born_timestamp"} if "latency" in totals else set())
    whole = messages.select([name for name in messages.column_names if name in needed]).drop_null()
    columns = {name: whole[name] for name in whole.column_names}
    for name in ("store_timestamp", "born_timestamp"):
        if name in columns:
            columns[name] = columns[name].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    if "bin" in keys:
        columns["bin"] = pa.chunked_array([columns["store_timestamp"].to_numpy() // bin_ms])
    if "latency" in totals:
        columns["latency"] = pc.subtract(columns["store_timestamp"], columns["born_timestamp"])
    used = pa.table({name: columns[name] for name in dict.fromkeys((*keys, *totals))})
    (name, kind), *_ = totals.items()
    if kind == "percentile":
        return _arrow_percentiles(used, name, percentiles)
    if kind == "span":
        span = pc.min_max(used[name])
        width = None if not span["max"].is_valid else span["max"].as_py() - span["min"].as_py()
        return pa.table({"count": [used.num_rows], name: pa.array([width], pa.int64())})
    rows = used.group_by(list(keys)).aggregate([([], "count_all"), *totals.items()])
    return rows.select([*keys, "count_all", *(f"{name}_{kind}" for name, kind in totals.items())]).rename_columns(
        [*keys, "count", *totals]
    )


def _arrow_percentiles(used: pa.Table, name: str, percentiles: Sequence[float]) -> pa.Table:
    used = used.sort_by("bin")
    bins, starts = np.unique(used["bin"].to_numpy(), return_index=True)
    values = used[name].to_numpy()
    pieces = [values[begin:end] for begin, end in pairwise([*starts.tolist(), len(values)])]
    return pa.table(
        {
            "bin": bins,
            "count": [len(piece) for piece in pieces],
            name: pa.array([np.percentile(piece, percentiles).tolist() for piece in pieces], pa.list_(pa.float64())),
        }
    )


def by_topic(
    rows: pa.Table, columns: npt.NDArray[np.int64], *totals: str
) -> tuple[tuple[str, ...], list[npt.NDArray[np.int64]]]:
    """Return the topics of groups, those with the most of the first total first, and each total as a matrix.

    * `columns`: int64, shape (groups,): the column of each group; its row is its topic's.
    """
    summed: dict[str, int] = {}
    names = rows["topic"].to_pylist()
    for topic, weight in zip(names, rows[totals[0]].to_pylist(), strict=True):
        summed[topic] = summed.get(topic, 0) + weight
    topics = tuple(sorted(summed, key=lambda topic: (-summed[topic], topic)))
    row_of = {topic: number for number, topic in enumerate(topics)}
    place = [row_of[topic] for topic in names], columns
    matrices = [np.zeros((len(topics), int(columns.max()) + 1), np.int64) for _ in totals]
    for matrix, name in zip(matrices, totals, strict=True):
        matrix[place] = rows[name].to_numpy()
    return topics, matrices
