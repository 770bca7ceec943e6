# SPDX-License-Identifier: Apache-2.0
"""The numbers that the plots show: few enough to draw, whatever the size of the store.

They come from a DataFrame of ``format("commitlog")``, where Spark does the counting, or from an Arrow table of
`store_core.read_messages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyspark_commitlog.plots.grouping import binned, column_names, grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from pyspark_commitlog.plots.grouping import Messages

__all__ = ["Latencies", "Rates", "SegmentBytes", "rates", "segment_bytes", "store_latencies"]


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages and bytes of each topic over time; topics with the most messages come first.

    Attributes
    ----------
    begins : int64 array, shape (bins,)
        When each bin begins, ms since the epoch.
    messages, sizes : int64 array, shape (topics, bins)
        Records, and bytes of records, whose store time is in the bin.
    """

    topics: tuple[str, ...]
    begins: npt.NDArray[np.int64]
    bin_seconds: int
    messages: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SegmentBytes:
    """The bytes of each topic in each segment; topics with the most bytes come first.

    Attributes
    ----------
    offsets : int64 array, shape (segments,)
        Where each segment begins, in bytes of the log.
    sizes : int64 array, shape (topics, segments)
        Bytes of records.
    first_times : int64 array, shape (segments,), optional
        Store time of each segment's first record, ms; None if the rows had no such column.
    """

    topics: tuple[str, ...]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    first_times: npt.NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long messages took from the producer to the log.

    Attributes
    ----------
    begins : int64 array, shape (bins,)
        When each bin begins, ms since the epoch; bins without a message are left out.
    values : float64 array, shape (percentiles, bins)
        Milliseconds; negative where the producer's clock is ahead of the broker's.
    """

    begins: npt.NDArray[np.int64]
    bin_seconds: int
    percentiles: tuple[float, ...]
    values: npt.NDArray[np.float64]


def rates(messages: Messages, bin_seconds: int | None = None) -> Rates:
    """Count messages and bytes by topic and time.

    Parameters
    ----------
    messages : DataFrame, Table or RecordBatchReader
        With columns `topic`, `store_timestamp` and `store_size`.
    bin_seconds : int, optional
        By default such that there are at most 120 bins; a DataFrame is then read twice.
    """
    rows, seconds = binned(messages, bin_seconds, ("topic",), {"store_size": "sum"})
    topics, place = _ranked(rows["topic"], rows["count"])
    begins, column = _time_axis(rows["bin"], seconds)
    counts, sizes = (np.zeros((len(topics), len(begins)), np.int64) for _ in range(2))
    counts[place, column] = rows["count"].to_numpy()
    sizes[place, column] = rows["store_size"].to_numpy()
    return Rates(topics, begins, seconds, counts, sizes)


def segment_bytes(messages: Messages) -> SegmentBytes:
    """Count bytes by topic and segment.

    Parameters
    ----------
    messages : DataFrame, Table or RecordBatchReader
        With columns `topic`, `segment` and `store_size`, and `store_timestamp` for the times of segments.
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

    Parameters
    ----------
    messages : DataFrame, Table or RecordBatchReader
        With columns `born_timestamp` and `store_timestamp`.
    percentiles : sequence of float
        From 0 to 100; between two messages they are interpolated.
    bin_seconds : int, optional
        By default such that there are at most 120 bins; a DataFrame is then read twice.
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


def _time_axis(bins: pa.ChunkedArray, seconds: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the begins of all bins from the first to the last, ms, and the index of each row's bin among them."""
    numbers = bins.to_numpy()
    first, last = int(numbers.min()), int(numbers.max())
    return np.arange(first, last + 1, dtype=np.int64) * (seconds * 1000), numbers - first
