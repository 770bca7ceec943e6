# SPDX-License-Identifier: Apache-2.0
"""What plots show.

They come from a DataFrame of ``format("commitlog")``, where Spark does the counting, or from an Arrow table of
`store_core.read_messages`.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages and bytes of each topic over time; topics with the most messages come first.

    * `messages`, `sizes`: Records, and bytes of records, whose store time is in the bin.
    """

    topics: tuple[str, ...]
    begins: npt.NDArray[np.int64]  # when each bin begins, ms since the epoch
    bin_seconds: int
    messages: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SegmentBytes:
    """The bytes of each topic in each segment; topics with the most bytes come first."""

    topics: tuple[str, ...]
    offsets: npt.NDArray[np.int64]  # where each segment begins, in bytes of the log
    sizes: npt.NDArray[np.int64]  # bytes of records
    first_times: npt.NDArray[np.int64] | None
    """Store time of each segment's first record, ms; None if the rows had no such column."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long messages took from the producer to the log."""

    begins: npt.NDArray[np.int64]  # when each bin begins, ms since the epoch; bins without a message are left out
    bin_seconds: int
    percentiles: tuple[float, ...]
    values: npt.NDArray[np.float64]  # milliseconds; negative where the producer's clock is ahead of the broker's


def rates(messages: Messages, bin_seconds: int | None = None) -> Rates:
    """Count messages and bytes by topic and time.

    * `messages`: With columns `topic`, `store_timestamp` and `store_size`.
    * `bin_seconds`: By default such that there are at most 120 bins; a DataFrame is then read twice.
    """
    rows, seconds = binned(messages, bin_seconds, ("topic",), {"store_size": "sum"})
    topics, place = _ranked(rows["topic"], rows["count"])
    numbers = rows["bin"].to_numpy()
    first, last = int(numbers.min()), int(numbers.max())
    begins, column = np.arange(first, last + 1, dtype=np.int64) * (seconds * 1000), numbers - first
    counts, sizes = (np.zeros((len(topics), len(begins)), np.int64) for _ in range(2))
    counts[place, column] = rows["count"].to_numpy()
    sizes[place, column] = rows["store_size"].to_numpy()
    return Rates(topics, begins, seconds, counts, sizes)


def segment_bytes(messages: Messages) -> SegmentBytes:
    """Count bytes by topic and segment.

    * `messages`: With columns `topic`, `segment` and `store_size`, and `store_timestamp` for the times of segments.
    """
    columns = column_names(messages)
    timed = "store_timestamp" in columns
    totals = {"store_size": "sum"} | ({"store_timestamp": "min"} if timed else {})
    rows = grouped(messages, ("topic", "segment"), totals)
    topics, place = _ranked(rows["topic"], rows["store_size"])
    starts = np.array([int(name) for name in rows["segment"].to_pylist()], np.int64)
    offsets, column = np.unique(starts, return_inverse=True)
    sizes = np.zeros((len(topics), len(offsets)), np.int64)
    sizes[place, column] = rows["store_size"].to_numpy()
    first_times = None
    if timed:
        first_times = np.full(len(offsets), np.iinfo(np.int64).max)
        np.minimum.at(first_times, column, rows["store_timestamp"].to_numpy())
    return SegmentBytes(topics, offsets, sizes, first_times)


def store_latencies(
    messages: Messages, percentiles: Sequence[float] = (50, 95, 99), bin_seconds: int | None = None
) -> Latencies:
    """Measure from `born_timestamp` to `store_timestamp`, by time.

    Delayed and retried messages keep the time when they were born, so leave out their topics first.

    * `messages`: With columns `born_timestamp` and `store_timestamp`.
    * `percentiles`: From 0 to 100; between two messages they are interpolated.
    * `bin_seconds`: By default such that there are at most 120 bins; a DataFrame is then read twice.
    """
    rows, seconds = binned(messages, bin_seconds, (), {"latency": "percentile"}, percentiles)
    order = np.argsort(rows["bin"].to_numpy())
    values = np.array(rows["latency"].to_pylist(), np.float64).reshape(-1, len(percentiles))
    begins = rows["bin"].to_numpy()[order] * (seconds * 1000)
    return Latencies(begins, seconds, tuple(percentiles), values[order].T)


def _ranked(topics: pa.ChunkedArray, weights: pa.ChunkedArray) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Order topics by weight, then by name; return them, and the index of each row's topic among them."""
    total: dict[str, int] = {}
    for topic, weight in zip(topics.to_pylist(), weights.to_pylist(), strict=True):
        total[topic] = total.get(topic, 0) + weight
    ranked = tuple(sorted(total, key=lambda topic: (-total[topic], topic)))
    place = {topic: number for number, topic in enumerate(ranked)}
    return ranked, np.array([place[topic] for topic in topics.to_pylist()], np.int64)
