# SPDX-License-Identifier: Apache-2.0
"""The plots of a check: where in the log findings are, and how complete queues are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.answers.checking.finding import FindingKind
from store_core.answers.report_plots import Bar, Bars, Strip, Tone, lanes_of
from store_core.format.counted import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    import pyarrow as pa

    from store_core.answers.report_plots import Plot

__all__ = ["check_plots"]

_MOST_QUEUES: Final = 40
_TONES: Final = {kind.value: Tone.BAD for kind in FindingKind}


def check_plots(begin: int, end: int, tables: Mapping[str, pa.Table]) -> Iterator[Plot]:
    """Yield the plots that have something to show.

    Parameters
    ----------
    begin, end : int
        Physical offsets of the log.
    tables : mapping of str to pyarrow.Table
        Those of the report.
    """
    rows = tables["findings"].select(["kind", "begin", "end"]).to_pylist()
    placed = ((row["kind"], row["begin"], row["end"] or row["begin"] + 1) for row in rows if row["begin"] is not None)
    lanes = lanes_of((each for each in placed if begin <= each[1] < end), _TONES, "place")
    if lanes:
        yield Strip("Where in the log the first of each kind are", begin, end, lanes)
    queues = list(map(_queue_bar, tables["certificates"].to_pylist()))
    if queues:
        yield _queues(queues)


def _queue_bar(row: Mapping[str, Any]) -> Bar:
    span = row["next_offset"] - row["first_offset"]
    state = "complete" if row["is_complete"] else "not complete"
    label = f"{state}, {counted(row['records'], 'record')}"
    name = f"{row['topic']}/{row['queue_id']}"
    return Bar(name, row["records"], Tone.GOOD if row["is_complete"] else Tone.BAD, label, span)


def _queues(bars: list[Bar]) -> Bars:
    """Show incomplete queues first, then those with the most records."""
    bars.sort(key=lambda bar: (bar.tone is Tone.GOOD, -bar.value))
    more = counted(len(bars) - _MOST_QUEUES, "more queue") if len(bars) > _MOST_QUEUES else ""
    return Bars("Queues, and the records that the log has of them", tuple(bars[:_MOST_QUEUES]), more)
