# SPDX-License-Identifier: Apache-2.0
"""A line on the terminal that says how far Spark's tasks are."""

from __future__ import annotations

import sys
import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Self, TextIO

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["RebuildProgress", "progress_line"]

_SECONDS_BETWEEN: Final = 0.5
_STAGES: Final = ("reading", "writing")
_MEBIBYTE: Final = 1 << 20


def progress_line(stage: int, done: int, tasks: int, size: int, seconds: float) -> str:
    """Make the line: which half of the work, how much of it, how fast, and how long it will take.

    Parameters
    ----------
    stage : int
        0 while the log is read, 1 while files are written.
    done, tasks : int
    size : int
        Bytes of the log that are read in all.
    seconds : float
        Since the stage began.

    Examples
    --------
    >>> progress_line(0, 3, 12, 12 << 30, 6.0)
    'reading: 3 of 12 tasks, 512 MiB/s, 18 s left'
    """
    text = f"{_STAGES[stage]}: {done} of {tasks} tasks"
    if not done or seconds <= 0:
        return text
    left = f"{seconds * (tasks - done) / done:.0f} s left"
    if stage:
        return f"{text}, {left}"
    return f"{text}, {size * done / tasks / seconds / _MEBIBYTE:.0f} MiB/s, {left}"


class RebuildProgress:
    """Shows progress while it is entered, if the stream is a terminal.

    Parameters
    ----------
    context : SparkContext
    size : int
        Bytes of the log.
    stream : text file
    """

    def __init__(self, context: SparkContext, size: int, stream: TextIO = sys.stderr) -> None:
        self._tracker = context.statusTracker()
        self._size = size
        self._stream = stream
        self._is_over = Event()
        self._thread = Thread(target=self._watch, name="rebuild-progress", daemon=True)

    def __enter__(self) -> Self:
        if self._stream.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
            self._show("")

    def _watch(self) -> None:
        first, seen, began = -1, -1, time.monotonic()
        while not self._is_over.wait(_SECONDS_BETWEEN):
            active = self._tracker.getActiveStageIds()
            info = self._tracker.getStageInfo(min(active)) if active else None
            if info is None:
                continue
            first = info.stageId if first < 0 else first
            if info.stageId != seen:
                seen, began = info.stageId, time.monotonic()
            stage = (info.stageId - first) % len(_STAGES)
            seconds = time.monotonic() - began
            self._show(progress_line(stage, info.numCompletedTasks, info.numTasks, self._size, seconds))

    def _show(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()
