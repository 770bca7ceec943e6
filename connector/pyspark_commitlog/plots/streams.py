# SPDX-License-Identifier: Apache-2.0
"""The plot of a streaming query: its rate, and how far it is behind the log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from pyspark_commitlog.plots.style import (
    BLUE,
    INK,
    TEXT,
    VERMILLION,
    bare_axes,
    few_ticks,
    new_figure,
    quantity_formatter,
    title,
)
from pyspark_commitlog.stream.reader import bytes_behind
from store_core.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pyspark.sql.streaming.listener import StreamingQueryProgress

__all__ = ["stream_progress"]


def stream_progress(progress: Sequence[StreamingQueryProgress | Mapping[str, Any]]) -> Figure:
    """Draw the rate of a streaming query, and the bytes of the log that it has not read yet, batch by batch.

    Parameters
    ----------
    progress : sequence of StreamingQueryProgress or mapping
        ``query.recentProgress``, or those of several runs one after the other. Triggers without rows are left out.

    Returns
    -------
    matplotlib.figure.Figure
        On the left a bar for each batch; on the right a line, if PySpark reports where the log ends (4.2 and later).

    Raises
    ------
    InvalidOptionError
        If no batch has rows.
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    known = [json.loads(each.json) if hasattr(each, "json") else dict(each) for each in progress]
    batches = [each for each in known if each["numInputRows"]]
    if not batches:
        raise InvalidOptionError(f"expected the progress of a query that has read something: {len(known)} without rows")
    figure, grid = new_figure(3.0, columns=2, width_ratios=(1, 1))
    rates, behind = (cast("Axes", axes) for axes in grid[0])
    numbers = range(1, len(batches) + 1)
    rates.bar(numbers, [each["processedRowsPerSecond"] for each in batches], color=BLUE, linewidth=0)
    _finish(rates, "")
    title(rates, "Rows per second")
    distances = [bytes_behind(each) for each in batches]
    lag = [(number, distance) for number, distance in zip(numbers, distances, strict=True) if distance is not None]
    behind.plot([number for number, _ in lag], [distance for _, distance in lag], color=VERMILLION, marker="o", ms=4)
    _finish(behind, "B")
    title(behind, "Bytes behind", "" if lag else "not reported by this PySpark")
    behind.set_xlim(rates.get_xlim())
    return figure


def _finish(axes: Axes, unit: str) -> None:
    bare_axes(axes)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(few_ticks())
    axes.yaxis.set_major_locator(few_ticks())
    axes.yaxis.set_major_formatter(quantity_formatter(unit))
    axes.set_xlabel("batch", color=INK, fontsize=TEXT, loc="left")
