# SPDX-License-Identifier: Apache-2.0
"""A progress bar for whatever Spark is doing, in notebooks and on terminals.

>>> with spark_progress(spark):  # doctest: +SKIP
...     messages.groupBy("topic").count().show()
"""

from __future__ import annotations

import sys
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from py4j.protocol import Py4JError

from store_core.answers.shown_text import TerminalLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession


_SECONDS_BETWEEN: Final = 0.25
_SECONDS_TO_END: Final = 5.0
"""How long to wait for the thread if Spark does not answer it."""

_ONE_AT_A_TIME: Final = Lock()
"""Held while progress is shown: two bars would show the same stages."""


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
        display = choose_display(stream, lambda: _has_own_bar(spark))
        if display is None:
            yield
            return
        with ProgressWatch(stages_of(spark), display).running():
            yield
    finally:
        _ONE_AT_A_TIME.release()


def _has_own_bar(spark: SparkSession) -> bool:
    """Return whether Spark draws on this terminal itself; a Connect server draws on its own."""
    return not is_connect(spark) and spark.sparkContext.getConf().get("spark.ui.showConsoleProgress") == "true"


class ProgressWatch:
    """Shows on a display what Spark is running.

    * `clock`: Returns seconds.
    """

    def __init__(
        self,
        stages: Stages,
        display: Display,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stages = stages
        self._display = display
        self._clock = clock
        self._last: StageTasks | None = None
        self._done_before = 0
        self._began = 0.0
        self._is_over = Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Update the display every quarter of a second, in a thread that ends with the block."""
        thread = Thread(target=self._run, name="spark-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join(_SECONDS_TO_END)
            self._stages.close()
            self._display.close()

    def look(self) -> None:
        """Show the oldest running stage; if none is running, leave the display as it is."""
        found = self._stages.running()
        if not found:
            return
        view = StageView(found[0], len(found) - 1, self._pace(found[0], self._clock()))
        if not self._is_over.is_set():
            self._display.show(view)

    def _pace(self, tasks: StageTasks, now: float) -> float:
        """Return the tasks per second since the stage was first seen; how long earlier tasks took is unknown."""
        last, self._last = self._last, tasks
        if last is None or last.stage != tasks.stage or last.done > tasks.done:
            self._done_before, self._began = tasks.done, now
        return (tasks.done - self._done_before) / (now - self._began) if now > self._began else 0.0

    def _run(self) -> None:
        while not self._is_over.wait(_SECONDS_BETWEEN):
            self.look()


# ---- the stages that Spark is running, classic or Connect


@dataclass(frozen=True, slots=True, order=True)
class StageTasks:
    """A stage that is running, and how many of its tasks are done."""

    stage: int
    total: int
    done: int = 0
    running: int = 0
    failed: int = 0


class Stages(Protocol):
    """Reports which stages are running."""

    def running(self) -> list[StageTasks]:
        """Return the running stages in the order of their numbers. Called in a thread of its own; never raises."""

    def close(self) -> None:
        """Release the session."""


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a Spark Connect session, which has no ``sparkContext``."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def stages_of(spark: SparkSession) -> Stages:
    """Choose the implementation for a session."""
    return ConnectStages(spark) if is_connect(spark) else ClassicStages(spark)


class ClassicStages:
    """All stages of the application, from the status tracker of a session in this process."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()

    def running(self) -> list[StageTasks]:
        """Return the running stages; none once the session is stopped."""
        try:
            found = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        except (Py4JError, OSError):
            return []
        return sorted(
            StageTasks(info.stageId, info.numTasks, info.numCompletedTasks, info.numActiveTasks, info.numFailedTasks)
            for info in found
            if info is not None
        )

    def close(self) -> None:
        """Do nothing: the tracker holds no resources."""


class ConnectStages:
    """Stages that a Connect server reports by itself, by default every two seconds."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._operations: dict[str, list[StageTasks]] = {}
        spark.registerProgressHandler(self._take)  # type: ignore[arg-type]  # Spark's class is a signature

    def running(self) -> list[StageTasks]:
        """Return the running stages of all operations."""
        return sorted(stage for stages in self._operations.copy().values() for stage in stages)

    def close(self) -> None:
        """Remove the handler."""
        self._spark.removeProgressHandler(self._take)  # type: ignore[arg-type]  # as above

    def _take(
        self,
        stages: Iterable[object] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,  # noqa: FBT001 -- Spark's signature
    ) -> None:
        """Store a report of the server. Called by keyword, in the thread that waits for the operation."""
        name = operation_id or ""
        if done:
            self._operations.pop(name, None)
            return
        told = [_stage_of(stage) for stage in stages or () if not getattr(stage, "done", True)]
        # The number of running tasks is not reported per stage.
        self._operations[name] = [
            StageTasks(stage.stage, stage.total, stage.done, inflight_tasks * (len(told) == 1)) for stage in told
        ]


def _stage_of(told: object) -> StageTasks:
    """Convert a ``pyspark.sql.connect.shell.progress.StageInfo``."""
    stage, total, done = (int(getattr(told, name)) for name in ("stage_id", "num_tasks", "num_completed_tasks"))
    return StageTasks(stage, total, done)


# ---- displays


_BAR: Final = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} tasks [{elapsed}<{remaining}{postfix}]"


@dataclass(frozen=True, slots=True)
class StageView:
    """What is shown of a stage.

    Examples
    --------
    >>> view = StageView(StageTasks(4, 20, done=5, running=2), others=1, pace=2.5)
    >>> view.line
    'stage 4 (+1): 5 of 20 tasks, 2.5 tasks/s, 2 running, 6 s left'
    """

    tasks: StageTasks
    others: int = 0  # how many other stages are running
    pace: float = 0  # tasks per second; 0 if not known yet

    @property
    def label(self) -> str:
        """What it is called."""
        return f"stage {self.tasks.stage}" + (f" (+{self.others})" if self.others else "")

    @property
    def notes(self) -> list[str]:
        """Tasks per second, and running and failed tasks."""
        counts = ((self.tasks.running, "running"), (self.tasks.failed, "failed"))
        pace = [f"{self.pace:.1f} tasks/s"] if self.pace else []
        return [*pace, *(f"{count} {name}" for count, name in counts if count)]

    @property
    def line(self) -> str:
        """A line of text: what is running, how much is done, how fast, and the time left."""
        parts = [f"{self.label}: {self.tasks.done} of {self.tasks.total} tasks", *self.notes]
        if self.pace:
            parts.append(f"{(self.tasks.total - self.tasks.done) / self.pace:.0f} s left")
        return ", ".join(parts)


class Display(Protocol):
    """Shows one stage at a time. All methods may come from any thread, one at a time."""

    def show(self, view: StageView) -> None:
        """Show a stage in place of what was shown before."""

    def close(self) -> None:
        """Remove all traces of the display."""


def choose_display(stream: TextIO | None = None, is_taken: Callable[[], bool] = bool) -> Display | None:
    """Choose how to show progress.

    * `stream`: Standard error by default.
    * `is_taken`: Returns whether something else draws on the terminal; called only if there is one.

    Returns: In Jupyter a tqdm bar if ``tqdm`` and ``ipywidgets`` are installed, else a line in the cell's output. On a
    terminal a tqdm bar, or a line without ``tqdm``. None elsewhere: a bar does not belong in a file.
    """
    if stream is None and _is_jupyter():
        return _notebook_display()
    stream = stream if stream is not None else sys.stderr
    if stream is None or stream.closed or not stream.isatty() or is_taken():
        return None
    try:
        from tqdm.std import tqdm  # noqa: PLC0415 -- an extra
    except ImportError:
        return LineDisplay(stream)
    return TqdmDisplay(tqdm, file=stream, delay=1e-9)


def _is_jupyter() -> bool:
    """Return whether this is a notebook kernel, not IPython in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _notebook_display() -> Display:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tqdm warns without ipywidgets; we show a line then
            from tqdm.auto import tqdm  # noqa: PLC0415 -- an extra
            from tqdm.notebook import tqdm as notebook_tqdm  # noqa: PLC0415
    except ImportError:
        return CellDisplay()
    return TqdmDisplay(tqdm) if issubclass(tqdm, notebook_tqdm) else CellDisplay()


class TqdmDisplay:
    """A tqdm bar.

    * `make`: The tqdm class.
    * `options`: Arguments for the class. Environment variables such as ``TQDM_DISABLE`` apply as well.
    """

    def __init__(self, make: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401 -- tqdm's own
        # Drawn exactly when `show` is called: no monitor thread, no minimum interval.
        quiet = type("QuietBar", (make,), {"monitor_interval": 0})  # type: ignore[arg-type]  # a class
        self._bar = quiet(
            desc="Spark", bar_format=_BAR, leave=False, dynamic_ncols=True, mininterval=0, miniters=0, smoothing=0,
            **options,
        )  # fmt: skip
        self._stage = -1

    def show(self, view: StageView) -> None:
        """Draw the bar, started again if this is another stage."""
        if view.tasks.stage != self._stage:
            self._stage = view.tasks.stage
            self._bar.set_description_str(view.label, refresh=False)
            self._bar.initial = view.tasks.done  # tasks whose time tqdm does not count
            self._bar.reset(view.tasks.total)
        self._bar.set_postfix_str(", ".join(view.notes), refresh=False)
        self._bar.update(view.tasks.done - self._bar.n)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class LineDisplay:
    """A line on a terminal that is overwritten each time."""

    def __init__(self, stream: TextIO) -> None:
        self._line = TerminalLine(stream)

    def show(self, view: StageView) -> None:
        """Write the line, cut to the width of the terminal."""
        self._line.show(view.line)

    def close(self) -> None:
        """Clear the line."""
        self._line.close()


class CellDisplay:
    """A line in the output of a notebook cell, which is empty at the end, also in the saved file."""

    def __init__(self) -> None:
        from IPython.display import DisplayHandle  # noqa: PLC0415 -- only a kernel has it

        handle: Any = DisplayHandle  # has no types
        self._handle = handle()
        self._handle.display({"text/plain": ""}, raw=True)

    def show(self, view: StageView) -> None:
        """Replace the last line by a new one."""
        self._handle.update({"text/plain": view.line}, raw=True)

    def close(self) -> None:
        """Replace the last line by nothing."""
        self._handle.update({"text/plain": ""}, raw=True)
