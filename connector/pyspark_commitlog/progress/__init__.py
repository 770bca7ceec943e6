# SPDX-License-Identifier: Apache-2.0
"""A progress bar for whatever Spark is doing, in notebooks and on terminals.

>>> with spark_progress(spark):  # doctest: +SKIP
...     messages.groupBy("topic").count().show()
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from pyspark_commitlog.progress.display import StageView, choose_display
from pyspark_commitlog.progress.stages import is_connect, stages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from pyspark_commitlog.progress.display import Display
    from pyspark_commitlog.progress.stages import Stages, StageTasks

__all__ = ["Describe", "ProgressWatch", "describe_stage", "spark_progress"]

_SECONDS_BETWEEN: Final = 0.25
_SECONDS_TO_END: Final = 5.0
"""How long to wait for the thread if Spark does not answer it."""

_ONE_AT_A_TIME: Final = Lock()
"""Held while progress is shown: two bars would show the same stages."""


class Describe(Protocol):
    """Chooses the text for a stage."""

    def __call__(self, tasks: StageTasks, others: int, pace: float) -> StageView:
        """Describe a stage at its pace, in tasks per second or 0 if not known yet, while `others` run beside it."""


def describe_stage(tasks: StageTasks, others: int, pace: float) -> StageView:
    """Describe any stage: its number, tasks per second, and running and failed tasks.

    Examples
    --------
    >>> from pyspark_commitlog.progress.stages import StageTasks
    >>> describe_stage(StageTasks(4, 20, done=5, running=2), 0, 2.5).notes
    ('2.5 tasks/s', '2 running')
    """
    label = f"stage {tasks.stage}" + (f" (+{others})" if others else "")
    notes = [f"{pace:.1f} tasks/s"] if pace else []
    notes += [f"{count} {name}" for count, name in ((tasks.running, "running"), (tasks.failed, "failed")) if count]
    return StageView(tasks.stage, label, tasks.done, tasks.total, pace, tuple(notes))


@contextmanager
def spark_progress(
    spark: SparkSession, *, stream: TextIO | None = None, describe: Describe = describe_stage
) -> Iterator[None]:
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
    describe : callable, optional
        Chooses the text.
    """
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        yield
        return
    try:
        display = choose_display(stream, lambda: _has_own_bar(spark))
        if display is None:
            yield
            return
        with ProgressWatch(stages_of(spark), display, describe).running():
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
        describe: Describe = describe_stage,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stages = stages
        self._display = display
        self._describe = describe
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
        view = self._describe(found[0], len(found) - 1, self._pace(found[0], self._clock()))
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
