# SPDX-License-Identifier: Apache-2.0
"""The progress bar shows what Spark runs, only where someone can see it, and leaves nothing behind."""

from __future__ import annotations

import os
import pty
import re
import sys
import termios
import threading
from dataclasses import astuple, dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_commitlog.progress import LineDisplay, StageTasks, TqdmDisplay, running_stages, spark_progress
from tests.connector.session_answers import ALL_BUT_ONE, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession


CELL = """\
import sys, threading
sys.modules["{missing}"] = None
from pyspark_commitlog.progress import StageTasks, notebook_display, shown

display, was_shown = notebook_display(), threading.Event()
show, display.show = display.show, lambda *found: (show(*found), was_shown.set())
with shown(lambda: [StageTasks(4, 20, 5)], display):
    assert was_shown.wait(60)
"""


@pytest.fixture
def without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)


class Tracker:
    """Stages as the status tracker of a session reports them; the next ones at each look, the last ones for ever."""

    def __init__(self, *looks: list[StageTasks]) -> None:
        self._looks = list(looks)
        self._now: dict[int, StageTasks] = {}
        self.was_last_drawn = threading.Event()

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 -- Spark's name
        if not self._looks:  # what the last look found has been drawn: another one follows
            self.was_last_drawn.set()
        self._now = {each.stage: each for each in (self._looks.pop(0) if self._looks else self._now.values())}
        return sorted(self._now, reverse=True)

    def getStageInfo(self, stage: int) -> SimpleNamespace | None:  # noqa: N802 -- Spark's name
        names = ("stageId", "numTasks", "numCompletedTasks", "numActiveTasks", "numFailedTasks")
        return SimpleNamespace(**dict(zip(names, astuple(self._now[stage]), strict=True)))


def session(tracker: Tracker, **conf: str) -> Any:  # noqa: ANN401 -- stands for a SparkSession
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf, statusTracker=lambda: tracker))


def progress_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if "progress" in each.name or "tqdm" in each.name]


# ---- what is shown


def lines(*looks: StageTasks, seconds: list[float]) -> list[str]:
    """Show stages at the given times; return the line of each."""
    terminal, times = Terminal(), iter(seconds)
    display = LineDisplay(terminal, clock=lambda: next(times))
    return [(display.show(each, 0), terminal.screen)[1] for each in looks]  # type: ignore[func-returns-value]


def test_a_stage_has_its_rate_and_the_rest_of_its_time() -> None:
    first, second = lines(StageTasks(4, 20, 0, 2), StageTasks(4, 20, 5, 2, 1), seconds=[10.0, 14.0])

    assert "stage 4: 0 of 20 tasks, 2 running" == first
    assert "stage 4: 5 of 20 tasks, 2 running, 1 failed, 1.2 tasks/s, 12 s left" == second


def test_what_was_done_before_a_stage_was_seen_counts_for_no_rate() -> None:
    assert (
        "stage 1: 10 of 20 tasks, 0.5 tasks/s, 20 s left"
        == lines(StageTasks(1, 20, 9), StageTasks(1, 20, 10), seconds=[5.0, 7.0])[-1]
    )


def test_the_next_stage_and_the_same_one_once_more_start_their_own_time() -> None:
    looks = [StageTasks(1, 9, 1), *(StageTasks(2, 9, done) for done in (0, 3, 1, 2))]

    assert [None, None, "3.0", None, "0.5"] == [
        (re.findall(r"([\d.]+) tasks/s", line) or [None])[0] for line in lines(*looks, seconds=[0, 20, 21, 30, 32])
    ]


def test_a_line_is_no_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    LineDisplay(terminal).show(StageTasks(1, 20, 10), 1)

    assert "stage 1 (+1): 10 of" == terminal.screen


def test_a_bar_of_tqdm_is_started_again_for_another_stage_and_cleared() -> None:
    tqdm, terminal = pytest.importorskip("tqdm.std").tqdm, Terminal()
    display = TqdmDisplay(tqdm, file=terminal, delay=1e-9)

    assert "" == terminal.getvalue()
    display.show(StageTasks(4, 20, 5, 2), 1)
    assert terminal.screen.startswith("stage 4 (+1):  25%|")
    assert "| 5/20 tasks [00:" in terminal.screen
    assert terminal.screen.endswith(" tasks/s, 2 running]")
    for label, tasks in {
        "5:  50%": StageTasks(5, 2, 1),
        "5:   0%": StageTasks(5, 2),
        "6:  50%": StageTasks(6, 2, 1),
    }.items():
        display.show(tasks, 0)
        assert terminal.screen.startswith(f"stage {label}|")
    display.close()
    assert "" == terminal.screen


@pytest.mark.usefixtures("without_tqdm")
def test_of_several_stages_the_oldest_is_shown_and_stays_when_none_is_running() -> None:
    terminal = Terminal()
    tracker = Tracker([StageTasks(2, 8, 1), StageTasks(3, 9), StageTasks(5, 1)])

    with spark_progress(session(tracker), stream=terminal):
        assert tracker.was_last_drawn.wait(60)
    assert "stage 2 (+2): 1 of 8 tasks" in terminal.getvalue()
    assert "" == terminal.screen


# ---- where it is shown


@pytest.mark.usefixtures("without_tqdm")
@pytest.mark.parametrize("unseen", ["file", "closed", "none", "spark's own bar", "ipython in a terminal"])
def test_where_nobody_would_see_it_spark_is_not_asked(unseen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, tracker = Terminal(is_terminal=unseen not in {"file", "ipython in a terminal"}), Tracker()
    if unseen == "closed":
        terminal.close()
    if unseen == "ipython in a terminal":
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=SimpleNamespace))
    monkeypatch.setattr(sys, "stderr", None if unseen == "none" else terminal)
    own = str(unseen == "spark's own bar").lower()

    with spark_progress(session(tracker, **{"spark.ui.showConsoleProgress": own})):
        assert [] == progress_threads()


@pytest.mark.usefixtures("without_tqdm")
def test_inside_a_block_another_one_shows_nothing_and_after_it_the_next_one_does() -> None:
    outer, inner, later = Terminal(), Terminal(), Terminal()

    for first, second in ((outer, inner), (later, inner)):
        spark = session(tracker := Tracker([StageTasks(1, 4)]))
        with spark_progress(spark, stream=first), spark_progress(spark, stream=second):
            assert tracker.was_last_drawn.wait(60)
        assert "stage 1: 0 of 4 tasks" in first.getvalue()
    assert "" == inner.getvalue()


def test_a_connect_server_s_stages_are_those_that_are_not_over() -> None:
    handlers: list[Callable[..., None]] = []
    spark: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    spark.registerProgressHandler, spark.removeProgressHandler = handlers.append, handlers.remove

    def tell(operation: str, *stages: tuple[int, int, int, bool], done: bool = False) -> list[StageTasks]:
        names = ("stage_id", "num_tasks", "num_completed_tasks", "done")
        told = [SimpleNamespace(**dict(zip(names, stage, strict=True))) for stage in stages]
        handlers[0](stages=told, inflight_tasks=2, operation_id=operation, done=done)
        return running()

    with running_stages(spark) as running:
        first = [StageTasks(4, 20, 5, running=2)]
        assert first == tell("a", (3, 8, 8, True), (4, 20, 5, False))
        assert [StageTasks(2, 9, 1), *first, StageTasks(5, 9)] == tell("b", (2, 9, 1, False), (5, 9, 0, False))
        assert first == tell("b", (2, 9, 1, False), done=True)
    assert [] == handlers


def test_a_real_notebook_s_cells_show_it_and_are_saved_empty() -> None:
    """In a separate kernel, whose frontend records all messages."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    told: list[str] = []

    class Frontend(nbclient.NotebookClient):  # type: ignore[misc, name-defined]  # has no types
        def process_message(self, message: dict[str, Any], *others: Any) -> Any:  # noqa: ANN401 -- as it is there
            told.append(message["content"].get("data", {}).get("text/plain", ""))
            return super().process_message(message, *others)

    expected = {"ipywidgets": r"stage 4:  25%\|.*\| 5/20 tasks \[", "tqdm": r"stage 4: 5 of 20 tasks$"}
    cells = [nbformat.v4.new_code_cell(CELL.format(missing=missing)) for missing in expected]
    Frontend(nbformat.v4.new_notebook(cells=cells), timeout=120).execute()
    for cell, shown in zip(cells, expected.values(), strict=True):
        (output,) = cell.outputs
        assert any(re.match(shown, text) for text in told)
        assert ("display_data", "") == (output.output_type, output.data["text/plain"])


# ---- with Spark


@dataclass
class Gate:
    """Holds back tasks until it is opened: a named pipe, which can be read once something is written."""

    path: Path

    def task(self, numbers: Iterable[int]) -> Iterable[int]:
        """Wait for the last number, and fail."""
        for number in numbers:
            if number == 3:
                self.path.read_text()
                raise ValueError("no such luck")
            yield number


@pytest.mark.spark
@pytest.mark.parametrize("has_tqdm", [True, False])
def test_a_real_terminal_shows_a_job_whose_error_is_what_it_would_be(
    has_tqdm: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written to one end of the terminal appears at the other, where a person would look."""
    if not has_tqdm:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    gate = Gate(tmp_path / "gate")
    os.mkfifo(gate.path)
    job = spark.sparkContext.parallelize(range(4), 4).mapPartitions(gate.task)
    (screen, end), seen = pty.openpty(), Terminal(gate.path)
    termios.tcsetwinsize(end, (24, 80))

    def look() -> None:
        while "end of test" not in seen.getvalue():
            seen.write(os.read(screen, 4096).decode())

    reader = threading.Thread(target=look, daemon=True)
    reader.start()
    with os.fdopen(end, "w") as terminal:
        with pytest.raises(Exception, match="no such luck"), spark_progress(spark, stream=terminal):
            job.collect()
        assert [] == progress_threads()
        terminal.write("end of test")
        terminal.flush()
        reader.join()
    os.close(screen)
    assert ALL_BUT_ONE.search(seen.getvalue())
    assert "end of test" == seen.screen
