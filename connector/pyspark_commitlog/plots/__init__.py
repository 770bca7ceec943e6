# SPDX-License-Identifier: Apache-2.0
"""Plots for operators, drawn by matplotlib, which the extra ``plots`` installs.

Each function returns a `matplotlib.figure.Figure` that is readable on light and dark pages: a notebook shows it as the
value of a cell, and ``figure.savefig("rates.png")`` saves it.

    log = spark.read.format("commitlog").option("columns", "topic,store_timestamp,store_size").load(store)
    plots.message_rates(log)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np

from pyspark_commitlog.plots.data import rates, segment_bytes, store_latencies
from pyspark_commitlog.plots.queues import read_queues
from pyspark_commitlog.plots.streams import stream_progress
from pyspark_commitlog.plots.style import (
    BLUE,
    COLOURS,
    INK,
    LINE,
    ORANGE,
    TEXT,
    VERMILLION,
    apart,
    bar_axes,
    bare_axes,
    behind_bar,
    binary_bytes,
    duration,
    few_ticks,
    new_figure,
    no_ticks,
    quantity_formatter,
    sequential_colours,
    shown_name,
    throughput,
    time_axis,
    times_of_day,
    title,
    topic_colours,
)
from store_core.errors import InvalidOptionError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    from pyspark_commitlog.plots.data import Messages, Rates
    from pyspark_commitlog.plots.queues import GroupLag, QueueDepth
    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = ["message_rates", "queue_depth", "segment_map", "store_latency", "stream_progress", "throughput"]

_MOST_TOPICS: Final = len(COLOURS)
_MOST_ROWS: Final = 20
_WHOLE: Final = 100
_PERCENTILE_COLOURS: Final = (BLUE, ORANGE, VERMILLION)
_LEAST_MS: Final = 1.0  # the resolution of timestamps; a log scale has no zero


def message_rates(messages: Messages, bin_seconds: int | None = None) -> Figure:
    """Draw messages and bytes per minute by topic, stacked, over store time.

    Parameters
    ----------
    messages : DataFrame, pyarrow.Table or pyarrow.RecordBatchReader
        With columns `topic`, `store_timestamp` and `store_size`.
    bin_seconds : int, optional
        By default such that there are at most 120 bins; a DataFrame is then read twice.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidOptionError
        If a column is missing, or there is no message.
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    found = rates(messages, bin_seconds)
    figure, axes = new_figure(5.0, rows=2, sharex=True)
    labels = _stack(axes[0, 0], found, found.messages, "Messages per minute", "")
    _stack(axes[1, 0], found, found.sizes, "Bytes per minute", "B")
    width = found.bin_seconds * 1000
    time_axis(axes[1, 0], found.begins, int(found.begins[-1]) + width)
    legend = figure.legend(
        labels.values(),
        ["-"] * len(labels),  # names that begin with "_" would be left out
        loc="outside right upper",
        frameon=False,
        fontsize=TEXT,
        handlelength=1,
        handleheight=1,
        labelspacing=0.6,
    )
    for topic, text in zip(labels, legend.get_texts(), strict=True):
        text.set_text(shown_name(topic))
        text.set_color(INK)
    return figure


def _stack(axes: Axes, found: Rates, values: npt.NDArray[np.int64], name: str, unit: str) -> dict[str, Artist]:
    """Draw one panel; return the artist of each topic, in the order of the stack from the top."""
    edges = np.append(found.begins, found.begins[-1] + found.bin_seconds * 1000) / 1000
    layers = _merged(found.topics, values * 60 / found.bin_seconds)
    colours = topic_colours(list(layers))
    base = np.zeros(len(found.begins))
    handles: dict[str, Artist] = {}
    for topic, layer in layers.items():
        handles[topic] = axes.stairs(base + layer, edges, baseline=base, fill=True, color=colours[topic], linewidth=0)
        base = base + layer
    bare_axes(axes)
    axes.set_ylim(0, float(base.max()) * 1.05 or 1)
    axes.yaxis.set_major_locator(few_ticks())
    axes.yaxis.set_major_formatter(quantity_formatter(unit))
    title(axes, name)
    return dict(reversed(handles.items()))


def _merged(topics: Sequence[str], values: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
    """Return the values by topic; if there are more topics than colours, the smallest are combined."""
    if len(topics) <= _MOST_TOPICS + 1:
        return dict(zip(topics, values, strict=True))
    layers = dict(zip(topics[:_MOST_TOPICS], values[:_MOST_TOPICS], strict=True))
    return layers | {f"{len(topics) - _MOST_TOPICS} others": values[_MOST_TOPICS:].sum(axis=0)}


def segment_map(messages: Messages) -> Figure:
    """Draw the bytes of each topic in each segment of the log: one row per topic, one column per file.

    Parameters
    ----------
    messages : DataFrame, pyarrow.Table or pyarrow.RecordBatchReader
        With columns `topic`, `segment` and `store_size`; with `store_timestamp` the map also shows when files begin.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidOptionError
        If a column is missing, or there is no message.
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    found = segment_bytes(messages)
    layers = _rows(found.topics, found.sizes)
    sizes = np.stack(list(layers.values()))
    figure, grid = new_figure(1.5 + 0.27 * len(layers))
    axes = cast("Axes", grid[0, 0])
    shown = np.ma.masked_equal(sizes, 0)
    image = axes.pcolormesh(shown, cmap=sequential_colours(), vmin=0, edgecolors="none", linewidth=0)
    bare_axes(axes, grid=None)
    axes.spines["bottom"].set_visible(False)
    axes.set_ylim(len(layers), 0)
    axes.set_yticks(np.arange(len(layers)) + 0.5, [shown_name(topic) for topic in layers])
    step = max(1, -(-len(found.offsets) // 10))
    places = np.arange(0, len(found.offsets), step)
    axes.set_xticks(places.tolist(), [binary_bytes(int(found.offsets[place])) for place in places])
    axes.set_xlabel("where the segment begins in the log", color=INK, fontsize=TEXT, loc="left")
    for edge in range(1, len(layers)):
        axes.axhline(edge, color=LINE, linewidth=0.7)
    note = _first_times(axes, found.first_times, places)
    title(axes, "Bytes by topic and segment", note)
    _colour_bar(figure, axes, image)
    return figure


def _rows(topics: Sequence[str], sizes: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.int64]]:
    if len(topics) <= _MOST_ROWS:
        return dict(zip(topics, sizes, strict=True))
    rows = dict(zip(topics[: _MOST_ROWS - 1], sizes, strict=False))
    return rows | {f"{len(topics) - _MOST_ROWS + 1} others": sizes[_MOST_ROWS - 1 :].sum(axis=0)}


def _first_times(axes: Axes, times: npt.NDArray[np.int64] | None, places: npt.NDArray[np.int64]) -> str:
    """Label the columns with the times of their first records, if known; return the note that explains them."""
    if times is None:
        return ""
    top = axes.secondary_xaxis("top")
    labels, note = times_of_day(times[places])
    top.set_xticks(places.tolist(), labels)
    top.tick_params(colors=INK, labelsize=TEXT, length=0)
    top.spines["top"].set_visible(False)
    return note


def _colour_bar(figure: Figure, axes: Axes, image: ScalarMappable) -> None:
    bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=14, fraction=0.05)
    bar.outline.set(visible=False)
    bar.locator = few_ticks()
    bar.formatter = quantity_formatter("B")
    bar.update_ticks()
    bar.ax.tick_params(colors=INK, labelsize=TEXT, length=0)


def store_latency(
    messages: Messages, percentiles: Sequence[float] = (50, 95, 99), bin_seconds: int | None = None
) -> Figure:
    """Draw how long messages took from the producer's clock to the log, as percentiles over store time.

    Delayed and retried messages keep the time when they were born: leave out topics with `%` in their names,
    `SCHEDULE_TOPIC_XXXX`, and the topics that delayed messages are delivered to.

    Parameters
    ----------
    messages : DataFrame, pyarrow.Table or pyarrow.RecordBatchReader
        With columns `born_timestamp` and `store_timestamp`.
    percentiles : sequence of float
        Up to three, in ascending order, from 0 to 100.
    bin_seconds : int, optional
        By default such that there are at most 120 bins; a DataFrame is then read twice.

    Returns
    -------
    matplotlib.figure.Figure
        Times below 1 ms, and negative ones, which result from clocks that differ, are drawn as 1 ms.

    Raises
    ------
    InvalidOptionError
        If a column is missing, there is no message, or the percentiles are invalid.
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    asked = tuple(percentiles)
    if (
        not 1 <= len(asked) <= len(_PERCENTILE_COLOURS)
        or asked != tuple(sorted(asked))
        or asked[0] < 0
        or asked[-1] > _WHOLE
    ):
        raise InvalidOptionError(f"percentiles are {asked}, expected one to three from 0 to 100, in ascending order")
    found = store_latencies(messages, asked, bin_seconds)
    figure, grid = new_figure(3.2)
    axes = cast("Axes", grid[0, 0])
    middles = found.begins / 1000 + found.bin_seconds / 2
    values = np.maximum(found.values, _LEAST_MS)
    colours = _PERCENTILE_COLOURS[-len(asked) :] if len(asked) > 1 else (BLUE,)
    axes.set_yscale("log")
    for line, colour in zip(values, colours, strict=True):
        axes.plot(middles, line, color=colour, linewidth=1.6, solid_capstyle="round")
    bare_axes(axes)
    axes.set_ylim(_LEAST_MS, max(10.0, float(values.max()) * 1.5))
    axes.yaxis.set_major_formatter(lambda value, _: duration(value))
    axes.yaxis.set_minor_locator(no_ticks())
    time_axis(axes, found.begins, int(found.begins[-1]) + found.bin_seconds * 1000)
    _name_lines(axes, values[:, -1], [f"p{percentile:g}" for percentile in asked], colours)
    title(axes, "Time from born to stored", f"percentiles of each {duration(found.bin_seconds * 1000)}")
    return figure


def _name_lines(axes: Axes, ends: npt.NDArray[np.float64], names: Sequence[str], colours: Sequence[str]) -> None:
    """Write names after the right ends of lines on a log scale, without overlap."""
    low, high = np.log10(axes.get_ylim())
    places = apart(((np.log10(ends) - low) / (high - low)).tolist(), 0.075)
    for place, name, colour in zip(places, names, colours, strict=True):
        axes.annotate(
            name, (1.01, place), xycoords="axes fraction", va="center", color=colour, fontsize=TEXT, fontweight="bold"
        )


def queue_depth(store: str | os.PathLike[str], config: MessageStoreConfig | None = None) -> Figure:
    """Draw how many messages each queue has, and how many of them each consumer group has not consumed.

    Consumer groups are those in ``config/consumerOffset.json``. Nothing is written or locked.

    Parameters
    ----------
    store : path
        The store root.
    config : MessageStoreConfig, optional
        The store's configuration, if its files do not have RocketMQ's default sizes.

    Returns
    -------
    matplotlib.figure.Figure
        On the left one bar per topic, divided into queues; on the right one bar for each topic of a group that lags,
        with the age of its oldest message when the store's last message was stored.

    Raises
    ------
    InvalidOptionError
        If the store has no queue.
    StoreError
        If the store can't be opened.
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    found = read_queues(store, config)
    if not found.queues:
        raise InvalidOptionError(f"there is no consume queue in {store}; commitlog rebuild queues creates them")
    topics = _by_topic(found.queues)
    lags = [lag for lag in found.lags[: _MOST_ROWS - 1] if lag.messages]
    height = 1.0 + 0.3 * max(len(topics), len(lags), 3)
    figure, grid = new_figure(height, columns=2, width_ratios=(1, 1))
    _draw_depths(cast("Axes", grid[0, 0]), topics)
    rest = _others(found.lags[len(lags) :]) if found.lags else "no group has committed an offset"
    _draw_lags(cast("Axes", grid[0, 1]), lags, rest, found.last_time, max(len(topics), len(lags), 3))
    return figure


def _others(lags: Sequence[GroupLag]) -> str:
    """Summarise the smallest lags, which have no bar."""
    left = sum(lag.messages for lag in lags)
    return f"{len(lags)} more: {f'{left:,} in all' if left else 'nothing left'}" if lags else ""


def _by_topic(queues: Sequence[QueueDepth]) -> dict[str, list[int]]:
    """Return the messages of each queue by topic, the fullest topics first."""
    topics: dict[str, list[int]] = {}
    for queue in queues:
        topics.setdefault(queue.topic, []).append(queue.max_offset - queue.min_offset)
    ranked = sorted(topics, key=lambda topic: (-sum(topics[topic]), topic))
    return {topic: topics[topic] for topic in ranked[:_MOST_ROWS]}


def _draw_depths(axes: Axes, topics: Mapping[str, list[int]]) -> None:
    largest = max(map(sum, topics.values()))
    for row, depths in enumerate(topics.values()):
        left = 0
        for number, depth in enumerate(depths):
            axes.barh(row, depth, left=left, height=0.62, color=BLUE, alpha=1 if number % 2 == 0 else 0.62, linewidth=0)
            left += depth
        behind_bar(axes, left, row, f"{left:,}" if len(depths) == 1 else f"{left:,} in {len(depths)} queues")
    bar_axes(axes, list(topics), largest * 1.6, len(topics))
    title(axes, "Messages in the queues")


def _draw_lags(axes: Axes, lags: Sequence[GroupLag], rest: str, now: int, rows: int) -> None:
    for row, lag in enumerate(lags):
        axes.barh(row, lag.messages, height=0.62, color=VERMILLION, linewidth=0)
        age = f", oldest {duration(now - lag.oldest)}" if lag.oldest is not None else ""
        behind_bar(axes, lag.messages, row, f"{lag.messages:,}{age}")
    names = [f"{lag.group}: {lag.topic}" for lag in lags]
    bar_axes(axes, names, max((lag.messages for lag in lags), default=1) * 2.1, rows)
    axes.annotate(rest, (0, len(lags) + 0.05), color=INK, fontsize=TEXT, va="center")
    title(axes, "Not consumed, by group")
