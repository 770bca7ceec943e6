# SPDX-License-Identifier: Apache-2.0
"""A progress bar for whatever Spark is doing, in notebooks and on terminals.

>>> with spark_progress(spark):  # doctest: +SKIP
...     messages.groupBy("topic").count().show()
"""

from __future__ import annotations

import io
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, TextIO

from py4j.protocol import Py4JError

from store_core.answers.shown_text import TerminalLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import StatusTracker
    from pyspark.sql import SparkSession


_SECONDS_BETWEEN: Final = 0.25
_SECONDS_TO_END: Final = 5.0
"""How long to wait for the thread if Spark does not answer it."""

_ONE_AT_A_TIME: Final = Lock()
"""Held while progress is shown: two bars would show the same stages."""

_BAR: Final = (
    "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} tasks [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
)


@contextmanager
def spark_progress(spark: SparkSession, *, stream: TextIO | None = None) -> Iterator[None]:
    """Show the progress of Spark's tasks while the block runs; then remove the bar, also if a job has failed.

    It shows the oldest running stage of the session's application, whoever started it: its number, how many of its
    tasks are done, how many per second, and the time left. In Jupyter it is a bar in the cell, on a terminal a bar on
    standard error; if standard error is a file or a pipe, nothing is shown. Bars are drawn by tqdm (the extra
    ``progress``); without it there is a line of text. Inside a block that shows progress, another one shows nothing.

    Nothing is shown on a terminal where Spark draws its own bar, either, which can't be switched off later: start the
    session with ``spark.ui.showConsoleProgress=false`` to see this one.

    Parameters
    ----------
    spark : SparkSession
        A session in this process, or a Spark Connect session, whose server reports progress every two seconds.
    stream : text file, optional
        Where to draw, if it is a terminal. Standard error by default.
    """
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        yield
        return
    try:
        display = _display(spark, stream)
        if display is None:
            yield
            return
        with running_stages(spark) as stages, shown(stages, display):
            yield
    finally:
        _ONE_AT_A_TIME.release()


@contextmanager
def shown(stages: Callable[[], list[StageTasks]], display: TqdmDisplay | LineDisplay) -> Iterator[None]:
    """Show the oldest of the running stages every quarter of a second, in a thread that ends with the block."""
    is_over = Event()

    def look() -> None:
        while not is_over.wait(_SECONDS_BETWEEN):
            found = stages()
            if found and not is_over.is_set():  # between two stages the last one stays
                display.show(found[0], len(found) - 1)

    thread = Thread(target=look, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(_SECONDS_TO_END)
        display.close()


# ---- the stages that Spark is running, classic or Connect


@dataclass(frozen=True, slots=True, order=True)
class StageTasks:
    """A stage that is running, and how many of its tasks are done."""

    stage: int
    total: int
    done: int = 0
    running: int = 0
    failed: int = 0

    @property
    def notes(self) -> str:
        """The numbers of running and failed tasks."""
        counts = ((self.running, "running"), (self.failed, "failed"))
        return ", ".join(f"{count} {name}" for count, name in counts if count)


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a Spark Connect session, which has no ``sparkContext``."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def running_stages(spark: SparkSession) -> Iterator[Callable[[], list[StageTasks]]]:
    """Provide what returns the running stages in the order of their numbers, in any thread, and never raises."""
    if not is_connect(spark):
        yield partial(_tracked, spark.sparkContext.statusTracker())
        return
    reports: dict[str | None, list[StageTasks]] = {}

    def take(*, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ANN401 -- Spark's
        """Keep what the server says of an operation. Called in the thread that waits for it."""
        running = [] if done else [each for each in stages or () if not each.done]
        in_flight = inflight_tasks if len(running) == 1 else 0  # not told of each stage
        reports[operation_id] = [
            StageTasks(each.stage_id, each.num_tasks, each.num_completed_tasks, in_flight) for each in running
        ]

    spark.registerProgressHandler(take)  # type: ignore[arg-type]  # Spark's class is a signature
    try:
        yield lambda: sorted(stage for stages in reports.copy().values() for stage in stages)
    finally:
        spark.removeProgressHandler(take)  # type: ignore[arg-type]  # as above


def _tracked(tracker: StatusTracker) -> list[StageTasks]:
    """Return the running stages of the application; none once the session is stopped."""
    try:
        found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except (Py4JError, OSError):
        return []
    return sorted(
        StageTasks(each.stageId, each.numTasks, each.numCompletedTasks, each.numActiveTasks, each.numFailedTasks)
        for each in found
        if each is not None
    )


# ---- displays


def _display(spark: SparkSession, stream: TextIO | None) -> TqdmDisplay | LineDisplay | None:
    """Return how to show progress; None where nobody would see it, or where Spark itself draws on the terminal."""
    if stream is None and _is_jupyter():
        return notebook_display()
    stream = sys.stderr if stream is None else stream
    if stream is None or stream.closed or not stream.isatty():
        return None
    # A Connect server draws on its own terminal.
    if not is_connect(spark) and spark.sparkContext.getConf().get("spark.ui.showConsoleProgress") == "true":
        return None
    return _text_display(stream)


def _is_jupyter() -> bool:
    """Return whether this is a notebook kernel, not IPython in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def notebook_display() -> TqdmDisplay | LineDisplay:
    """Return a bar for a cell, of text without ipywidgets."""
    if find_spec("tqdm") is None or find_spec("ipywidgets") is None:
        return _text_display(_CellOutput())
    from tqdm.notebook import tqdm  # noqa: PLC0415 -- an extra

    return TqdmDisplay(tqdm)


def _text_display(stream: TextIO) -> TqdmDisplay | LineDisplay:
    if find_spec("tqdm") is None:
        return LineDisplay(stream)
    from tqdm.std import tqdm  # noqa: PLC0415 -- an extra

    return TqdmDisplay(tqdm, file=stream, delay=1e-9)


class _CellOutput(io.StringIO):
    """A stream whose last line is shown in a notebook's cell; in the end it is empty, also in the saved file."""

    def __init__(self) -> None:
        from IPython.display import DisplayHandle  # noqa: PLC0415 -- only a kernel has it

        super().__init__()
        handle: Any = DisplayHandle  # has no types
        self._handle = handle()
        self._handle.display({"text/plain": ""}, raw=True)

    def write(self, text: str) -> int:
        """Show what follows the last return of the carriage."""
        if "\r" in text:
            self._handle.update({"text/plain": text.rpartition("\r")[2].rstrip()}, raw=True)
        return len(text)


class TqdmDisplay:
    """A bar of a tqdm class; environment variables such as ``TQDM_DISABLE`` apply as well."""

    def __init__(self, make: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401 -- tqdm's own
        # Drawn exactly when `show` is called: no monitor thread, no minimum interval.
        quiet = type("QuietBar", (make,), {"monitor_interval": 0})  # type: ignore[arg-type]  # a class
        drawn = {"bar_format": _BAR, "leave": False, "dynamic_ncols": True}
        self._bar = quiet(desc="Spark", unit=" tasks", mininterval=0, miniters=0, smoothing=0, **drawn, **options)
        self._stage = -1

    def show(self, tasks: StageTasks, others: int) -> None:
        """Draw the bar, started again for another stage, and for one that is run again."""
        self._bar.set_description_str(_label(tasks, others), refresh=False)
        self._bar.set_postfix_str(tasks.notes, refresh=False)
        if tasks.stage != self._stage or tasks.done < self._bar.n:
            self._stage = tasks.stage
            self._bar.initial = tasks.done  # tasks whose time tqdm does not count
            self._bar.reset(tasks.total)
        self._bar.update(tasks.done - self._bar.n)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class LineDisplay:
    """A line of text, where there is no tqdm.

    * `clock`: Returns seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = TerminalLine(stream)
        self._clock = clock
        self._last = self._first = StageTasks(-1, 0)
        self._began = 0.0

    def show(self, tasks: StageTasks, others: int) -> None:
        """Write the line; tasks that were done when the stage was first seen count for no rate."""
        now = self._clock()
        if tasks.stage != self._last.stage or tasks.done < self._last.done:
            self._first, self._began = tasks, now
        self._last = tasks
        done = tasks.done - self._first.done
        parts = [f"{_label(tasks, others)}: {tasks.done} of {tasks.total} tasks", tasks.notes]
        if done and now > self._began:
            pace = done / (now - self._began)
            parts += [f"{pace:.1f} tasks/s", f"{(tasks.total - tasks.done) / pace:.0f} s left"]
        self._line.show(", ".join(filter(None, parts)))

    def close(self) -> None:
        """Clear the line."""
        self._line.close()


def _label(tasks: StageTasks, others: int) -> str:
    return f"stage {tasks.stage}" + (f" (+{others})" if others else "")
