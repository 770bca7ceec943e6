# SPDX-License-Identifier: Apache-2.0
"""Plots for operators, the same as those of reports: drawn by jinja2, which the extra ``plots`` installs.

Each function returns `store_core.answers.plots.Plots`, which a notebook shows as the value of a cell, in the colours of
a light or a dark page; ``Path("rates.html").write_text(plots.message_rates(log).to_html())`` saves it.

    log = spark.read.format("commitlog").option("columns", "topic,store_timestamp,store_size").load(store)
    plots.message_rates(log)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.stream import bytes_behind
from store_core.answers.plots import Bar, Bars, HeatMap, HeatRow, Line, Plots, Series, Tone
from store_core.errors import InvalidOptionError, StoreNotFoundError
from store_core.format.columns import iso_time
from store_core.format.words import counted

if TYPE_CHECKING:
    import os

    import numpy.typing as npt
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress


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


__all__ = ["bars", "message_rates", "queue_depth", "segment_map", "store_latency", "stream_progress"]

_MOST_ROWS: Final = 20
_WHOLE: Final = 100
_MINUTE: Final = 60


def message_rates(messages: Messages, bin_seconds: int | None = None) -> Plots:
    """Draw messages and bytes per minute by topic, over store time.

    Parameters
    ----------
    messages : DataFrame, pyarrow.Table or pyarrow.RecordBatchReader
        With columns `topic`, `store_timestamp` and `store_size`.
    bin_seconds : int, optional
        By default such that there are at most 120 bins; a DataFrame is then read twice.

    Returns
    -------
    Plots

    Raises
    ------
    InvalidOptionError
        If a column is missing, or there is no message.
    """
    rows, seconds = binned(messages, bin_seconds, ("topic",), {"store_size": "sum"})
    bins = rows["bin"].to_numpy()
    topics, (counts, sizes) = by_topic(rows, bins - bins.min(), "count", "store_size")
    ends = _ends(bins, seconds)

    def series(title: str, values: npt.NDArray[np.int64], words: Callable[[int], str]) -> Series:
        lines = (
            Line(
                topic,
                (each * _MINUTE / seconds).tolist(),
                f"{words(int(each.sum()))}, up to {si(float(each.max()) * _MINUTE / seconds)}/min",
            )
            for topic, each in _largest(topics, values)
        )
        return Series(title, ends, tuple(lines))

    of_messages = series("Messages per minute", counts, lambda total: counted(total, "message"))
    return Plots((of_messages, series("Bytes per minute", sizes, lambda total: si(total, "B"))))


def _ends(bins: npt.NDArray[np.int64], seconds: int) -> tuple[str, str]:
    """Return when the first of some bins begins, and when the last ends."""
    return iso_time(int(bins.min()) * seconds * 1000), iso_time((int(bins.max()) + 1) * seconds * 1000)


def _largest(topics: Sequence[str], values: npt.NDArray[np.int64]) -> Iterable[tuple[str, npt.NDArray[np.int64]]]:
    """Return the values by topic; of too many topics the smallest are combined."""
    if len(topics) <= _MOST_ROWS:
        return zip(topics, values, strict=True)
    most = _MOST_ROWS - 1
    return [
        *zip(topics[:most], values[:most], strict=True),
        (f"{len(topics) - most} others", values[most:].sum(axis=0)),
    ]


def segment_map(messages: Messages) -> Plots:
    """Draw the bytes of each topic in each segment of the log: one row per topic, one column per file.

    Parameters
    ----------
    messages : DataFrame, pyarrow.Table or pyarrow.RecordBatchReader
        With columns `topic`, `segment` and `store_size`; with `store_timestamp` the map also shows when the first and
        the last file begin.

    Returns
    -------
    Plots

    Raises
    ------
    InvalidOptionError
        If a column is missing, or there is no message.
    """
    is_timed = "store_timestamp" in column_names(messages)
    rows = grouped(
        messages, ("topic", "segment"), {"store_size": "sum"} | ({"store_timestamp": "min"} if is_timed else {})
    )
    starts = np.array([int(name) for name in rows["segment"].to_pylist()], np.int64)
    offsets, columns = np.unique(starts, return_inverse=True)
    topics, (sizes,) = by_topic(rows, columns, "store_size")
    first, last = map(binary_bytes, (int(offsets[0]), int(offsets[-1])))
    if is_timed:
        times = np.full(len(offsets), np.iinfo(np.int64).max)
        np.minimum.at(times, columns, rows["store_timestamp"].to_numpy())
        first, last = f"{first}, {iso_time(int(times[0]))}", f"{last}, {iso_time(int(times[-1]))}"
    heat = []
    for topic, each in _largest(topics, sizes):
        label = f"{si(int(each.sum()), 'B')} in {counted(int((each > 0).sum()), 'segment')}"
        heat.append(HeatRow(topic, tuple(each.tolist()), label))
    ends = (f"from {first}", f"last from {last}")
    return Plots((HeatMap("Bytes by topic and segment", ends, tuple(heat), tone=Tone.MAIN),))


def store_latency(
    messages: Messages, percentiles: Sequence[float] = (50, 95, 99), bin_seconds: int | None = None
) -> Plots:
    """Draw how long messages took from the producer's clock to the log, as percentiles over store time.

    Delayed and retried messages keep the time when they were born: leave out topics with `%` in their names,
    `SCHEDULE_TOPIC_XXXX`, and the topics that delayed messages are delivered to.

    Parameters
    ----------
    messages : DataFrame, pyarrow.Table or pyarrow.RecordBatchReader
        With columns `born_timestamp` and `store_timestamp`.
    percentiles : sequence of float
        In ascending order, from 0 to 100.
    bin_seconds : int, optional
        By default such that there are at most 120 bins; a DataFrame is then read twice.

    Returns
    -------
    Plots
        On a scale of logarithms. Negative times, which result from clocks that differ, are drawn as 0.

    Raises
    ------
    InvalidOptionError
        If a column is missing, there is no message, or the percentiles are invalid.
    """
    asked = tuple(percentiles)
    if not asked or asked != tuple(sorted(asked)) or asked[0] < 0 or asked[-1] > _WHOLE:
        raise InvalidOptionError(f"percentiles are {asked}, expected some from 0 to 100, in ascending order")
    rows, seconds = binned(messages, bin_seconds, (), {"latency": "percentile"}, asked)
    bins, found = rows["bin"].to_numpy(), np.array(rows["latency"].to_pylist(), np.float64).T
    values = np.zeros((len(asked), int(np.ptp(bins)) + 1))
    values[:, bins - bins.min()] = found
    lines = []
    for percentile, line, measured in zip(asked, values, found, strict=True):
        label = f"mostly {duration(float(np.median(measured)))}, up to {duration(float(measured.max()))}"
        lines.append(Line(f"p{percentile:g}", line.tolist(), label))
    title = f"Time from born to stored, percentiles of each {duration(seconds * 1000)}"
    return Plots((Series(title, _ends(bins, seconds), tuple(lines), is_log=True),))


def queue_depth(store: str | os.PathLike[str]) -> Plots:
    """Draw how many messages each queue has, and how many of them each consumer group has not consumed.

    Consumer groups are those in ``config/consumerOffset.json``, as of `store_core.answers.lag`; without that file there
    are none. Nothing is written or locked.

    Parameters
    ----------
    store : path
        The store root.

    Returns
    -------
    Plots
        A bar for each topic; then one for each group, with the age of its oldest message when the store's last message
        was stored.

    Raises
    ------
    InvalidOptionError
        If the store has no queue.
    StoreError
        If the store can't be read.
    """
    from store_core.answers.store_lag import lag  # noqa: PLC0415 -- as below
    from store_core.snapshot.store import Store  # noqa: PLC0415 -- other plots need neither

    depths: dict[str, list[int]] = {}
    with Store.open(store) as opened:
        for topic, queue_id in opened.queues.names():
            bounds = opened.queues[topic, queue_id].bounds
            depths.setdefault(topic, []).append(bounds.max_offset - bounds.min_offset)
    if not depths:
        raise InvalidOptionError(f"there is no consume queue in {store}; commitlog rebuild queues creates them")
    largest = sorted(depths, key=lambda topic: (-sum(depths[topic]), topic))
    more = counted(len(largest) - _MOST_ROWS, "more topic") if len(largest) > _MOST_ROWS else ""
    shown = (
        Bar(topic, sum(depths[topic]), Tone.MAIN, f"{sum(depths[topic]):,} in {counted(len(depths[topic]), 'queue')}")
        for topic in largest[:_MOST_ROWS]
    )
    queues = Bars("Messages in the queues", tuple(shown), more)
    try:
        behind = lag(store, now="-0s").plots
    except StoreNotFoundError:
        behind = (Bars("Messages not consumed, by group", (), "no group has committed an offset"),)
    return Plots((queues, *behind))


def stream_progress(progress: Sequence[StreamingQueryProgress | Mapping[str, Any]]) -> Plots:
    """Draw the rate of a streaming query, and the bytes of the log that it has not read yet, batch by batch.

    Parameters
    ----------
    progress : sequence of StreamingQueryProgress or mapping
        ``query.recentProgress``, or those of several runs one after the other. Triggers without rows are left out.

    Returns
    -------
    Plots
        A column for each batch. PySpark reports where the log ends since 4.2.

    Raises
    ------
    InvalidOptionError
        If no batch has rows.
    """
    known = [json.loads(each.json) if hasattr(each, "json") else dict(each) for each in progress if each]
    batches = [each for each in known if each.get("numInputRows")]
    if not batches:
        raise InvalidOptionError(
            f"expected the progress of a query that read rows, found {counted(len(known), 'report')}, none with rows"
        )
    ends = ("batch 1", str(len(batches)))
    speeds = [each["processedRowsPerSecond"] for each in batches]
    distances = [distance for distance in map(bytes_behind, batches) if distance is not None]
    behind = f"{si(distances[-1], 'B')} at the end" if distances else "not reported by this PySpark"
    return Plots(
        (
            Series("Rows per second", ends, (Line("rate", speeds, f"up to {si(max(speeds))}", Tone.MAIN),)),
            Series("Bytes behind", ends, (Line("distance", distances, behind, Tone.WARNING),)),
        )
    )


def bars(
    values: Mapping[str, float | Sequence[float]], title: str, unit: str = "B/s", *, compared_with: Collection[str] = ()
) -> Plots:
    """Draw a bar for each quantity, which was measured once or in several rounds.

    Parameters
    ----------
    values : mapping of str to float, or to a sequence of float
        Quantities by name, drawn in this order. With several rounds the bar shows the median, and the label the range
        from the smallest to the largest: where two ranges overlap, the difference may be noise.
    title : str
    unit : str
        Unit of the quantities; written with SI prefixes.
    compared_with : collection of str
        Names of the quantities that the others are compared with; their bars are grey.

    Returns
    -------
    Plots

    Raises
    ------
    InvalidOptionError
        If there is no quantity, or one is negative, or `compared_with` has a name that is not in `values`.
    """
    rounds = {label: list(value) if isinstance(value, Sequence) else [value] for label, value in values.items()}
    if not rounds or not all(rounds.values()) or min(map(min, rounds.values())) < 0:
        raise InvalidOptionError(f"values: expected one or more quantities of 0 or more, found {dict(values)}")
    if not rounds.keys() >= set(compared_with):
        raise InvalidOptionError(f"compared_with: expected names among {[*rounds]}, found {[*compared_with]}")
    drawn = (
        Bar(name, median(measured), Tone.PLAIN if name in compared_with else Tone.MAIN, _measured(measured, unit))
        for name, measured in rounds.items()
    )
    return Plots((Bars(title, tuple(drawn)),))


def _measured(measured: Sequence[float], unit: str) -> str:
    text = si(median(measured), unit)
    return f"{text} ({si(min(measured))} to {si(max(measured))})" if min(measured) < max(measured) else text


def si(value: float, unit: str = "") -> str:
    """Return a number with at most three digits and an SI prefix.

    >>> si(1234, "B/s"), si(950_000), si(0), si(7.5)
    ('1.23 kB/s', '950k', '0', '7.5')
    """
    prefixes = ("", "k", "M", "G", "T", "P")
    place = 0
    while abs(value) >= 999.5 and place < len(prefixes) - 1:  # noqa: PLR2004 -- what would be written as 1000
        value /= 1000
        place += 1
    return f"{value:.3g}{' ' if unit else ''}{prefixes[place]}{unit}"


def binary_bytes(value: int) -> str:
    """Return an offset or a size in binary units.

    >>> binary_bytes(0), binary_bytes(1 << 18), binary_bytes(3 << 29)
    ('0', '256 KiB', '1.5 GiB')
    """
    if value == 0:
        return "0"
    place = min((value.bit_length() - 1) // 10, 5)
    return f"{value / (1 << 10 * place):.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[place]}"


_DURATIONS: Final = ((2 * 86_400_000, 86_400_000, "days"), (2 * 3_600_000, 3_600_000, "h"), (120_000, 60_000, "min"))


def duration(milliseconds: float) -> str:
    """Return a duration with the unit that fits.

    >>> duration(3), duration(1500), duration(250_000), duration(7_200_000), duration(3 * 86_400_000)
    ('3 ms', '1.5 s', '4 min', '2 h', '3 days')
    """
    for least, size, name in _DURATIONS:
        if milliseconds >= least:
            return f"{milliseconds / size:.0f} {name}"
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"  # noqa: PLR2004 -- a second
