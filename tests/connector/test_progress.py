# SPDX-License-Identifier: Apache-2.0
"""The progress bar shows what Spark runs, only where someone can see it, and leaves nothing behind."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
import threading
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_commitlog.progress import (
    CellDisplay,
    ConnectStages,
    LineDisplay,
    ProgressWatch,
    StageTasks,
    StageView,
    TqdmDisplay,
    choose_display,
    spark_progress,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession


CELL = """\
import sys, threading
sys.modules["ipywidgets"] = None
from pyspark_commitlog.progress import ProgressWatch
from pyspark_commitlog.progress import choose_display
from pyspark_commitlog.progress import StageTasks

class Stages:
    def running(self):
        return [StageTasks(4, 20, 5)]

    def close(self):
        pass

display, was_shown = choose_display(), threading.Event()
show, display.show = display.show, lambda view: (show(view), was_shown.set())
with ProgressWatch(Stages(), display).running():
    assert was_shown.wait(60)
"""


ALL_BUT_ONE = re.compile(r"\b3(/| of )4 tasks")
"""The text with tqdm, and without."""


class Terminal(io.StringIO):
    """A terminal that records everything written, and opens a gate when all tasks but one are done."""

    def __init__(self, gate: Gate | None = None, is_terminal: bool = True) -> None:
        super().__init__()
        self._gate = gate
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        if self._gate is not None and ALL_BUT_ONE.search(text):
            gate, self._gate = self._gate, None
            gate.open()
        return super().write(text)

    @property
    def has_shown_tasks(self) -> bool:
        return ALL_BUT_ONE.search(self.getvalue()) is not None

    @property
    def screen(self) -> str:
        """The final content of the current line."""
        line: list[str] = []
        column = 0
        for character in self.getvalue().replace("\x1b[2K", "\0"):
            if character == "\0":  # the line is erased
                line.clear()
                continue
            if character == "\r":
                column = 0
                continue
            line[column : column + 1] = [character]
            column += 1
        return "".join(line).rstrip()


@dataclass
class Script:
    """Returns the given answers, one by one."""

    answers: list[list[StageTasks]]
    is_closed: bool = False

    def running(self) -> list[StageTasks]:
        return self.answers.pop(0)

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Shown:
    """A display that records what it is given."""

    views: list[StageView] = field(default_factory=list)
    is_closed: bool = False

    def show(self, view: StageView) -> None:
        self.views.append(view)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tqdm", "tqdm.std", "tqdm.auto", "tqdm.notebook"):
        monkeypatch.setitem(sys.modules, name, None)


def watched(*answers: list[StageTasks], seconds: list[float]) -> list[StageView]:
    """Look once for each answer, at the given times; return what was shown."""
    shown = Shown()
    times = iter(seconds)
    watch = ProgressWatch(Script(list(answers)), shown, clock=lambda: next(times))
    for _ in answers:
        watch.look()
    return shown.views


# ---- what is shown


def test_a_stage_has_its_rate_and_the_rest_of_its_time() -> None:
    first, second = watched([StageTasks(4, 20, 0, 2)], [StageTasks(4, 20, 5, 2)], seconds=[10.0, 14.0])

    assert "stage 4: 0 of 20 tasks, 2 running" == first.line
    assert "stage 4: 5 of 20 tasks, 1.2 tasks/s, 2 running, 12 s left" == second.line


def test_of_several_stages_the_oldest_is_shown_and_the_others_are_counted() -> None:
    (view,) = watched([StageTasks(2, 8, 1), StageTasks(3, 9), StageTasks(5, 1)], seconds=[0.0])

    assert ("stage 2 (+2)", 1, 8) == (view.label, view.tasks.done, view.tasks.total)


def test_what_was_done_before_a_stage_was_seen_counts_for_no_rate() -> None:
    views = watched([StageTasks(1, 20, 9)], [StageTasks(1, 20, 10)], seconds=[5.0, 7.0])

    assert [0.0, 0.5] == [view.pace for view in views]


def test_the_next_stage_and_the_same_one_once_more_start_their_own_time() -> None:
    stages = [StageTasks(1, 9, 0)], [StageTasks(2, 9, 0)], [StageTasks(2, 9, 3)], [StageTasks(2, 9, 1)]
    views = watched(*stages, [StageTasks(2, 9, 2)], seconds=[0.0, 20.0, 21.0, 30.0, 32.0])

    assert [0.0, 0.0, 3.0, 0.0, 0.5] == [view.pace for view in views]


def test_failed_tasks_are_told() -> None:
    assert ["2 failed"] == StageView(StageTasks(1, 4, 0, 0, 2)).notes


def test_between_stages_the_last_one_stays() -> None:
    assert 1 == len(watched([StageTasks(1, 4)], [], [], seconds=[0.0]))


def test_a_file_or_a_pipe_gets_nothing() -> None:
    assert choose_display(Terminal(is_terminal=False)) is None


def test_without_standard_error_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)

    assert choose_display() is None


def test_a_closed_stream_gets_nothing() -> None:
    terminal = Terminal()
    terminal.close()

    assert choose_display(terminal) is None


@pytest.mark.usefixtures("without_tqdm")
def test_a_terminal_without_tqdm_gets_a_line_that_is_cleared() -> None:
    terminal = Terminal()
    display = choose_display(terminal)
    assert isinstance(display, LineDisplay)

    display.show(StageView(StageTasks(1, 20, 10), 11, 1.0))
    display.show(StageView(StageTasks(2, 2)))
    assert "stage 2: 0 of 2 tasks" == terminal.screen
    display.close()
    assert "" == terminal.screen


def test_a_line_is_no_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    LineDisplay(terminal).show(StageView(StageTasks(1, 20, 10), 1, 1.0))

    assert "stage 1 (+1): 10 of" == terminal.screen


def test_a_line_that_was_never_shown_is_not_cleared() -> None:
    terminal = Terminal()
    LineDisplay(terminal).close()

    assert "" == terminal.getvalue()


def test_a_terminal_gets_a_bar_of_tqdm_that_is_cleared() -> None:
    pytest.importorskip("tqdm")
    terminal = Terminal()
    display = choose_display(terminal)
    assert isinstance(display, TqdmDisplay)

    assert "" == terminal.getvalue()
    display.show(StageView(StageTasks(4, 20, 5, 2), pace=1.2))
    assert terminal.screen.startswith("stage 4:  25%|")
    assert "| 5/20 tasks [00:" in terminal.screen
    assert terminal.screen.endswith(", 1.2 tasks/s, 2 running]")
    display.show(StageView(StageTasks(5, 2, 1), pace=1.0))
    assert terminal.screen.startswith("stage 5:  50%|")
    display.show(StageView(StageTasks(5, 2), pace=1.0))
    assert terminal.screen.startswith("stage 5:   0%|")
    display.close()
    assert "" == terminal.screen


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make this process look like a notebook's kernel, and return the successive outputs of its cell."""
    outputs: list[str] = []

    class DisplayHandle:
        def display(self, data: dict[str, str], raw: bool) -> None:
            assert raw
            outputs.append(data["text/plain"])

        update = display

    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    module.DisplayHandle = DisplayHandle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return outputs


@pytest.mark.usefixtures("without_tqdm")
def test_a_notebook_without_tqdm_gets_a_line_that_is_empty_in_the_end(cell: list[str]) -> None:
    display = choose_display()
    assert isinstance(display, CellDisplay)

    display.show(StageView(StageTasks(4, 20, 5), pace=5.0))
    display.close()
    assert ["", "stage 4: 5 of 20 tasks, 5.0 tasks/s, 3 s left", ""] == cell


def test_ipython_in_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("IPython")
    package.get_ipython = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setattr(sys, "stderr", Terminal(is_terminal=False))

    assert choose_display() is None


# ---- reports of Spark Connect


class Server:
    """The handlers of a Connect session."""

    def __init__(self) -> None:
        self.handlers: list[Callable[..., None]] = []

    def registerProgressHandler(self, handler: Callable[..., None]) -> None:  # noqa: N802 -- Spark's name
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Callable[..., None]) -> None:  # noqa: N802 -- Spark's name
        self.handlers.remove(handler)

    def tell(self, operation: str, *stages: tuple[int, int, int, bool], done: bool = False) -> None:
        """Report stages: their numbers, tasks, done tasks, and whether they are finished."""
        names = ("stage_id", "num_tasks", "num_completed_tasks", "done")
        told = [SimpleNamespace(**dict(zip(names, stage, strict=True))) for stage in stages]
        for handler in self.handlers:
            handler(stages=told, inflight_tasks=2, operation_id=operation, done=done)


def test_a_connect_server_s_stages_are_those_that_are_not_over() -> None:
    server: Any = Server()
    stages = ConnectStages(server)

    server.tell("a", (3, 8, 8, True), (4, 20, 5, False))
    assert [StageTasks(4, 20, 5, running=2)] == stages.running()
    server.tell("b", (2, 9, 1, False), (5, 9, 0, False))
    assert [StageTasks(2, 9, 1), StageTasks(4, 20, 5, running=2), StageTasks(5, 9)] == stages.running()
    server.tell("b", (2, 9, 1, False), done=True)
    assert [StageTasks(4, 20, 5, running=2)] == stages.running()
    stages.close()
    assert [] == server.handlers


# ---- with Spark


@dataclass
class Gate:
    """Holds back tasks until it is opened: a named pipe, which can be read once something is written."""

    path: Path

    def __post_init__(self) -> None:
        os.mkfifo(self.path)

    def open(self) -> None:
        """Let one task through, which must be waiting."""
        with self.path.open("w") as pipe:
            pipe.write("go")

    @property
    def task(self) -> Callable[[Iterable[int]], Iterable[int]]:
        """Return a task; the last one waits."""
        path = str(self.path)

        def run(numbers: Iterable[int]) -> Iterable[int]:
            for number in numbers:
                if number == 3:
                    with open(path) as pipe:  # noqa: PTH123 -- runs in a worker
                        pipe.read()
                yield number

        return run


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def run_gated(spark: SparkSession, gate: Gate) -> list[int]:
    """Run a job of four tasks, the last of which waits at the gate."""
    numbers: list[int] = spark.sparkContext.parallelize(range(4), 4).mapPartitions(gate.task).collect()
    return numbers


def progress_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "progress" in thread.name or "tqdm" in thread.name]


@pytest.mark.spark
def test_the_tasks_of_a_running_job_are_shown_and_then_cleared(spark: SparkSession, gate: Gate) -> None:
    terminal = Terminal(gate)

    with spark_progress(spark, stream=terminal):
        assert [0, 1, 2, 3] == run_gated(spark, gate)
    assert terminal.has_shown_tasks
    assert "" == terminal.screen
    assert [] == progress_threads()


@pytest.mark.spark
@pytest.mark.usefixtures("without_tqdm")
def test_a_real_terminal_shows_it_as_well(spark: SparkSession, gate: Gate) -> None:
    """What is written to one end of the terminal appears at the other, where a person would look."""
    screen, end = pty.openpty()
    seen: list[str] = []

    def look() -> None:
        while text := os.read(screen, 4096).decode():
            seen.append(text)
            if "end of test" in text:
                return
            if ALL_BUT_ONE.search(text) and not was_open.is_set():
                was_open.set()
                gate.open()

    was_open = threading.Event()
    reader = threading.Thread(target=look, daemon=True)
    reader.start()
    with os.fdopen(end, "w") as terminal:
        with spark_progress(spark, stream=terminal):
            assert [0, 1, 2, 3] == run_gated(spark, gate)
        terminal.write("end of test")
        terminal.flush()
        reader.join()
    os.close(screen)
    shown = Terminal()
    shown.write("".join(seen))
    assert "3 of 4 tasks" in "".join(seen)
    assert "end of test" == shown.screen


@pytest.mark.spark
def test_a_failed_job_s_error_is_what_it_would_be_and_the_bar_is_gone(spark: SparkSession, gate: Gate) -> None:
    terminal = Terminal(gate)
    task = gate.task

    def fail(numbers: Iterable[int]) -> Iterable[int]:
        for number in task(numbers):
            if number == 3:
                raise ValueError("no such luck")
            yield number

    def job() -> None:
        spark.sparkContext.parallelize(range(4), 4).mapPartitions(fail).collect()

    with pytest.raises(Exception, match="no such luck"), spark_progress(spark, stream=terminal):
        job()
    assert terminal.has_shown_tasks
    assert "" == terminal.screen
    assert [] == progress_threads()


@pytest.mark.spark
def test_inside_a_block_another_one_shows_nothing(spark: SparkSession, gate: Gate) -> None:
    outer, inner = Terminal(gate), Terminal()

    with spark_progress(spark, stream=outer), spark_progress(spark, stream=inner):
        run_gated(spark, gate)
    assert outer.has_shown_tasks
    assert "" == inner.getvalue()


@pytest.mark.spark
def test_one_block_after_the_other_shows_both(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("first", "second"):
        gate = Gate(tmp_path / name)
        terminal = Terminal(gate)
        with spark_progress(spark, stream=terminal):
            run_gated(spark, gate)
        assert terminal.has_shown_tasks


@pytest.mark.spark
def test_where_it_is_not_seen_spark_is_not_asked(spark: SparkSession) -> None:
    with spark_progress(spark, stream=Terminal(is_terminal=False)):
        assert [] == progress_threads()


def test_where_spark_draws_its_own_bar_there_is_no_second_one() -> None:
    terminal = Terminal()
    conf = {"spark.ui.showConsoleProgress": "true"}
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))

    with spark_progress(session, stream=terminal):
        assert [] == progress_threads()
    assert "" == terminal.getvalue()


def test_a_real_notebook_s_cell_shows_it_and_is_saved_empty() -> None:
    """In a separate kernel, whose frontend records all messages."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    told: list[str] = []

    class Frontend(nbclient.NotebookClient):  # type: ignore[misc, name-defined]  # has no types
        def process_message(self, message: dict[str, Any], *others: Any) -> Any:  # noqa: ANN401 -- as it is there
            told.append(message["content"].get("data", {}).get("text/plain", ""))
            return super().process_message(message, *others)

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    Frontend(notebook, timeout=120).execute()
    (output,) = notebook.cells[0].outputs
    assert any(text.startswith("stage 4: 5 of 20 tasks") for text in told)
    assert ("display_data", "") == (output.output_type, output.data["text/plain"])


@pytest.mark.usefixtures("without_tqdm")
def test_a_notebook_s_cell_is_not_where_spark_draws_its_own_bar(cell: list[str]) -> None:
    assert isinstance(choose_display(None, lambda: True), CellDisplay)
    assert [""] == cell
